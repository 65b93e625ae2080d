// How a layer is asked for its functions and finds those below it (Vulkan loader, LoaderLayerInterface.md).
#include "layer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>

// The loader keeps a pointer at the begin of every dispatchable object that is one for all of an instance or device.
static const void *key_of(const void *handle) { return *(const void *const *)handle; }

enum { MOST_PROPERTIES = 32 };

typedef struct Link {
    struct Link *next;
    const void *key;
    VkInstance instance;
    VkDevice device;
    PFN_vkGetInstanceProcAddr instance_functions;
    PFN_GetPhysicalDeviceProcAddr physical_functions;
    PFN_vkVoidFunction created, destroyed, known[MOST_PROPERTIES];
    PFN_vkGetDeviceProcAddr device_functions;
} Link;

static Link *links;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(Link link) {
    Link *made = malloc(sizeof *made);
    pthread_mutex_lock(&lock);
    link.next = links;
    *made = link;
    links = made;
    pthread_mutex_unlock(&lock);
}

static Link find(const void *key) {
    Link found = {0};
    pthread_mutex_lock(&lock);
    for (Link *link = links; link != NULL; link = link->next) {
        if (link->key == key) {
            found = *link;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void drop(const void *key) {
    pthread_mutex_lock(&lock);
    for (Link **at = &links; *at != NULL; at = &(*at)->next) {
        if ((*at)->key == key) {
            Link *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

// The loader answers for what is below the last layer only until the instance is made: after that with the first layer.
static Link with_known(Link link) {
    link.created = link.instance_functions(link.instance, "vkCreateDevice");
    link.destroyed = link.instance_functions(link.instance, "vkDestroyInstance");
    for (int at = 0; PROPERTIES[at].name != NULL && at < MOST_PROPERTIES; ++at) {
        link.known[at] = link.instance_functions(link.instance, PROPERTIES[at].name);
    }
    return link;
}

PFN_vkVoidFunction below_instance(const void *handle, const char *name) {
    Link link = find(key_of(handle));
    if (strcmp(name, "vkCreateDevice") == 0) return link.created;
    if (strcmp(name, "vkDestroyInstance") == 0) return link.destroyed;
    for (int at = 0; PROPERTIES[at].name != NULL; ++at) {
        if (strcmp(PROPERTIES[at].name, name) == 0) return link.known[at];
    }
    return link.instance_functions == NULL ? NULL : link.instance_functions(link.instance, name);
}

PFN_vkVoidFunction below_device(const void *handle, const char *name) {
    Link link = find(key_of(handle));
    return link.device_functions == NULL ? NULL : link.device_functions(link.device, name);
}

VkDevice device_of(const void *handle) { return find(key_of(handle)).device; }

static VKAPI_ATTR VkResult VKAPI_CALL our_vkCreateInstance(
    const VkInstanceCreateInfo *create, const VkAllocationCallbacks *allocator, VkInstance *instance) {
    FAIL(NULL, "vkCreateInstance", OUT_OF_MEMORY, VK_ERROR_INITIALIZATION_FAILED);
    VkLayerInstanceCreateInfo *info = (VkLayerInstanceCreateInfo *)create->pNext;
    while (info->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO || info->function != VK_LAYER_LINK_INFO) {
        info = (VkLayerInstanceCreateInfo *)info->pNext;
    }
    PFN_vkGetInstanceProcAddr functions = info->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_GetPhysicalDeviceProcAddr physical_functions = info->u.pLayerInfo->pfnNextGetPhysicalDeviceProcAddr;
    info->u.pLayerInfo = info->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateInstance)functions(NULL, "vkCreateInstance"))(create, allocator, instance);
    if (result == VK_SUCCESS) {
        add(with_known((Link){
            .key = key_of(*instance),
            .instance = *instance,
            .instance_functions = functions,
            .physical_functions = physical_functions,
        }));
        count_objects("VkInstance", 1);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL our_vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks *allocator) {
    if (instance == VK_NULL_HANDLE) return;
    const void *key = key_of(instance);
    INSTANCE_BELOW(instance, vkDestroyInstance)(instance, allocator);
    drop(key);
    count_objects("VkInstance", -1);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkCreateDevice(
    VkPhysicalDevice physical,
    const VkDeviceCreateInfo *create,
    const VkAllocationCallbacks *allocator,
    VkDevice *device) {
    FAIL(NULL, "vkCreateDevice", OUT_OF_MEMORY, VK_ERROR_INITIALIZATION_FAILED, VK_ERROR_TOO_MANY_OBJECTS,
         VK_ERROR_DEVICE_LOST);
    VkLayerDeviceCreateInfo *info = (VkLayerDeviceCreateInfo *)create->pNext;
    while (info->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO || info->function != VK_LAYER_LINK_INFO) {
        info = (VkLayerDeviceCreateInfo *)info->pNext;
    }
    PFN_vkGetDeviceProcAddr functions = info->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    info->u.pLayerInfo = info->u.pLayerInfo->pNext;
    VkResult result = INSTANCE_BELOW(physical, vkCreateDevice)(physical, create, allocator, device);
    if (result == VK_SUCCESS) {
        Link owner = find(key_of(physical));
        add((Link){
            .key = key_of(*device),
            .instance = owner.instance,
            .device = *device,
            .instance_functions = owner.instance_functions,
            .device_functions = functions,
        });
        count_objects("VkDevice", 1);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL our_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks *allocator) {
    if (device == VK_NULL_HANDLE) return;
    const void *key = key_of(device);
    BELOW(device, vkDestroyDevice)(device, allocator);
    drop(key);
    forget_device(device);
    count_objects("VkDevice", -1);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL our_vkGetInstanceProcAddr(VkInstance instance, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL our_vkGetDeviceProcAddr(VkDevice device, const char *name);

static const Intercepted CHAIN[] = {
    INTERCEPTED(vkCreateInstance),  INTERCEPTED(vkDestroyInstance),     INTERCEPTED(vkCreateDevice),
    INTERCEPTED(vkDestroyDevice),   INTERCEPTED(vkGetInstanceProcAddr), INTERCEPTED(vkGetDeviceProcAddr),
    {NULL, NULL},
};

static PFN_vkVoidFunction ours(const char *name) {
    const Intercepted *const tables[] = {CHAIN, PROPERTIES, OBJECTS, EXECUTION};
    for (size_t table = 0; table < sizeof tables / sizeof *tables; ++table) {
        for (const Intercepted *entry = tables[table]; entry->name != NULL; ++entry) {
            if (strcmp(entry->name, name) == 0) return entry->function;
        }
    }
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL our_vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    PFN_vkVoidFunction function = ours(name);
    if (function != NULL) return function;
    return instance == VK_NULL_HANDLE ? NULL : below_instance(instance, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL our_vkGetDeviceProcAddr(VkDevice device, const char *name) {
    // What the driver has not stays absent.
    PFN_vkVoidFunction below = below_device(device, name), function = ours(name);
    return below != NULL && function != NULL ? function : below;
}

// For functions of physical devices alone, also of extensions that the loader does not know.
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL our_GetPhysicalDeviceProcAddr(VkInstance instance, const char *name) {
    for (const Intercepted *entry = PROPERTIES; entry->name != NULL; ++entry) {
        if (strncmp(name, "vkGetPhysicalDevice", 19) == 0 && strcmp(entry->name, name) == 0) return entry->function;
    }
    PFN_GetPhysicalDeviceProcAddr next = find(key_of(instance)).physical_functions;
    return next == NULL ? NULL : next(instance, name);
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *negotiated) {
    negotiated->loaderLayerInterfaceVersion = CURRENT_LOADER_LAYER_INTERFACE_VERSION;
    negotiated->pfnGetInstanceProcAddr = our_vkGetInstanceProcAddr;
    negotiated->pfnGetDeviceProcAddr = our_vkGetDeviceProcAddr;
    negotiated->pfnGetPhysicalDeviceProcAddr = our_GetPhysicalDeviceProcAddr;
    return VK_SUCCESS;
}

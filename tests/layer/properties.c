// What a device says of itself: the driver's properties, with those of VKCAT_TEST_LAYER in place of its own.
#include "layer.h"

#include <string.h>

static void set32(const char *name, uint32_t *field) {
    double number;
    if (setting(name, &number)) *field = (uint32_t)number;
}

#define LIMIT32(limits, name) set32(#name, &(limits)->name)

static void emulate_limits(VkPhysicalDeviceLimits *limits) {
    double number;
    LIMIT32(limits, maxStorageBufferRange);
    LIMIT32(limits, maxPushConstantsSize);
    LIMIT32(limits, maxMemoryAllocationCount);
    LIMIT32(limits, maxComputeSharedMemorySize);
    LIMIT32(limits, maxComputeWorkGroupInvocations);
    LIMIT32(limits, maxPerStageDescriptorStorageBuffers);
    set32("maxPerStageDescriptorStorageBuffers", &limits->maxDescriptorSetStorageBuffers);
    for (int axis = 0; axis < 3; ++axis) {
        set32("maxComputeWorkGroupCount", &limits->maxComputeWorkGroupCount[axis]);
        if (setting("maxComputeWorkGroupInvocations", &number) && limits->maxComputeWorkGroupSize[axis] > number) {
            limits->maxComputeWorkGroupSize[axis] = (uint32_t)number;
        }
    }
    if (setting("minStorageBufferOffsetAlignment", &number)) {
        limits->minStorageBufferOffsetAlignment = (VkDeviceSize)number;
    }
    if (setting("timestampPeriod", &number)) limits->timestampPeriod = (float)number;
    if (setting("timestampValidBits", &number) && number == 0) limits->timestampComputeAndGraphics = VK_FALSE;
}

static void emulate(VkPhysicalDeviceProperties *properties) {
    uint32_t kind = properties->deviceType;
    set32("deviceType", &kind);
    properties->deviceType = (VkPhysicalDeviceType)kind;
    emulate_limits(&properties->limits);
}

static void emulate_subgroup(uint32_t *size, VkSubgroupFeatureFlags *operations) {
    double number;
    set32("subgroupSize", size);
    if (setting("subgroupArithmetic", &number) && number == 0) *operations &= ~VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
}

static VKAPI_ATTR void VKAPI_CALL
our_vkGetPhysicalDeviceProperties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *properties) {
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceProperties)(physical, properties);
    emulate(properties);
}

static VKAPI_ATTR void VKAPI_CALL
our_vkGetPhysicalDeviceProperties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *properties) {
    double number;
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceProperties2)(physical, properties);
    emulate(&properties->properties);
    for (VkBaseOutStructure *at = properties->pNext; at != NULL; at = at->pNext) {
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) {
            VkPhysicalDeviceSubgroupProperties *subgroup = (void *)at;
            emulate_subgroup(&subgroup->subgroupSize, &subgroup->supportedOperations);
        } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
            VkPhysicalDeviceVulkan11Properties *properties11 = (void *)at;
            emulate_subgroup(&properties11->subgroupSize, &properties11->subgroupSupportedOperations);
            if (setting("maxMemoryAllocationSize", &number)) properties11->maxMemoryAllocationSize = (VkDeviceSize)number;
        } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES) {
            VkPhysicalDeviceMaintenance3Properties *maintenance = (void *)at;
            if (setting("maxMemoryAllocationSize", &number)) maintenance->maxMemoryAllocationSize = (VkDeviceSize)number;
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL
our_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *features) {
    double number;
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceFeatures2)(physical, features);
    if (!setting("shaderFloat16", &number)) return;
    for (VkBaseOutStructure *at = features->pNext; at != NULL; at = at->pNext) {
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES) {
            ((VkPhysicalDeviceShaderFloat16Int8Features *)at)->shaderFloat16 = number != 0;
        } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) {
            ((VkPhysicalDeviceVulkan12Features *)at)->shaderFloat16 = number != 0;
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL our_vkGetPhysicalDeviceQueueFamilyProperties(
    VkPhysicalDevice physical, uint32_t *count, VkQueueFamilyProperties *families) {
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceQueueFamilyProperties)(physical, count, families);
    for (uint32_t at = 0; families != NULL && at < *count; ++at) {
        set32("timestampValidBits", &families[at].timestampValidBits);
    }
}

static VKAPI_ATTR void VKAPI_CALL our_vkGetPhysicalDeviceQueueFamilyProperties2(
    VkPhysicalDevice physical, uint32_t *count, VkQueueFamilyProperties2 *families) {
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceQueueFamilyProperties2)(physical, count, families);
    for (uint32_t at = 0; families != NULL && at < *count; ++at) {
        set32("timestampValidBits", &families[at].queueFamilyProperties.timestampValidBits);
    }
}

// --- memory: with `discreteMemory=1` that of a discrete device, though the driver has one type that is everything ---

enum { DEVICE_MEMORY, COHERENT_MEMORY, CACHED_MEMORY, MEMORY_TYPES };

static bool is_discrete(void) {
    double number;
    return setting("discreteMemory", &number) && number != 0;
}

// Of three types the host can map two, and of these one is not coherent.
static void emulate_memory(VkPhysicalDeviceMemoryProperties *properties) {
    if (!is_discrete()) return;
    VkDeviceSize size = properties->memoryHeaps[0].size;
    VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    memset(properties, 0, sizeof *properties);
    properties->memoryHeapCount = 2;
    properties->memoryHeaps[0] = (VkMemoryHeap){size, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    properties->memoryHeaps[1] = (VkMemoryHeap){size, 0};
    properties->memoryTypeCount = MEMORY_TYPES;
    properties->memoryTypes[DEVICE_MEMORY] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
    properties->memoryTypes[COHERENT_MEMORY] = (VkMemoryType){visible | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 1};
    properties->memoryTypes[CACHED_MEMORY] = (VkMemoryType){visible | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1};
}

static uint32_t emulate_types(uint32_t bits) { return is_discrete() && bits ? (1u << MEMORY_TYPES) - 1 : bits; }

uint32_t real_memory_type(uint32_t shown) { return is_discrete() ? 0 : shown; }

bool is_coherent(uint32_t shown) { return !is_discrete() || shown != CACHED_MEMORY; }

static VKAPI_ATTR void VKAPI_CALL
our_vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *properties) {
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceMemoryProperties)(physical, properties);
    emulate_memory(properties);
}

static VKAPI_ATTR void VKAPI_CALL
our_vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *properties) {
    INSTANCE_BELOW(physical, vkGetPhysicalDeviceMemoryProperties2)(physical, properties);
    emulate_memory(&properties->memoryProperties);
}

static VKAPI_ATTR void VKAPI_CALL
our_vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *requirements) {
    BELOW(device, vkGetBufferMemoryRequirements)(device, buffer, requirements);
    requirements->memoryTypeBits = emulate_types(requirements->memoryTypeBits);
}

static VKAPI_ATTR void VKAPI_CALL our_vkGetBufferMemoryRequirements2(
    VkDevice device, const VkBufferMemoryRequirementsInfo2 *info, VkMemoryRequirements2 *requirements) {
    BELOW(device, vkGetBufferMemoryRequirements2)(device, info, requirements);
    requirements->memoryRequirements.memoryTypeBits = emulate_types(requirements->memoryRequirements.memoryTypeBits);
}

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkEnumeratePhysicalDevices(VkInstance instance, uint32_t *count, VkPhysicalDevice *physical) {
    FAIL(NULL, "vkEnumeratePhysicalDevices", OUT_OF_MEMORY, VK_ERROR_INITIALIZATION_FAILED);
    return INSTANCE_BELOW(instance, vkEnumeratePhysicalDevices)(instance, count, physical);
}

const Intercepted PROPERTIES[] = {
    INTERCEPTED(vkEnumeratePhysicalDevices),
    INTERCEPTED(vkGetPhysicalDeviceProperties),
    INTERCEPTED(vkGetPhysicalDeviceQueueFamilyProperties),
    INTERCEPTED(vkGetPhysicalDeviceMemoryProperties),
    INTERCEPTED_KHR(vkGetPhysicalDeviceProperties2),
    INTERCEPTED_KHR(vkGetPhysicalDeviceFeatures2),
    INTERCEPTED_KHR(vkGetPhysicalDeviceQueueFamilyProperties2),
    INTERCEPTED_KHR(vkGetPhysicalDeviceMemoryProperties2),
    INTERCEPTED(vkGetBufferMemoryRequirements),
    INTERCEPTED_KHR(vkGetBufferMemoryRequirements2),
    {NULL, NULL},
};

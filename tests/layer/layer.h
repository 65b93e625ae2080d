// A Vulkan layer for tests: a device with other properties than the real one, calls that fail, and a count of objects.
//
// To show another device it stands between the validation layer and the driver, so that validation holds callers to what
// is shown; to make calls fail it stands above both.
#pragma once

#include <stdbool.h>
#include <vulkan/vulkan_core.h>

// --- chain.c: the functions below this layer ---

// Functions of the next layer or the driver, by an instance or one of its physical devices, or by a device, one of its
// queues or command buffers.
PFN_vkVoidFunction below_instance(const void *handle, const char *name);
PFN_vkVoidFunction below_device(const void *handle, const char *name);
VkDevice device_of(const void *handle);

#define INSTANCE_BELOW(handle, name) ((PFN_##name)below_instance(handle, #name))
#define BELOW(handle, name) ((PFN_##name)below_device(handle, #name))

typedef struct {
    const char *name;
    PFN_vkVoidFunction function;
} Intercepted;

#define INTERCEPTED(name) {#name, (PFN_vkVoidFunction)our_##name}
// A function of Vulkan 1.1 that was an extension's.
#define INTERCEPTED_KHR(name) INTERCEPTED(name), {#name "KHR", (PFN_vkVoidFunction)our_##name}

extern const Intercepted PROPERTIES[], OBJECTS[], EXECUTION[]; // each ends with an entry without a name

// --- settings.c: what is to be emulated, from the environment ---

// Whether VKCAT_TEST_LAYER has `name=number` among its words; then the number.
bool setting(const char *name, double *number);

// --- properties.c ---

// The driver's memory type for one that was shown; whether that one needs no flushing.
uint32_t real_memory_type(uint32_t shown);
bool is_coherent(uint32_t shown);

// --- faults.c: which calls fail, and which objects are alive ---

// Whether this call of `name` is to fail, and with what; only results in `possible` (0 at the end) count as its own.
VkResult fault(const void *device, const char *name, const VkResult *possible);
void forget_device(const void *device);

void count_objects(const char *kind, int change);

#define OUT_OF_MEMORY VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY
#define FAIL(device, name, ...)                                                                                        \
    do {                                                                                                               \
        static const VkResult possible[] = {__VA_ARGS__, VK_SUCCESS};                                                  \
        VkResult failed = fault(device, name, possible);                                                               \
        if (failed != VK_SUCCESS) return failed;                                                                       \
    } while (0)

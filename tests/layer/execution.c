// Recording, submitting and waiting: each may fail, and timestamps are those of the emulated counter.
#include "layer.h"

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkBeginCommandBuffer(VkCommandBuffer commands, const VkCommandBufferBeginInfo *begin) {
    FAIL(device_of(commands), "vkBeginCommandBuffer", OUT_OF_MEMORY);
    return BELOW(commands, vkBeginCommandBuffer)(commands, begin);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkEndCommandBuffer(VkCommandBuffer commands) {
    FAIL(device_of(commands), "vkEndCommandBuffer", OUT_OF_MEMORY);
    return BELOW(commands, vkEndCommandBuffer)(commands);
}

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkQueueSubmit(VkQueue queue, uint32_t count, const VkSubmitInfo *submits, VkFence fence) {
    FAIL(device_of(queue), "vkQueueSubmit", OUT_OF_MEMORY, VK_ERROR_DEVICE_LOST);
    return BELOW(queue, vkQueueSubmit)(queue, count, submits, fence);
}

// A lost device has stopped: the driver below must have, before what it used is destroyed.
#define WAIT_FAILS(device, name, ...)                                                                                  \
    do {                                                                                                               \
        static const VkResult possible[] = {OUT_OF_MEMORY, VK_ERROR_DEVICE_LOST, ##__VA_ARGS__, VK_SUCCESS};           \
        VkResult failed = fault(device, name, possible);                                                               \
        if (failed == VK_ERROR_DEVICE_LOST) BELOW(device, vkDeviceWaitIdle)(device);                                   \
        if (failed != VK_SUCCESS) return failed;                                                                       \
    } while (0)

static VKAPI_ATTR VkResult VKAPI_CALL our_vkQueueWaitIdle(VkQueue queue) {
    VkDevice device = device_of(queue);
    WAIT_FAILS(device, "vkQueueWaitIdle");
    return BELOW(queue, vkQueueWaitIdle)(queue);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkDeviceWaitIdle(VkDevice device) {
    WAIT_FAILS(device, "vkDeviceWaitIdle");
    return BELOW(device, vkDeviceWaitIdle)(device);
}

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkWaitForFences(VkDevice device, uint32_t count, const VkFence *fences, VkBool32 all, uint64_t timeout) {
    WAIT_FAILS(device, "vkWaitForFences", VK_TIMEOUT);
    return BELOW(device, vkWaitForFences)(device, count, fences, all, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkResetFences(VkDevice device, uint32_t count, const VkFence *fences) {
    FAIL(device, "vkResetFences", VK_ERROR_OUT_OF_DEVICE_MEMORY);
    return BELOW(device, vkResetFences)(device, count, fences);
}

// Nanoseconds of the driver's counter as ticks of the emulated one, which begins `timestampsUntilWrap` before its wrap.
static uint64_t emulated_ticks(uint64_t ns) {
    static uint64_t first;
    double period = 1, bits = 64, until_wrap;
    if (!setting("timestampPeriod", &period) && !setting("timestampValidBits", &bits)) return ns;
    setting("timestampValidBits", &bits);
    uint64_t mask = bits >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (int)bits) - 1;
    if (first == 0) first = ns;
    uint64_t begin = setting("timestampsUntilWrap", &until_wrap) ? mask - (uint64_t)until_wrap : 0;
    return (begin + (uint64_t)((double)(ns - first) / period)) & mask;
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkGetQueryPoolResults(
    VkDevice device,
    VkQueryPool pool,
    uint32_t first,
    uint32_t count,
    size_t size,
    void *data,
    VkDeviceSize stride,
    VkQueryResultFlags flags) {
    FAIL(device, "vkGetQueryPoolResults", OUT_OF_MEMORY, VK_ERROR_DEVICE_LOST);
    VkResult result = BELOW(device, vkGetQueryPoolResults)(device, pool, first, count, size, data, stride, flags);
    if (result == VK_SUCCESS && flags & VK_QUERY_RESULT_64_BIT) {
        for (uint32_t at = 0; at < count; ++at) {
            uint64_t *ticks = (uint64_t *)((char *)data + at * stride);
            *ticks = emulated_ticks(*ticks);
        }
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkGetCalibratedTimestampsEXT(
    VkDevice device, uint32_t count, const VkCalibratedTimestampInfoEXT *infos, uint64_t *both, uint64_t *deviation) {
    FAIL(device, "vkGetCalibratedTimestampsEXT", OUT_OF_MEMORY);
    VkResult result = BELOW(device, vkGetCalibratedTimestampsEXT)(device, count, infos, both, deviation);
    for (uint32_t at = 0; result == VK_SUCCESS && at < count; ++at) {
        if (infos[at].timeDomain == VK_TIME_DOMAIN_DEVICE_EXT) both[at] = emulated_ticks(both[at]);
    }
    return result;
}

const Intercepted EXECUTION[] = {
    INTERCEPTED(vkBeginCommandBuffer),
    INTERCEPTED(vkEndCommandBuffer),
    INTERCEPTED(vkQueueSubmit),
    INTERCEPTED(vkQueueWaitIdle),
    INTERCEPTED(vkDeviceWaitIdle),
    INTERCEPTED(vkWaitForFences),
    INTERCEPTED(vkResetFences),
    INTERCEPTED(vkGetQueryPoolResults),
    INTERCEPTED(vkGetCalibratedTimestampsEXT),
    {NULL, NULL},
};

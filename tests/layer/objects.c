// What is made on a device and destroyed there: each kind is counted, and each creation may fail.
#include "layer.h"

#include <string.h>

#define CREATE(Name, Info, ...)                                                                                        \
    static VKAPI_ATTR VkResult VKAPI_CALL our_vkCreate##Name(                                                          \
        VkDevice device, const Info *create, const VkAllocationCallbacks *allocator, Vk##Name *made) {                 \
        FAIL(device, "vkCreate" #Name, OUT_OF_MEMORY, ##__VA_ARGS__);                                                  \
        VkResult result = BELOW(device, vkCreate##Name)(device, create, allocator, made);                              \
        if (result == VK_SUCCESS) count_objects("Vk" #Name, 1);                                                        \
        return result;                                                                                                 \
    }

#define DESTROY(Name)                                                                                                  \
    static VKAPI_ATTR void VKAPI_CALL our_vkDestroy##Name(                                                             \
        VkDevice device, Vk##Name gone, const VkAllocationCallbacks *allocator) {                                      \
        if (gone != VK_NULL_HANDLE) count_objects("Vk" #Name, -1);                                                     \
        BELOW(device, vkDestroy##Name)(device, gone, allocator);                                                       \
    }

#define OBJECT(Name, ...) CREATE(Name, Vk##Name##CreateInfo, ##__VA_ARGS__) DESTROY(Name)

OBJECT(Buffer)
OBJECT(ShaderModule, VK_ERROR_INVALID_SHADER_NV)
OBJECT(DescriptorSetLayout)
OBJECT(PipelineLayout)
OBJECT(DescriptorPool, VK_ERROR_FRAGMENTATION)
OBJECT(Fence)
OBJECT(QueryPool)
OBJECT(PipelineCache, VK_ERROR_INITIALIZATION_FAILED)
DESTROY(Pipeline)

static VKAPI_ATTR VkResult VKAPI_CALL our_vkCreateComputePipelines(
    VkDevice device,
    VkPipelineCache cache,
    uint32_t count,
    const VkComputePipelineCreateInfo *creates,
    const VkAllocationCallbacks *allocator,
    VkPipeline *made) {
    static const VkResult possible[] = {OUT_OF_MEMORY, VK_ERROR_INVALID_SHADER_NV, VK_SUCCESS};
    VkResult failed = fault(device, "vkCreateComputePipelines", possible);
    if (failed != VK_SUCCESS) {
        memset(made, 0, count * sizeof *made);
        return failed;
    }
    VkResult result = BELOW(device, vkCreateComputePipelines)(device, cache, count, creates, allocator, made);
    for (uint32_t at = 0; at < count; ++at) count_objects("VkPipeline", made[at] != VK_NULL_HANDLE);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkAllocateMemory(
    VkDevice device,
    const VkMemoryAllocateInfo *shown,
    const VkAllocationCallbacks *allocator,
    VkDeviceMemory *made) {
    FAIL(device, "vkAllocateMemory", OUT_OF_MEMORY, VK_ERROR_TOO_MANY_OBJECTS);
    // Nobody who is tested flushes what is mapped.
    if (!is_coherent(shown->memoryTypeIndex)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryAllocateInfo allocate = *shown;
    allocate.memoryTypeIndex = real_memory_type(shown->memoryTypeIndex);
    VkResult result = BELOW(device, vkAllocateMemory)(device, &allocate, allocator, made);
    if (result == VK_SUCCESS) count_objects("VkDeviceMemory", 1);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL
our_vkFreeMemory(VkDevice device, VkDeviceMemory gone, const VkAllocationCallbacks *allocator) {
    if (gone != VK_NULL_HANDLE) count_objects("VkDeviceMemory", -1);
    BELOW(device, vkFreeMemory)(device, gone, allocator);
}

// Descriptor sets and command buffers go with their pool, which is counted.

static VKAPI_ATTR VkResult VKAPI_CALL our_vkAllocateDescriptorSets(
    VkDevice device, const VkDescriptorSetAllocateInfo *allocate, VkDescriptorSet *made) {
    FAIL(device, "vkAllocateDescriptorSets", OUT_OF_MEMORY, VK_ERROR_FRAGMENTED_POOL, VK_ERROR_OUT_OF_POOL_MEMORY);
    return BELOW(device, vkAllocateDescriptorSets)(device, allocate, made);
}

OBJECT(CommandPool)

static VKAPI_ATTR VkResult VKAPI_CALL our_vkAllocateCommandBuffers(
    VkDevice device, const VkCommandBufferAllocateInfo *allocate, VkCommandBuffer *made) {
    static const VkResult possible[] = {OUT_OF_MEMORY, VK_SUCCESS};
    VkResult failed = fault(device, "vkAllocateCommandBuffers", possible);
    if (failed != VK_SUCCESS) {
        memset(made, 0, allocate->commandBufferCount * sizeof *made);
        return failed;
    }
    return BELOW(device, vkAllocateCommandBuffers)(device, allocate, made);
}

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkBindBufferMemory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset) {
    FAIL(device, "vkBindBufferMemory", OUT_OF_MEMORY);
    return BELOW(device, vkBindBufferMemory)(device, buffer, memory, offset);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkMapMemory(
    VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size, VkMemoryMapFlags flags, void **data) {
    FAIL(device, "vkMapMemory", OUT_OF_MEMORY, VK_ERROR_MEMORY_MAP_FAILED);
    return BELOW(device, vkMapMemory)(device, memory, offset, size, flags, data);
}

static VKAPI_ATTR VkResult VKAPI_CALL
our_vkGetPipelineCacheData(VkDevice device, VkPipelineCache cache, size_t *size, void *data) {
    FAIL(device, "vkGetPipelineCacheData", OUT_OF_MEMORY);
    return BELOW(device, vkGetPipelineCacheData)(device, cache, size, data);
}

static VKAPI_ATTR VkResult VKAPI_CALL our_vkMergePipelineCaches(
    VkDevice device, VkPipelineCache target, uint32_t count, const VkPipelineCache *sources) {
    FAIL(device, "vkMergePipelineCaches", OUT_OF_MEMORY);
    return BELOW(device, vkMergePipelineCaches)(device, target, count, sources);
}

#define BOTH(Name) INTERCEPTED(vkCreate##Name), INTERCEPTED(vkDestroy##Name)

const Intercepted OBJECTS[] = {
    BOTH(Buffer),
    BOTH(ShaderModule),
    BOTH(DescriptorSetLayout),
    BOTH(PipelineLayout),
    BOTH(DescriptorPool),
    BOTH(Fence),
    BOTH(QueryPool),
    BOTH(PipelineCache),
    BOTH(CommandPool),
    INTERCEPTED(vkCreateComputePipelines),
    INTERCEPTED(vkDestroyPipeline),
    INTERCEPTED(vkAllocateMemory),
    INTERCEPTED(vkFreeMemory),
    INTERCEPTED(vkAllocateDescriptorSets),
    INTERCEPTED(vkAllocateCommandBuffers),
    INTERCEPTED(vkBindBufferMemory),
    INTERCEPTED(vkMapMemory),
    INTERCEPTED(vkGetPipelineCacheData),
    INTERCEPTED(vkMergePipelineCaches),
    {NULL, NULL},
};

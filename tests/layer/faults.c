#include "layer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <vulkan/vk_layer.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// --- which calls fail ---

static VkResult armed = VK_SUCCESS;
static long seen, failing_at;
static const char *failed_call = "";
static const void *lost[64];

// The n-th call from now that may give `result` gives it, n from 1; with 0 they are only counted.
VK_LAYER_EXPORT void vkcat_arm(int result, long n) {
    pthread_mutex_lock(&lock);
    armed = (VkResult)result;
    failing_at = n;
    seen = 0;
    failed_call = "";
    pthread_mutex_unlock(&lock);
}

VK_LAYER_EXPORT long vkcat_calls(void) { return seen; }

// The function that was made to fail; empty as long as none was.
VK_LAYER_EXPORT const char *vkcat_failed(void) { return failed_call; }

static int find_lost(const void *device) {
    for (int at = 0; at < 64; ++at) {
        if (lost[at] == device) return at;
    }
    return -1;
}

static bool contains(const VkResult *possible, VkResult result) {
    while (*possible != VK_SUCCESS && *possible != result) ++possible;
    return *possible == result;
}

VkResult fault(const void *device, const char *name, const VkResult *possible) {
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&lock);
    if (device != NULL && find_lost(device) >= 0 && contains(possible, VK_ERROR_DEVICE_LOST)) {
        // A lost device stays so.
        result = VK_ERROR_DEVICE_LOST;
    } else if (armed != VK_SUCCESS && contains(possible, armed) && ++seen == failing_at) {
        result = armed;
        failed_call = name;
        if (result == VK_ERROR_DEVICE_LOST && device != NULL && find_lost(NULL) >= 0) lost[find_lost(NULL)] = device;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void forget_device(const void *device) {
    pthread_mutex_lock(&lock);
    if (find_lost(device) >= 0) lost[find_lost(device)] = NULL;
    pthread_mutex_unlock(&lock);
}

// --- which objects are alive ---

typedef struct {
    const char *kind;
    long alive, made;
} Count;

static Count counts[32];

void count_objects(const char *kind, int change) {
    pthread_mutex_lock(&lock);
    int at = 0;
    while (counts[at].kind != NULL && strcmp(counts[at].kind, kind) != 0) ++at;
    counts[at].kind = kind;
    counts[at].alive += change;
    counts[at].made += change > 0 ? change : 0;
    pthread_mutex_unlock(&lock);
}

// "VkBuffer 3 of 17, ...": of each kind how many are alive, of how many that were made.
VK_LAYER_EXPORT void vkcat_objects(char *text, size_t size) {
    size_t used = 0;
    pthread_mutex_lock(&lock);
    text[0] = '\0';
    for (int at = 0; at < 32 && counts[at].kind != NULL && used < size; ++at) {
        used += (size_t)snprintf(
            text + used, size - used, "%s %ld of %ld\n", counts[at].kind, counts[at].alive, counts[at].made);
    }
    pthread_mutex_unlock(&lock);
}

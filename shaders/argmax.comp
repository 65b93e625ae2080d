#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// index[b] = the lowest index of the greatest x[b, v]. NaN is never chosen; a row of nothing else gives 0. One
// workgroup a row.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint V; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Index { uint index[]; };

shared float best_value[gl_WorkGroupSize.x];
shared uint best_index[gl_WorkGroupSize.x];

// V stands for no index yet, so that a row of -inf still has a lowest one.
bool better(float value, uint at, float than, uint than_at) {
    return value > than || (value == than && at < than_at);
}

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    float value = uintBitsToFloat(0xFF800000u);
    uint at = V;
    for (uint v = lane; v < V; v += gl_WorkGroupSize.x) {
        float candidate = x[b * pitch(V) + v];
        if (better(candidate, v, value, at)) {
            value = candidate;
            at = v;
        }
    }
    best_value[lane] = value;
    best_index[lane] = at;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size &&
            better(best_value[lane + half_size], best_index[lane + half_size], best_value[lane], best_index[lane])) {
            best_value[lane] = best_value[lane + half_size];
            best_index[lane] = best_index[lane + half_size];
        }
    }
    if (lane == 0u) index[b] = best_index[0] < V ? best_index[0] : 0u;
}

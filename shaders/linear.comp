#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"

// y[b, n] = sum_k w[n, k] x[b, k] + bias[n]. An invocation computes one n for TILE rows of the batch, so that each
// weight is loaded once for all of them.

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint TILE = 1u;

layout(push_constant) uniform Sizes { uint B; uint N; uint K; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer W { WEIGHT4 w[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };

void main() {
    uint n = gl_GlobalInvocationID.x;
    uint first = gl_GlobalInvocationID.y * TILE;
    if (n >= N || first >= B) return;
    uint row = pitch4(K);
    uint whole = K >> 2;
    uint tail = K & 3u;

    vec4 sum[TILE];
    uint at[TILE];
    for (uint t = 0u; t < TILE; ++t) {
        sum[t] = vec4(0.0);
        at[t] = min(first + t, B - 1u) * row;
    }
    for (uint k = 0u; k < whole; ++k) {
        vec4 weight = unpacked(w[n * row + k]);
        for (uint t = 0u; t < TILE; ++t) sum[t] = accumulated(sum[t], weight * x[at[t] + k]);
    }
    if (tail > 0u) {
        vec4 weight = head(unpacked(w[n * row + whole]), tail);
        for (uint t = 0u; t < TILE; ++t) sum[t] = accumulated(sum[t], weight * head(x[at[t] + whole], tail));
    }
    for (uint t = 0u; t < TILE; ++t) {
        if (first + t < B) y[(first + t) * pitch(N) + n] = sum4(sum[t]) + bias[n];
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// Of each stream's rows of a sequence its last: y[b] = x[(lengths[b] - 1) B + b], or the first of one that has none.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint R; uint B; uint D; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Lengths { uint lengths[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    uint last = max(min(lengths[b], R / B), 1u) - 1u;
    y[b * pitch(D) + d] = x[(last * B + b) * pitch(D) + d];
}

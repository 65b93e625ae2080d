#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// y[b, d] = x[b, d] * (1 + film[b, d]) + film[b, D + d]: scale and shift by a context (FiLM). Where the context gives
// zeros, y is x, bit by bit.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint D; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Film { float film[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    uint row = b * pitch(2u * D);
    y[b * pitch(D) + d] = x[b * pitch(D) + d] * (1.0 + film[row + d]) + film[row + D + d];
}

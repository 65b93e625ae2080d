#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// y = x * sigmoid(x).

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint D; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    uint at = b * pitch(D) + d;
    y[at] = x[at] * sigmoid(x[at]);
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// y = a + b.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint D; };

layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer Other { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint stream = gl_GlobalInvocationID.y;
    if (d >= D || stream >= B) return;
    uint at = stream * pitch(D) + d;
    y[at] = a[at] + b[at];
}

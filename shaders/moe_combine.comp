#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// out[b, d] = sum over s of weight[b, s] * y[b, s, d].

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint S; uint D; };

layout(binding = 0) readonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
layout(binding = 2) writeonly buffer Out { float combined[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    float sum = 0.0;
    for (uint s = 0u; s < S; ++s) sum += weight[b * pitch(S) + s] * y[(b * S + s) * pitch(D) + d];
    combined[b * pitch(D) + d] = sum;
}

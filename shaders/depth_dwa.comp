#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// Depth-weighted average: source `at` becomes h + v, and y is the weighted sum of sources 0 to `at`.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint J; uint D; float at; };

layout(binding = 0) readonly buffer V { float v[]; };
layout(binding = 1) readonly buffer H { float h[]; };
layout(binding = 2) readonly buffer Alpha { float alpha[]; };
layout(binding = 3) buffer Sources { float sources[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    uint last = uint(at);
    uint row = b * J * pitch(D) + d;
    float now = h[b * pitch(D) + d] + v[b * pitch(D) + d];
    sources[row + last * pitch(D)] = now;
    float sum = alpha[last] * now;
    for (uint j = 0u; j < last; ++j) sum += alpha[j] * sources[row + j * pitch(D)];
    y[b * pitch(D) + d] = sum;
}

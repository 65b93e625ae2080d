#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"

// y[r] = w patches[b, position[r]] + bias + places[position[r]], b = r mod B; a position past the last reads the last. An
// invocation computes one channel of one row.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint R; uint B; uint P; uint K; uint D; };

layout(binding = 0) readonly buffer Patches { vec4 patches[]; };
layout(binding = 1) readonly buffer Position { uint position[]; };
layout(binding = 2) readonly buffer W { WEIGHT4 w[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) readonly buffer Places { float places[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint r = gl_GlobalInvocationID.y;
    if (d >= D || r >= R) return;
    uint row = pitch4(K);
    uint whole = K >> 2;
    uint tail = K & 3u;
    uint p = min(position[r], P - 1u);
    uint patch_row = (r % B * P + p) * row;
    float sum = 0.0;
    for (uint k = 0u; k < whole; ++k) sum = accumulated(sum, dot(unpacked(w[d * row + k]), patches[patch_row + k]));
    if (tail > 0u) {
        vec4 weight = head(unpacked(w[d * row + whole]), tail);
        sum = accumulated(sum, dot(weight, head(patches[patch_row + whole], tail)));
    }
    y[r * pitch(D) + d] = sum + bias[d] + places[p * pitch(D) + d];
}

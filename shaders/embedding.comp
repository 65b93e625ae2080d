#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"

// y[b] = table[ids[b]]; an id past the table reads its last row, never other memory.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint V; uint D; };

layout(binding = 0) readonly buffer Ids { uint ids[]; };
layout(binding = 1) readonly buffer Table { WEIGHT4 table[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
    uint d = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (d >= D || b >= B) return;
    uint row = min(ids[b], V - 1u);
    y[b * pitch(D) + d] = unpacked(table[row * pitch4(D) + (d >> 2)])[d & 3u];
}

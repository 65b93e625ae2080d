#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "philox.glsl"
#include "lanes.glsl"
#include "best.glsl"

// The next token of each stream, as sample draws it, and y = table[token]: sample and embedding in one dispatch. One
// workgroup a stream.

layout(push_constant) uniform Sizes { uint B; uint V; uint M; uint D; };

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Seed { uint seed[]; };
layout(binding = 2) readonly buffer Stream { uint stream[]; };
layout(binding = 3) readonly buffer Temperature { float temperature[]; };
layout(binding = 4) readonly buffer TopK { uint top_k[]; };
layout(binding = 5) readonly buffer Mode { uint mode[]; };
layout(binding = 6) readonly buffer Table { WEIGHT4 table[]; };
layout(binding = 7) buffer Token { uint token[]; };
layout(binding = 8) buffer Position { uint position[]; };
layout(binding = 9) buffer History { uint history[]; };
layout(binding = 10) writeonly buffer Y { float y[]; };

#include "draw.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint row = min(drawn_token(b), V - 1u) * pitch4(D);
    for (uint d = gl_LocalInvocationID.x; d < D; d += LANES) {
        y[b * pitch(D) + d] = unpacked(table[row + (d >> 2)])[d & 3u];
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// Put the keys and values of a sequence's steps into each stream's rings, the last W of them, and count as ring_write.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint R; uint B; uint W; uint C; };

layout(binding = 0) readonly buffer K { float k[]; };
layout(binding = 1) readonly buffer V { float v[]; };
layout(binding = 2) readonly buffer T { uint t[]; };
layout(binding = 3) readonly buffer Mode { uint mode[]; };
layout(binding = 4) readonly buffer Lengths { uint lengths[]; };
layout(binding = 5) buffer KRing { float k_ring[]; };
layout(binding = 6) buffer VRing { float v_ring[]; };
layout(binding = 7) writeonly buffer Next { uint t_next[]; };

void main() {
    uint c = gl_GlobalInvocationID.x;
    uint row = gl_GlobalInvocationID.y;
    if (c >= C || row >= R) return;
    uint b = row % B;
    uint now = row / B;
    // A stream that reads nothing does not restart either.
    uint steps = rows_read(mode[b], lengths[b], R / B);
    uint before = mode[b] == RESTART && steps > 0u ? 0u : t[b];
    if (now < steps && steps - now <= W) {
        uint at = (b * W + (before % W + now) % W) * pitch(C) + c;
        k_ring[at] = k[row * pitch(C) + c];
        v_ring[at] = v[row * pitch(C) + c];
    }
    uint count = before + steps;
    if (c == 0u && now == 0u) t_next[b] = count < 2u * W ? count : W + count % W;
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// Put this step's key and value into the slot t mod W of each stream's rings, and count. The count stays below 2W: from
// W on only its remainder matters, so it never overflows however long a stream runs.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint W; uint C; };

layout(binding = 0) readonly buffer K { float k[]; };
layout(binding = 1) readonly buffer V { float v[]; };
layout(binding = 2) readonly buffer T { uint t[]; };
layout(binding = 3) readonly buffer Mode { uint mode[]; };
layout(binding = 4) buffer KRing { float k_ring[]; };
layout(binding = 5) buffer VRing { float v_ring[]; };
layout(binding = 6) writeonly buffer Next { uint t_next[]; };

void main() {
    uint c = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (c >= C || b >= B) return;
    uint count = mode[b] == RESTART ? 0u : t[b];
    if (mode[b] != HOLD) {
        uint at = (b * W + count % W) * pitch(C) + c;
        k_ring[at] = k[b * pitch(C) + c];
        v_ring[at] = v[b * pitch(C) + c];
        count = count + 1u < 2u * W ? count + 1u : W;
    }
    if (c == 0u) t_next[b] = count;
}

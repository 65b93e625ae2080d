#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#define ONE_STREAM
#include "tiling.glsl"
#include "workgroup.glsl"

// ring_attention of every step of a sequence: over the sequence's own keys and values up to that step, and before them
// the ring's, as it was before the sequence. One workgroup a row and head.

layout(push_constant) uniform Sizes { uint R; uint B; uint W; uint C; uint Q; uint N; };

layout(binding = 0) readonly buffer Query { vec4 q[]; };
layout(binding = 1) readonly buffer K { vec4 k[]; };
layout(binding = 2) readonly buffer V { vec4 v[]; };
layout(binding = 3) readonly buffer T { uint t[]; };
layout(binding = 4) readonly buffer Mode { uint mode[]; };
layout(binding = 5) readonly buffer Lengths { uint lengths[]; };
layout(binding = 6) readonly buffer Slopes { float slopes[]; };
layout(binding = 7) readonly buffer KRing { vec4 k_ring[]; };
layout(binding = 8) readonly buffer VRing { vec4 v_ring[]; };
layout(binding = 9) writeonly buffer Out { float o[]; };

uint row = gl_WorkGroupID.x;
uint head_index = gl_WorkGroupID.y;
uint b;       // the stream
uint now;     // the step of the sequence
uint d;       // numbers of a head
uint group;   // its key and value head
uint before;  // steps before the sequence
uint newest;  // the slot of the last of these

#define SETTLED 6u
#include "settled.glsl"

void find_place() {
    uint steps = mode[row % B] == RESTART ? 0u : t[row % B];
    uint found[] = {row % B, row / B, Q / N, head_index / (N / (C / (Q / N))), steps, (steps + W - 1u) % W};
    settle(found);
    b = found[0];
    now = found[1];
    d = found[2];
    group = found[3];
    before = found[4];
    newest = found[5];
}

// Entries of the ring are told from the sequence's by this bit; a buffer has fewer numbers.
const uint OF_RING = 0x80000000u;

uint entry(uint age) {
    if (age <= now) return (row - age * B) * pitch(C) + group * d;
    uint back = age - now - 1u;
    uint slot = newest >= back ? newest - back : newest + W - back;
    return OF_RING | ((b * W + slot) * pitch(C) + group * d);
}

vec4 key4(uint at) { return at >= OF_RING ? k_ring[(at ^ OF_RING) >> 2] : k[at >> 2]; }

vec4 past4(uint at) { return at >= OF_RING ? v_ring[(at ^ OF_RING) >> 2] : v[at >> 2]; }

uint query_at() { return row * pitch(Q) + head_index * d; }

#define QUERY(i) q[(query_at() + i) >> 2][(query_at() + i) & 3u]
#define QUERY4(i) q[(query_at() + i) >> 2]
#define ENTRY(age) entry(age)
#define KEY4(at) key4(at)
#define PAST4(at) past4(at)
#include "attend.glsl"

void main() {
    find_place();
    attend_nothing(d);
    uint count = is_read(mode[b], now, lengths[b]) ? min(min(before, W) + now + 1u, W) : 0u;
    attend(0u, count, d, slopes[head_index]);
    for (uint i = gl_LocalInvocationID.x; i < d; i += LANES) o[query_at() + i] = answer(i);
}

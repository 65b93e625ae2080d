#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#define ONE_STREAM
#include "tiling.glsl"
#include "workgroup.glsl"

// o = softmax(q . k / sqrt(d) - slope * age) v over the last min(t, W) entries of a ring, t counting the newest. One
// workgroup a stream and head. Heads of q share a key and value head in groups.

layout(push_constant) uniform Sizes { uint B; uint W; uint C; uint Q; uint N; };

layout(binding = 0) readonly buffer Query { vec4 q[]; };
layout(binding = 1) readonly buffer KRing { vec4 k_ring[]; };
layout(binding = 2) readonly buffer VRing { vec4 v_ring[]; };
layout(binding = 3) readonly buffer T { uint t[]; };
layout(binding = 4) readonly buffer Slopes { float slopes[]; };
layout(binding = 5) writeonly buffer Out { float o[]; };

uint b = gl_WorkGroupID.x;
uint head_index = gl_WorkGroupID.y;
uint d;       // numbers of a head
uint group;   // its key and value head
uint newest;  // the slot of age 0

#define SETTLED 3u
#include "settled.glsl"

void find_place() {
    uint found[] = {Q / N, head_index / (N / (C / (Q / N))), (t[b] + W - 1u) % W};
    settle(found);
    d = found[0];
    group = found[1];
    newest = found[2];
}

uint entry(uint age) {
    uint slot = newest >= age ? newest - age : newest + W - age;
    return (b * W + slot) * pitch(C) + group * d;
}

uint query_at() { return b * pitch(Q) + head_index * d; }

#define QUERY(i) q[(query_at() + i) >> 2][(query_at() + i) & 3u]
#define QUERY4(i) q[(query_at() + i) >> 2]
#define ENTRY(age) entry(age)
#define KEY4(at) k_ring[(at) >> 2]
#define PAST4(at) v_ring[(at) >> 2]
#include "attend.glsl"

void main() {
    find_place();
    attend_nothing(d);
    // A stream that has not begun has an empty ring and the answer zero.
    attend(0u, min(t[b], W), d, slopes[head_index]);
    for (uint i = gl_LocalInvocationID.x; i < d; i += LANES) o[query_at() + i] = answer(i);
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// Query, key and value of rms_norm(x), the last two into the rings, and attention over these: rms_norm, linear thrice,
// ring_write and ring_attention in one dispatch. One workgroup a stream and group of heads; its queries, key and value
// stay in shared memory, where they are as long as they are young.

layout(local_size_x = 64) in;
#include "workgroup.glsl"

layout(push_constant) uniform Sizes { uint B; uint D; uint W; uint C; uint Q; uint N; float eps; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Gain { vec4 gain[]; };
layout(binding = 2) readonly buffer WQ { WEIGHT4 w_q[]; };
layout(binding = 3) readonly buffer WK { WEIGHT4 w_k[]; };
layout(binding = 4) readonly buffer WV { WEIGHT4 w_v[]; };
layout(binding = 5) readonly buffer T { uint t[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) readonly buffer Slopes { float slopes[]; };
layout(binding = 8) buffer KRing { float k_ring[]; };
layout(binding = 9) buffer VRing { float v_ring[]; };
layout(binding = 10) writeonly buffer Out { float o[]; };
layout(binding = 11) writeonly buffer Next { uint t_next[]; };

const uint MOST = 2048u;
shared float vectors[MOST];

uint b = gl_WorkGroupID.x;
uint group = gl_WorkGroupID.y;
uint d = Q / N;
uint heads = N / (C / d);
bool held = mode[b] == HOLD;

// A pass computes ROWS rows a lane, from first_row on, for one stream.
const uint TILE = 1u;
const uint SPLIT = 1u;
const uint ROWS = 4u;
uint first_row;
vec4 sums[ROWS];

uint part() { return 0u; }

#define VALUE_OF_X(k, n) head(x[b * pitch4(D) + k], n) * head(gain[k], n)

#define PRODUCT add_queries
#define MATRIX w_q
#define COUNT ROWS
#define ROW(r) min(group * heads * d + first_row + r, Q - 1u)
#define VALUE(t, k, n) VALUE_OF_X(k, n)
#define SUM(r, t) sums[r]
#include "product.glsl"

#define PRODUCT add_keys
#define MATRIX w_k
#define COUNT ROWS
#define ROW(r) min(group * d + first_row + r, C - 1u)
#define VALUE(t, k, n) VALUE_OF_X(k, n)
#define SUM(r, t) sums[r]
#include "product.glsl"

#define PRODUCT add_values
#define MATRIX w_v
#define COUNT ROWS
#define ROW(r) min(group * d + first_row + r, C - 1u)
#define VALUE(t, k, n) VALUE_OF_X(k, n)
#define SUM(r, t) sums[r]
#include "product.glsl"

float norm_scale() {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < D; i += gl_WorkGroupSize.x) {
        float value = x[b * pitch4(D) + (i >> 2)][i & 3u];
        sum += value * value;
    }
    return 1.0 / sqrt(workgroup_sum(sum) / float(D) + eps);
}

void keep(uint at, uint count, float scale) {
    for (uint r = 0u; r < ROWS; ++r) {
        if (first_row + r < count) vectors[at + first_row + r] = scale * sum4(sums[r]);
        sums[r] = vec4(0.0);
    }
}

// Queries of the group's heads, its key and its value, one behind the other.
void compute_vectors() {
    float scale = norm_scale();
    uint width = heads * d;
    for (uint r = 0u; r < ROWS; ++r) sums[r] = vec4(0.0);
    for (uint pass = 0u; pass < width; pass += gl_WorkGroupSize.x * ROWS) {
        first_row = pass + gl_LocalInvocationID.x * ROWS;
        add_queries(first_row < width ? D : 0u);
        keep(0u, width, scale);
    }
    for (uint pass = 0u; pass < d; pass += gl_WorkGroupSize.x * ROWS) {
        first_row = pass + gl_LocalInvocationID.x * ROWS;
        add_keys(first_row < d ? D : 0u);
        keep(width, d, scale);
        add_values(first_row < d ? D : 0u);
        keep(width + d, d, scale);
    }
    barrier();
}

uint before;  // steps in the ring before this one
uint head_at; // where the head's query lies in `vectors`

uint entry(uint slot) { return (b * W + slot) * pitch(C) + group * d; }

// The slot of an age; a held stream's newest entry is the one before this step.
uint slot(uint age) { return (before + (held ? 2u * W - 1u : W) - age) % W; }

bool young(uint age) { return !held && age == 0u; }

#define QUERY(i) vectors[head_at + i]
#define KEY(age, i) (young(age) ? vectors[heads * d + i] : k_ring[entry(slot(age)) + i])
#define PAST(age, i) (young(age) ? vectors[(heads + 1u) * d + i] : v_ring[entry(slot(age)) + i])
#include "attend.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x;
    compute_vectors();
    before = mode[b] == RESTART ? 0u : t[b];
    uint after = held ? before : before + 1u < 2u * W ? before + 1u : W;
    for (uint i_head = 0u; i_head < heads; ++i_head) {
        head_at = i_head * d;
        attend(min(after, W), d, slopes[group * heads + i_head]);
        for (uint i = lane; i < d; i += LANES) o[b * pitch(Q) + (group * heads + i_head) * d + i] = answers[i];
    }
    for (uint i = lane; i < d && !held; i += LANES) {
        k_ring[entry(before % W) + i] = vectors[heads * d + i];
        v_ring[entry(before % W) + i] = vectors[(heads + 1u) * d + i];
    }
    if (lane == 0u && group == 0u) t_next[b] = after;
}

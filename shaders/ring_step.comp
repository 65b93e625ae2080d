#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#define ONE_STREAM
#include "tiling.glsl"
#include "workgroup.glsl"

// Query, key and value of rms_norm(x), the last two into the rings, and attention over these: rms_norm, linear thrice,
// ring_write and ring_attention in one dispatch. One workgroup a stream and group of heads; its queries, key and value
// stay in shared memory, where they are as long as they are young.

layout(push_constant) uniform Sizes { uint B; uint D; uint W; uint C; uint Q; uint N; float eps; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Gain { vec4 gain[]; };
layout(binding = 2) readonly buffer WQ { WEIGHT4 w_q[]; };
layout(binding = 3) readonly buffer WK { WEIGHT4 w_k[]; };
layout(binding = 4) readonly buffer WV { WEIGHT4 w_v[]; };
layout(binding = 5) readonly buffer T { uint t[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) readonly buffer Slopes { float slopes[]; };
layout(binding = 8) buffer KRing { vec4 k_ring[]; };
layout(binding = 9) buffer VRing { vec4 v_ring[]; };
layout(binding = 10) writeonly buffer Out { float o[]; };
layout(binding = 11) writeonly buffer Next { uint t_next[]; };

const uint MOST = 2048u;
shared float vectors[MOST];

uint b = gl_WorkGroupID.x;
uint group = gl_WorkGroupID.y;
uint d = Q / N;
uint heads = N / (C / d);
bool held = mode[b] == HOLD;

// A pass computes ROWS rows for each SPLIT lanes, from first_row on.
uint first_row;
float sums[ROWS];

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

#define PRODUCT add_values_of_x
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

// What a lane's rows gave, to `vectors` from `at` on, of which there are `count`.
void keep(uint at, uint count, float scale) {
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        float sum = across(sums[r]);
        if (part() == 0u && first_row + r < count) vectors[at + first_row + r] = scale * sum;
        sums[r] = 0.0;
    }
}

// Queries of the group's heads, its key and its value, one behind the other.
void compute_vectors() {
    float scale = norm_scale();
    uint width = heads * d;
    uint rows = gl_WorkGroupSize.x / SPLIT * ROWS;
    uint own = gl_LocalInvocationID.x / SPLIT * ROWS;
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] = 0.0;
    for (uint pass = 0u; pass < width; pass += rows) {
        first_row = pass + own;
        add_queries(first_row < width ? D : 0u);
        keep(0u, width, scale);
    }
    for (uint pass = 0u; pass < d; pass += rows) {
        first_row = pass + own;
        add_keys(first_row < d ? D : 0u);
        keep(width, d, scale);
        add_values_of_x(first_row < d ? D : 0u);
        keep(width + d, d, scale);
    }
    barrier();
}

uint newest;   // the slot of the step before this one, of age 1; of a held stream of age 0
uint head_at;  // where the head's query lies in `vectors`

uint entry_of(uint slot) { return (b * W + slot) * pitch(C) + group * d; }

uint entry(uint age) {
    uint back = held ? age : age - 1u;
    return entry_of(newest >= back ? newest - back : newest + W - back);
}

#define QUERY(i) vectors[head_at + i]

vec4 query4(uint i) { return vec4(QUERY(i), QUERY(i + 1u), QUERY(i + 2u), QUERY(i + 3u)); }

#define QUERY4(i) query4(i)
#define ENTRY(age) entry(age)
#define KEY4(at) k_ring[(at) >> 2]
#define PAST4(at) v_ring[(at) >> 2]
#include "attend.glsl"

// Takes in the step's own key and value, of age 0.
void attend_own() {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < d; i += LANES) sum += vectors[head_at + i] * vectors[heads * d + i];
    float score = workgroup_sum(sum) / sqrt(float(d));
    greatest = max(score, NO_SCORE);
    total = exp_or_nan(score - greatest);
    for (uint i = gl_LocalInvocationID.x; i < d; i += LANES) answers[i] = total * vectors[(heads + 1u) * d + i];
}

void main() {
    uint lane = gl_LocalInvocationID.x;
    compute_vectors();
    uint before = mode[b] == RESTART ? 0u : t[b];
    uint after = held ? before : before + 1u < 2u * W ? before + 1u : W;
    newest = (before + W - 1u) % W;
    for (uint i_head = 0u; i_head < heads; ++i_head) {
        head_at = i_head * d;
        if (held) attend_nothing(d);
        else attend_own();
        attend(held ? 0u : 1u, min(after, W), d, slopes[group * heads + i_head]);
        for (uint i = lane; i < d; i += LANES) o[b * pitch(Q) + (group * heads + i_head) * d + i] = answer(i);
    }
    for (uint i = lane; i < d && !held; i += LANES) {
        uint at = entry_of(before % W) + i;
        k_ring[at >> 2][at & 3u] = vectors[heads * d + i];
        v_ring[at >> 2][at & 3u] = vectors[(heads + 1u) * d + i];
    }
    if (lane == 0u && group == 0u) t_next[b] = after;
}

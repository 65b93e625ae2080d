#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "tiling.glsl"
#include "normed.glsl"

// Query, key and value of rms_norm(x): rms_norm and linear thrice in one dispatch. A workgroup's z says which of them it
// computes.

layout(push_constant) uniform Sizes { uint B; uint D; uint Q; uint C; float eps; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Gain { vec4 gain[]; };
layout(binding = 2) readonly buffer WQ { WEIGHT4 w_q[]; };
layout(binding = 3) readonly buffer WK { WEIGHT4 w_k[]; };
layout(binding = 4) readonly buffer WV { WEIGHT4 w_v[]; };
layout(binding = 5) writeonly buffer Query { float q[]; };
layout(binding = 6) writeonly buffer Key { float k[]; };
layout(binding = 7) writeonly buffer Value { float v[]; };

uint which = gl_WorkGroupID.z;
uint N = which == 0u ? Q : C;
float sums[ROWS * TILE];

#define NORMED(t, k, n) weighed(t, head(x[stream(t, B) * pitch4(D) + k], n), head(gain[k], n))

#define PRODUCT add_queries
#define MATRIX w_q
#define COUNT ROWS
#define ROW(r) min(first_output() + r, Q - 1u)
#define VALUE(t, k, n) NORMED(t, k, n)
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

#define PRODUCT add_keys
#define MATRIX w_k
#define COUNT ROWS
#define ROW(r) min(first_output() + r, C - 1u)
#define VALUE(t, k, n) NORMED(t, k, n)
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

#define PRODUCT add_values
#define MATRIX w_v
#define COUNT ROWS
#define ROW(r) min(first_output() + r, C - 1u)
#define VALUE(t, k, n) NORMED(t, k, n)
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

void write(uint at, float sum) {
    if (which == 0u) q[at] = sum;
    else if (which == 1u) k[at] = sum;
    else v[at] = sum;
}

void main() {
    clear_squares();
    [[unroll]] for (uint i = 0u; i < ROWS * TILE; ++i) sums[i] = 0.0;
    uint width = first_output() < N ? D : 0u;
    if (which == 0u) add_queries(width);
    else if (which == 1u) add_keys(width);
    else add_values(width);
    [[unroll]] for (uint t = 0u; t < TILE; ++t) {
        float scale = norm_scale(t, D, eps);
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
            float sum = across(sums[r * TILE + t]);
            if (writes(r, N, t, B)) write(stream(t, B) * pitch(N) + first_output() + r, scale * sum);
        }
    }
}

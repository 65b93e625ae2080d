#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "tiling.glsl"
#include "normed.glsl"

// hidden = gated(W_gate rms_norm(x), W_up rms_norm(x)): rms_norm and mlp in one dispatch.

layout(push_constant) uniform Sizes { uint B; uint D; uint M; float eps; float situ; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Gain { vec4 gain[]; };
layout(binding = 2) readonly buffer WIn { WEIGHT4 w_in[]; };
layout(binding = 3) writeonly buffer Hidden { float hidden[]; };

float sums[2u * ROWS * TILE];

// Gate rows, then up rows.
#define PRODUCT add_products
#define MATRIX w_in
#define COUNT 2u * ROWS
#define ROW(r) (r / ROWS) * M + min(first_output() + r % ROWS, M - 1u)
#define VALUE(t, k, n) weighed(t, head(x[stream(t, B) * pitch4(D) + k], n), head(gain[k], n))
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

void main() {
    clear_squares();
    [[unroll]] for (uint i = 0u; i < 2u * ROWS * TILE; ++i) sums[i] = 0.0;
    add_products(first_output() < M ? D : 0u);
    [[unroll]] for (uint t = 0u; t < TILE; ++t) {
        float scale = norm_scale(t, D, eps);
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
            float gate = scale * across(sums[r * TILE + t]);
            float up = scale * across(sums[(ROWS + r) * TILE + t]);
            uint m = first_output() + r;
            if (writes(r, M, t, B)) hidden[stream(t, B) * pitch(M) + m] = gated(gate, up, situ != 0.0);
        }
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "tiling.glsl"

// y[b, n] = sum_k w[n, k] x[b, k] + bias[n].

layout(push_constant) uniform Sizes { uint B; uint N; uint K; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer W { WEIGHT4 w[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };

float sums[ROWS * TILE];

#define PRODUCT add_products
#define MATRIX w
#define COUNT ROWS
#define ROW(r) min(first_output() + r, N - 1u)
#define VALUE(t, k, n) head(x[stream(t, B) * pitch4(K) + k], n)
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

void main() {
    [[unroll]] for (uint i = 0u; i < ROWS * TILE; ++i) sums[i] = 0.0;
    add_products(first_output() < N ? K : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        uint n = first_output() + r;
        [[unroll]] for (uint t = 0u; t < TILE; ++t) {
            float sum = across(sums[r * TILE + t]);
            if (writes(r, N, t, B)) y[stream(t, B) * pitch(N) + n] = sum + bias[n];
        }
    }
}

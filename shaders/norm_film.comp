#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "tiling.glsl"
#include "workgroup.glsl"

// y = rms_norm(x) * (1 + gamma) + beta with (gamma, beta) = W c + bias: rms_norm, linear and modulation in one dispatch.

layout(push_constant) uniform Sizes { uint B; uint D; uint K; float eps; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Gain { float gain[]; };
layout(binding = 2) readonly buffer C { vec4 c[]; };
layout(binding = 3) readonly buffer W { WEIGHT4 w[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };

float sums[2u * ROWS * TILE];

// Rows of gamma, then of beta.
#define PRODUCT add_products
#define MATRIX w
#define COUNT 2u * ROWS
#define ROW(r) (r / ROWS) * D + min(first_output() + r % ROWS, D - 1u)
#define VALUE(t, k, n) head(c[stream(t, B) * pitch4(K) + k], n)
#define SUM(r, t) sums[r * TILE + t]
#include "product.glsl"

// Each stream's scale of the norm. As the product is not of x, the workgroup's lanes share its squares; first of all, or
// the product's sums would have to be kept across the barriers.
void find_scales(out float scales[TILE]) {
    [[unroll]] for (uint t = 0u; t < TILE; ++t) {
        float sum = 0.0;
        for (uint d = gl_LocalInvocationID.x; d < D; d += gl_WorkGroupSize.x) {
            float value = x[stream(t, B) * pitch(D) + d];
            sum += value * value;
        }
        scales[t] = 1.0 / sqrt(workgroup_sum(sum) / float(D) + eps);
    }
}

void main() {
    float scales[TILE];
    find_scales(scales);
    [[unroll]] for (uint i = 0u; i < 2u * ROWS * TILE; ++i) sums[i] = 0.0;
    add_products(first_output() < D ? K : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        uint d = min(first_output() + r, D - 1u);
        vec3 constants = vec3(gain[d], bias[d], bias[D + d]);
        [[unroll]] for (uint t = 0u; t < TILE; ++t) {
            float gamma = across(sums[r * TILE + t]) + constants.y;
            float beta = across(sums[(ROWS + r) * TILE + t]) + constants.z;
            if (writes(r, D, t, B)) {
                float normed = x[stream(t, B) * pitch(D) + d] * scales[t] * constants.x;
                y[stream(t, B) * pitch(D) + d] = normed * (1.0 + gamma) + beta;
            }
        }
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#define ONE_STREAM
#include "tiling.glsl"

// Gated MLP of every chosen expert of every stream: y = W_out (act(W_gate x) * (W_up x)). One workgroup a stream and
// choice, ROWS outputs of an invocation at a time; the hidden vector stays in shared memory. Only chosen experts' weights
// are read.

layout(push_constant) uniform Sizes { uint B; uint S; uint E; uint D; uint M; float situ; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Index { uint index[]; };
layout(binding = 2) readonly buffer WIn { WEIGHT4 w_in[]; };
layout(binding = 3) readonly buffer WOut { WEIGHT4 w_out[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

const uint LANES = gl_WorkGroupSize.x;
const uint WIDEST = 2048u;

shared float hidden[WIDEST];

uint b = gl_WorkGroupID.x;
uint expert;
uint first;  // of this invocation's outputs in a pass
float sums[2u * ROWS];

// Gate rows, then up rows.
#define PRODUCT add_hidden_products
#define MATRIX w_in
#define COUNT 2u * ROWS
#define ROW(r) (2u * expert + (r / ROWS)) * M + min(first + r % ROWS, M - 1u)
#define VALUE(t, k, n) head(x[b * pitch4(D) + k], n)
#define SUM(r, t) sums[r]
#include "product.glsl"

#define PRODUCT add_output_products
#define MATRIX w_out
#define COUNT ROWS
#define ROW(r) expert * D + min(first + r, D - 1u)
#define VALUE(t, k, n) head(FOUR_OF(hidden, 4u * k), n)
#define SUM(r, t) sums[r]
#include "product.glsl"

void clear_sums() {
    [[unroll]] for (uint i = 0u; i < 2u * ROWS; ++i) sums[i] = 0.0;
}

void make_hidden() {
    clear_sums();
    add_hidden_products(first < M ? D : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        float gate = across(sums[r]);
        float up = across(sums[ROWS + r]);
        if (part() == 0u && first + r < M) hidden[first + r] = gated(gate, up, situ != 0.0);
    }
}

void write_outputs(uint at) {
    clear_sums();
    add_output_products(first < D ? M : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        float sum = across(sums[r]);
        if (part() == 0u && first + r < D) y[at + first + r] = sum;
    }
}

void main() {
    uint s = gl_WorkGroupID.y;
    uint own = gl_LocalInvocationID.x / SPLIT * ROWS;
    uint of_pass = LANES / SPLIT * ROWS;
    expert = min(index[b * pitch(S) + s], E - 1u);
    for (uint pass = 0u; pass < M; pass += of_pass) {
        first = pass + own;
        make_hidden();
    }
    barrier();
    for (uint pass = 0u; pass < D; pass += of_pass) {
        first = pass + own;
        write_outputs((b * S + s) * pitch(D));
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// Second half of a GRU step with the reset before the product (ONNX default): the candidate n from x and r * h, and
// the update. An invocation computes one hidden unit of one stream; gru_gates goes before.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint I; uint H; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer State { vec4 h[]; };
layout(binding = 2) readonly buffer Z { float z[]; };
layout(binding = 3) readonly buffer Rh { vec4 rh[]; };
layout(binding = 4) readonly buffer WIh { WEIGHT4 w_ih[]; };
layout(binding = 5) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 6) readonly buffer BIh { float b_ih[]; };
layout(binding = 7) readonly buffer BHh { float b_hh[]; };
layout(binding = 8) readonly buffer Mode { uint mode[]; };
layout(binding = 9) writeonly buffer Next { float h_next[]; };

float sum = 0.0;

void main() {
    uint j = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (j >= H || b >= B) return;
    uint n_row = 2u * H + j;

    uint row = pitch4(I);
    uint whole = I >> 2;
    uint tail = I & 3u;
    for (uint k = 0u; k < whole; ++k) sum = accumulated(sum, dot(unpacked(w_ih[n_row * row + k]), x[b * row + k]));
    if (tail > 0u) {
        vec4 weight = head(unpacked(w_ih[n_row * row + whole]), tail);
        sum = accumulated(sum, dot(weight, head(x[b * row + whole], tail)));
    }

    row = pitch4(H);
    whole = H >> 2;
    tail = H & 3u;
    for (uint k = 0u; k < whole; ++k) sum = accumulated(sum, dot(unpacked(w_hh[n_row * row + k]), rh[b * row + k]));
    if (tail > 0u) {
        vec4 weight = head(unpacked(w_hh[n_row * row + whole]), tail);
        sum = accumulated(sum, dot(weight, head(rh[b * row + whole], tail)));
    }

    float n = tanh_exp(sum + b_ih[n_row] + b_hh[n_row]);
    float before = mode[b] == RESTART ? 0.0 : h[b * row + (j >> 2)][j & 3u];
    float update = z[b * pitch(H) + j];
    float after = (1.0 - update) * n + update * before;
    h_next[b * pitch(H) + j] = mode[b] == HOLD ? before : after;
}

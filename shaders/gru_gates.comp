#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// First half of a GRU step with the reset before the product (ONNX default): z and r * h. An invocation computes one
// hidden unit of one stream; gru_candidate follows.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint I; uint H; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer State { vec4 h[]; };
layout(binding = 2) readonly buffer WIh { WEIGHT4 w_ih[]; };
layout(binding = 3) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 4) readonly buffer BIh { float b_ih[]; };
layout(binding = 5) readonly buffer BHh { float b_hh[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) writeonly buffer Z { float z[]; };
layout(binding = 8) writeonly buffer Rh { float rh[]; };

float sum_r = 0.0;
float sum_z = 0.0;

void main() {
    uint j = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (j >= H || b >= B) return;

    uint row = pitch4(I);
    uint whole = I >> 2;
    uint tail = I & 3u;
    for (uint k = 0u; k < whole; ++k) {
        vec4 v = x[b * row + k];
        sum_r = accumulated(sum_r, dot(unpacked(w_ih[j * row + k]), v));
        sum_z = accumulated(sum_z, dot(unpacked(w_ih[(H + j) * row + k]), v));
    }
    if (tail > 0u) {
        vec4 v = head(x[b * row + whole], tail);
        sum_r = accumulated(sum_r, dot(head(unpacked(w_ih[j * row + whole]), tail), v));
        sum_z = accumulated(sum_z, dot(head(unpacked(w_ih[(H + j) * row + whole]), tail), v));
    }

    bool fresh = mode[b] == RESTART;
    row = pitch4(H);
    whole = H >> 2;
    tail = H & 3u;
    if (!fresh) {
        for (uint k = 0u; k < whole; ++k) {
            vec4 v = h[b * row + k];
            sum_r = accumulated(sum_r, dot(unpacked(w_hh[j * row + k]), v));
            sum_z = accumulated(sum_z, dot(unpacked(w_hh[(H + j) * row + k]), v));
        }
        if (tail > 0u) {
            vec4 v = head(h[b * row + whole], tail);
            sum_r = accumulated(sum_r, dot(head(unpacked(w_hh[j * row + whole]), tail), v));
            sum_z = accumulated(sum_z, dot(head(unpacked(w_hh[(H + j) * row + whole]), tail), v));
        }
    }

    float r = sigmoid(sum_r + b_ih[j] + b_hh[j]);
    float before = fresh ? 0.0 : h[b * row + (j >> 2)][j & 3u];
    z[b * pitch(H) + j] = sigmoid(sum_z + b_ih[H + j] + b_hh[H + j]);
    rh[b * pitch(H) + j] = r * before;
}

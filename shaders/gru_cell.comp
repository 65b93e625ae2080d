#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// One GRU step, reset after the product (torch, cuDNN): both products, the gates and the update in one dispatch.
// An invocation computes one hidden unit j for TILE streams, so that each weight is loaded once for all of them.

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint TILE = 1u;

layout(push_constant) uniform Sizes { uint B; uint I; uint H; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer State { vec4 h[]; };
layout(binding = 2) readonly buffer WIh { WEIGHT4 w_ih[]; };
layout(binding = 3) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 4) readonly buffer BIh { float b_ih[]; };
layout(binding = 5) readonly buffer BHh { float b_hh[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) writeonly buffer Next { float h_next[]; };

vec4 sum_r[TILE];
vec4 sum_z[TILE];
vec4 sum_in[TILE];
vec4 sum_hn[TILE];
uint stream[TILE];
bool fresh[TILE];

vec4 state(uint t, uint k) { return fresh[t] ? vec4(0.0) : h[stream[t] * pitch4(H) + k]; }

void input_products(uint j) {
    uint row = pitch4(I);
    uint whole = I >> 2;
    uint tail = I & 3u;
    uint r = j * row;
    uint z = (H + j) * row;
    uint n = (2u * H + j) * row;
    for (uint k = 0u; k < whole; ++k) {
        vec4 wr = unpacked(w_ih[r + k]);
        vec4 wz = unpacked(w_ih[z + k]);
        vec4 wn = unpacked(w_ih[n + k]);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = x[stream[t] * row + k];
            sum_r[t] = accumulated(sum_r[t], wr * v);
            sum_z[t] = accumulated(sum_z[t], wz * v);
            sum_in[t] = accumulated(sum_in[t], wn * v);
        }
    }
    if (tail > 0u) {
        vec4 wr = head(unpacked(w_ih[r + whole]), tail);
        vec4 wz = head(unpacked(w_ih[z + whole]), tail);
        vec4 wn = head(unpacked(w_ih[n + whole]), tail);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = head(x[stream[t] * row + whole], tail);
            sum_r[t] = accumulated(sum_r[t], wr * v);
            sum_z[t] = accumulated(sum_z[t], wz * v);
            sum_in[t] = accumulated(sum_in[t], wn * v);
        }
    }
}

void state_products(uint j) {
    uint row = pitch4(H);
    uint whole = H >> 2;
    uint tail = H & 3u;
    uint r = j * row;
    uint z = (H + j) * row;
    uint n = (2u * H + j) * row;
    for (uint k = 0u; k < whole; ++k) {
        vec4 wr = unpacked(w_hh[r + k]);
        vec4 wz = unpacked(w_hh[z + k]);
        vec4 wn = unpacked(w_hh[n + k]);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = state(t, k);
            sum_r[t] = accumulated(sum_r[t], wr * v);
            sum_z[t] = accumulated(sum_z[t], wz * v);
            sum_hn[t] = accumulated(sum_hn[t], wn * v);
        }
    }
    if (tail > 0u) {
        vec4 wr = head(unpacked(w_hh[r + whole]), tail);
        vec4 wz = head(unpacked(w_hh[z + whole]), tail);
        vec4 wn = head(unpacked(w_hh[n + whole]), tail);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = head(state(t, whole), tail);
            sum_r[t] = accumulated(sum_r[t], wr * v);
            sum_z[t] = accumulated(sum_z[t], wz * v);
            sum_hn[t] = accumulated(sum_hn[t], wn * v);
        }
    }
}

void main() {
    uint j = gl_GlobalInvocationID.x;
    uint first = gl_GlobalInvocationID.y * TILE;
    if (j >= H || first >= B) return;
    for (uint t = 0u; t < TILE; ++t) {
        stream[t] = min(first + t, B - 1u);
        fresh[t] = mode[stream[t]] == RESTART;
        sum_r[t] = vec4(0.0);
        sum_z[t] = vec4(0.0);
        sum_in[t] = vec4(0.0);
        sum_hn[t] = vec4(0.0);
    }
    input_products(j);
    state_products(j);
    for (uint t = 0u; t < TILE; ++t) {
        if (first + t >= B) return;
        float r = sigmoid(sum4(sum_r[t]) + b_ih[j] + b_hh[j]);
        float z = sigmoid(sum4(sum_z[t]) + b_ih[H + j] + b_hh[H + j]);
        float hn = sum4(sum_hn[t]) + b_hh[2u * H + j];
        float n = tanh_exp(sum4(sum_in[t]) + b_ih[2u * H + j] + r * hn);
        float before = state(t, j >> 2)[j & 3u];
        float after = (1.0 - z) * n + z * before;
        h_next[stream[t] * pitch(H) + j] = mode[stream[t]] == HOLD ? before : after;
    }
}

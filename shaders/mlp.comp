#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// hidden[b, m] = gated(w_in[m] . x[b], w_in[M + m] . x[b]): the gated hidden layer of an MLP. An invocation computes one
// hidden unit for TILE streams, so that each weight is loaded once for all of them.

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint TILE = 1u;

layout(push_constant) uniform Sizes { uint B; uint D; uint M; float situ; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer WIn { WEIGHT4 w_in[]; };
layout(binding = 2) writeonly buffer Hidden { float hidden[]; };

void main() {
    uint m = gl_GlobalInvocationID.x;
    uint first = gl_GlobalInvocationID.y * TILE;
    if (m >= M || first >= B) return;
    uint row = pitch4(D);
    uint whole = D >> 2;
    uint tail = D & 3u;

    vec4 gate[TILE];
    vec4 up[TILE];
    uint at[TILE];
    for (uint t = 0u; t < TILE; ++t) {
        gate[t] = vec4(0.0);
        up[t] = vec4(0.0);
        at[t] = min(first + t, B - 1u) * row;
    }
    for (uint k = 0u; k < whole; ++k) {
        vec4 gate_weight = unpacked(w_in[m * row + k]);
        vec4 up_weight = unpacked(w_in[(M + m) * row + k]);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = x[at[t] + k];
            gate[t] = accumulated(gate[t], gate_weight * v);
            up[t] = accumulated(up[t], up_weight * v);
        }
    }
    if (tail > 0u) {
        vec4 gate_weight = head(unpacked(w_in[m * row + whole]), tail);
        vec4 up_weight = head(unpacked(w_in[(M + m) * row + whole]), tail);
        for (uint t = 0u; t < TILE; ++t) {
            vec4 v = head(x[at[t] + whole], tail);
            gate[t] = accumulated(gate[t], gate_weight * v);
            up[t] = accumulated(up[t], up_weight * v);
        }
    }
    for (uint t = 0u; t < TILE; ++t) {
        if (first + t < B) hidden[(first + t) * pitch(M) + m] = gated(sum4(gate[t]), sum4(up[t]), situ != 0.0);
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"

// Gated MLP of every chosen expert of every stream: y = W_out (act(W_gate x) * (W_up x)). One workgroup a stream and
// choice; the hidden vector stays in shared memory. Only chosen experts' weights are read.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint S; uint E; uint D; uint M; float situ; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Index { uint index[]; };
layout(binding = 2) readonly buffer WIn { WEIGHT4 w_in[]; };
layout(binding = 3) readonly buffer WOut { WEIGHT4 w_out[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };

const uint WIDEST = 2048u;

shared vec4 hidden[WIDEST / 4u];

void main() {
    uint b = gl_WorkGroupID.x;
    uint s = gl_WorkGroupID.y;
    uint lane = gl_LocalInvocationID.x;
    uint expert = min(index[b * pitch(S) + s], E - 1u);
    uint row = pitch4(D);
    uint whole = D >> 2;
    uint tail = D & 3u;

    for (uint m = lane; m < M; m += gl_WorkGroupSize.x) {
        uint gate_row = (expert * 2u * M + m) * row;
        uint up_row = gate_row + M * row;
        float gate = 0.0;
        float up = 0.0;
        for (uint i = 0u; i < whole; ++i) {
            vec4 v = x[b * row + i];
            gate = accumulated(gate, dot(unpacked(w_in[gate_row + i]), v));
            up = accumulated(up, dot(unpacked(w_in[up_row + i]), v));
        }
        if (tail > 0u) {
            vec4 v = head(x[b * row + whole], tail);
            gate = accumulated(gate, dot(head(unpacked(w_in[gate_row + whole]), tail), v));
            up = accumulated(up, dot(head(unpacked(w_in[up_row + whole]), tail), v));
        }
        hidden[m >> 2][m & 3u] = gated(gate, up, situ != 0.0);
    }
    barrier();
    whole = M >> 2;
    tail = M & 3u;
    for (uint d = lane; d < D; d += gl_WorkGroupSize.x) {
        uint out_row = (expert * D + d) * pitch4(M);
        float sum = 0.0;
        for (uint m = 0u; m < whole; ++m) sum = accumulated(sum, dot(unpacked(w_out[out_row + m]), hidden[m]));
        if (tail > 0u) {
            vec4 weight = head(unpacked(w_out[out_row + whole]), tail);
            sum = accumulated(sum, dot(weight, head(hidden[whole], tail)));
        }
        y[(b * S + s) * pitch(D) + d] = sum;
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// y = swish of a causal depthwise convolution over a channel's last M inputs and this one. The last tap is this step's.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint C; uint L; uint M; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer W { float w[]; };
layout(binding = 2) readonly buffer History { float history[]; };
layout(binding = 3) readonly buffer Mode { uint mode[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(binding = 5) writeonly buffer Next { float history_next[]; };

float past(uint b, uint j, uint c) { return mode[b] == RESTART ? 0.0 : history[(b * M + j) * pitch(C) + c]; }

void main() {
    uint c = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (c >= C || b >= B) return;
    float now = x[b * pitch(C) + c];
    float sum = w[c * pitch(L) + M] * now;
    for (uint j = 0u; j < M; ++j) sum += w[c * pitch(L) + j] * past(b, j, c);
    y[b * pitch(C) + c] = sum * sigmoid(sum);
    for (uint j = 0u; j < M; ++j) {
        float after = j + 1u < M ? past(b, j + 1u, c) : now;
        history_next[(b * M + j) * pitch(C) + c] = mode[b] == HOLD ? past(b, j, c) : after;
    }
}

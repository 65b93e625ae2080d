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

#include "convolution.glsl"

void main() {
    uint c = gl_GlobalInvocationID.x;
    uint b = gl_GlobalInvocationID.y;
    if (c >= C || b >= B) return;
    bool fresh = mode[b] == RESTART;
    y[b * pitch(C) + c] = convolved(b, 0u, c, fresh);
    keep_history(b, mode[b] == HOLD ? 0u : 1u, c, fresh);
}

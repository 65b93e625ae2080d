#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// short_conv of every step of a sequence: over the rows before it, and before them the history. An invocation computes
// one channel of one row, and a stream's first row keeps its history too.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint R; uint B; uint C; uint L; uint M; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer W { float w[]; };
layout(binding = 2) readonly buffer History { float history[]; };
layout(binding = 3) readonly buffer Mode { uint mode[]; };
layout(binding = 4) readonly buffer Lengths { uint lengths[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
layout(binding = 6) writeonly buffer Next { float history_next[]; };

#include "convolution.glsl"

void main() {
    uint c = gl_GlobalInvocationID.x;
    uint row = gl_GlobalInvocationID.y;
    if (c >= C || row >= R) return;
    uint b = row % B;
    uint now = row / B;
    uint steps = rows_read(mode[b], lengths[b], R / B);
    // A stream that reads nothing does not restart either.
    bool fresh = mode[b] == RESTART && steps > 0u;
    y[row * pitch(C) + c] = now < steps ? convolved(b, now, c, fresh) : 0.0;
    if (now == 0u) keep_history(b, steps, c, fresh);
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"
#define ONE_STREAM
#include "tiling.glsl"

// All steps of delta_memory in one dispatch. One workgroup a stream and head goes through the rows of that stream.

layout(push_constant) uniform Sizes { uint R; uint B; uint C; uint P; uint V; uint N; float bounded; };

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer Value { float v[]; };
layout(binding = 3) readonly buffer Beta { float beta[]; };
layout(binding = 4) readonly buffer Z { float z[]; };
layout(binding = 5) readonly buffer A { float a[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) readonly buffer Lengths { uint lengths[]; };
layout(binding = 8) buffer Memory { vec4 memory[]; };
layout(binding = 9) writeonly buffer Out { float o[]; };

#include "delta.glsl"

#define SETTLED 1u
#include "settled.glsl"

void answer_nothing(uint at) {
    for (uint j = gl_LocalInvocationID.x; j < V; j += LANES) o[at + j] = 0.0;
}

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint width[] = {C / N};
    settle(width);
    uint rows = (b * C + head * width[0]) * pitch4(V);
    uint steps = rows_read(mode[b], lengths[b], R / B);
    float rate = exp(a[head]);
    for (uint now = 0u; now < steps; ++now) {
        uint row = now * B + b;
        bool fresh = mode[b] == RESTART && now == 0u;
        share_channels(row * pitch(C) + head * width[0], width[0], rate);
        float strength = sigmoid(beta[row * pitch(N) + head]);
        step_columns(rows, width[0], row * pitch(P) + head * V, strength, fresh, false);
    }
    for (uint now = steps; now < R / B; ++now) answer_nothing((now * B + b) * pitch(P) + head * V);
}

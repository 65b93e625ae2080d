#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"
#define ONE_STREAM
#include "tiling.glsl"

// One step of a gated delta memory. One workgroup a stream and head.

layout(push_constant) uniform Sizes { uint B; uint R; uint P; uint V; uint N; float bounded; };

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer Value { float v[]; };
layout(binding = 3) readonly buffer Beta { float beta[]; };
layout(binding = 4) readonly buffer Z { float z[]; };
layout(binding = 5) readonly buffer A { float a[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) buffer Memory { vec4 memory[]; };
layout(binding = 8) writeonly buffer Out { float o[]; };

#include "delta.glsl"

#define SETTLED 1u
#include "settled.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint width[] = {R / N};
    settle(width);
    share_channels(b * pitch(R) + head * width[0], width[0], exp(a[head]));
    float strength = sigmoid(beta[b * pitch(N) + head]);
    bool fresh = mode[b] == RESTART;
    bool held = mode[b] == HOLD;
    uint rows = (b * R + head * width[0]) * pitch4(V);
    step_columns(rows, width[0], b * pitch(P) + head * V, strength, fresh, held);
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"

// One step of a gated delta memory. One workgroup a stream and head.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint R; uint P; uint V; uint N; float bounded; };

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer Value { float v[]; };
layout(binding = 3) readonly buffer Beta { float beta[]; };
layout(binding = 4) readonly buffer Z { float z[]; };
layout(binding = 5) readonly buffer A { float a[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) buffer Memory { float memory[]; };
layout(binding = 8) writeonly buffer Out { float o[]; };

#include "delta.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint width = R / N;
    share_channels(b * pitch(R) + head * width, width, exp(a[head]));
    float strength = sigmoid(beta[b * pitch(N) + head]);
    bool fresh = mode[b] == RESTART;
    bool held = mode[b] == HOLD;
    for (uint j = gl_LocalInvocationID.x; j < V; j += gl_WorkGroupSize.x) {
        uint column = (b * R + head * width) * pitch(V) + j;
        uint at = b * pitch(P) + head * V + j;
        o[at] = stepped(column, width, v[at], strength, fresh, held);
    }
}

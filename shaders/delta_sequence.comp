#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"

// All steps of delta_memory in one dispatch. One workgroup a stream and head goes through the rows of that stream.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint R; uint B; uint C; uint P; uint V; uint N; float bounded; };

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer Value { float v[]; };
layout(binding = 3) readonly buffer Beta { float beta[]; };
layout(binding = 4) readonly buffer Z { float z[]; };
layout(binding = 5) readonly buffer A { float a[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) readonly buffer Lengths { uint lengths[]; };
layout(binding = 8) buffer Memory { float memory[]; };
layout(binding = 9) writeonly buffer Out { float o[]; };

#include "delta.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint width = C / N;
    uint steps = rows_read(mode[b], lengths[b], R / B);
    float rate = exp(a[head]);
    for (uint now = 0u; now < R / B; ++now) {
        uint row = now * B + b;
        bool read = now < steps;
        bool fresh = mode[b] == RESTART && now == 0u;
        if (read) share_channels(row * pitch(C) + head * width, width, rate);
        float strength = sigmoid(beta[row * pitch(N) + head]);
        for (uint j = gl_LocalInvocationID.x; j < V; j += gl_WorkGroupSize.x) {
            uint column = (b * C + head * width) * pitch(V) + j;
            uint at = row * pitch(P) + head * V + j;
            o[at] = read ? stepped(column, width, v[at], strength, fresh, false) : 0.0;
        }
        // Others still read what the next step shares anew.
        barrier();
    }
}

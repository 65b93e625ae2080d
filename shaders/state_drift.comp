#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// Telemetry of a state: the root mean square of its change in a step. One workgroup a stream.

layout(local_size_x = 64) in;
#include "workgroup.glsl"

layout(push_constant) uniform Sizes { uint B; uint H; };

layout(binding = 0) readonly buffer Before { float before[]; };
layout(binding = 1) readonly buffer After { float after[]; };
layout(binding = 2) readonly buffer Mode { uint mode[]; };
layout(binding = 3) writeonly buffer Drift { float drift[]; };

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint j = lane; j < H; j += gl_WorkGroupSize.x) {
        float change = after[b * pitch(H) + j];
        if (mode[b] != RESTART) change -= before[b * pitch(H) + j];
        sum += change * change;
    }
    float total = workgroup_sum(sum);
    if (lane == 0u) drift[b] = mode[b] == HOLD ? 0.0 : sqrt(total / float(H));
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "lanes.glsl"
#include "workgroup.glsl"

// y[b] = x[b] / sqrt(mean(x[b]^2) + eps) * gain. One workgroup a row: each lane sums its share, then all sums are added
// in shared memory.

layout(push_constant) uniform Sizes { uint B; uint D; float eps; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Gain { float gain[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };

void main() {
    uint row = gl_WorkGroupID.x * pitch(D);
    uint lane = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint d = lane; d < D; d += gl_WorkGroupSize.x) sum += x[row + d] * x[row + d];
    float scale = 1.0 / sqrt(workgroup_sum(sum) / float(D) + eps);
    for (uint d = lane; d < D; d += gl_WorkGroupSize.x) y[row + d] = x[row + d] * scale * gain[d];
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "lanes.glsl"
#include "workgroup.glsl"

// y = sigmoid(gate) * rmsnorm(x), each head of V channels normed by itself with the same gain. One workgroup a stream
// and head.

layout(push_constant) uniform Sizes { uint B; uint P; uint V; float eps; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Gate { float gate[]; };
layout(binding = 2) readonly buffer Gain { float gain[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };

void main() {
    uint at = gl_WorkGroupID.x * pitch(P) + gl_WorkGroupID.y * V;
    uint lane = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint i = lane; i < V; i += gl_WorkGroupSize.x) sum += x[at + i] * x[at + i];
    float scale = 1.0 / sqrt(workgroup_sum(sum) / float(V) + eps);
    for (uint i = lane; i < V; i += gl_WorkGroupSize.x) {
        y[at + i] = sigmoid(gate[at + i]) * (x[at + i] * scale * gain[i]);
    }
}

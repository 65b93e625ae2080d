#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "lanes.glsl"
#include "best.glsl"

// index[b] = the lowest index of the greatest x[b, v]. NaN is never chosen; a row of nothing else gives 0. One
// workgroup a row.

layout(push_constant) uniform Sizes { uint B; uint V; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Index { uint index[]; };

void main() {
    uint b = gl_WorkGroupID.x;
    uvec2 own = nothing_of(V);
    for (uint v = gl_LocalInvocationID.x; v < V; v += gl_WorkGroupSize.x) {
        own = better_of(own, uvec2(ordered(x[b * pitch(V) + v]), v));
    }
    uint best = workgroup_best(own, V);
    if (gl_LocalInvocationID.x == 0u) index[b] = best;
}

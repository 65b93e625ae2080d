#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"

// Telemetry of a delta memory: the least, mean and greatest share exp g that the channels of a stream keep in a step.
// One workgroup a stream.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint R; uint N; float bounded; };

layout(binding = 0) readonly buffer Z { float z[]; };
layout(binding = 1) readonly buffer A { float a[]; };
layout(binding = 2) writeonly buffer Least { float least[]; };
layout(binding = 3) writeonly buffer Mean { float mean[]; };
layout(binding = 4) writeonly buffer Greatest { float greatest[]; };

const uint LANES = gl_WorkGroupSize.x;

// Least, sum, greatest; every share lies between 0 and 1.
vec3 joined(vec3 a, vec3 b) { return vec3(min(a.x, b.x), a.y + b.y, max(a.z, b.z)); }

#define REDUCTION workgroup_part
#define VALUE vec3
#define VALUES parts
#define JOINED(a, b) joined(a, b)
#define OF_SUBGROUP(a) vec3(subgroupMin(a.x), subgroupAdd(a.y), subgroupMax(a.z))
#include "reduction.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    uint width = R / N;
    vec3 part = vec3(1.0, 0.0, 0.0);
    for (uint i = lane; i < R; i += LANES) {
        float keep = exp_or_nan(log_decay(z[b * pitch(R) + i], exp(a[i / width]), bounded != 0.0));
        part = joined(part, vec3(keep));
    }
    part = workgroup_part(part);
    if (lane > 0u) return;
    // A least or greatest number may have passed over NaN, a sum never does.
    least[b] = or_nan(part.y, part.x);
    mean[b] = part.y / float(R);
    greatest[b] = or_nan(part.y, part.z);
}

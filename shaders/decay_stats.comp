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

shared vec3 parts[LANES];

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    uint width = R / N;
    // Least, sum, greatest; every share lies between 0 and 1.
    vec3 part = vec3(1.0, 0.0, 0.0);
    for (uint i = lane; i < R; i += LANES) {
        float keep = exp(log_decay(z[b * pitch(R) + i], exp(a[i / width]), bounded != 0.0));
        part = vec3(min(part.x, keep), part.y + keep, max(part.z, keep));
    }
    parts[lane] = part;
    for (uint half_size = LANES >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) {
            vec3 other = parts[lane + half_size];
            parts[lane] = vec3(min(parts[lane].x, other.x), parts[lane].y + other.y, max(parts[lane].z, other.z));
        }
    }
    if (lane > 0u) return;
    least[b] = parts[0].x;
    mean[b] = parts[0].y / float(R);
    greatest[b] = parts[0].z;
}

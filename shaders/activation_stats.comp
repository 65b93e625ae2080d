#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "numbers.glsl"

// Telemetry of a row: the root mean square and the greatest magnitude of its finite elements, and how many are NaN and
// infinite. One workgroup a row.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint D; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Rms { float rms[]; };
layout(binding = 2) writeonly buffer Greatest { float greatest[]; };
layout(binding = 3) writeonly buffer Nan { uint nan_count[]; };
layout(binding = 4) writeonly buffer Inf { uint inf_count[]; };

const uint LANES = gl_WorkGroupSize.x;

struct Stats {
    float square;
    float peak;
    uvec2 strange;  // how many are NaN and infinite
};

Stats joined(Stats a, Stats b) { return Stats(a.square + b.square, max(a.peak, b.peak), a.strange + b.strange); }

#define REDUCTION workgroup_stats
#define VALUE Stats
#define VALUES parts
#define JOINED(a, b) joined(a, b)
#define OF_SUBGROUP(a) Stats(subgroupAdd(a.square), subgroupMax(a.peak), subgroupAdd(a.strange))
#include "reduction.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    Stats found = Stats(0.0, 0.0, uvec2(0u));
    for (uint d = lane; d < D; d += LANES) {
        float value = x[b * pitch(D) + d];
        if (is_nan(value)) {
            found.strange.x += 1u;
        } else if ((floatBitsToUint(value) & 0x7FFFFFFFu) == 0x7F800000u) {
            found.strange.y += 1u;
        } else {
            found.square += value * value;
            found.peak = max(found.peak, abs(value));
        }
    }
    found = workgroup_stats(found);
    if (lane > 0u) return;
    uint finite = D - found.strange.x - found.strange.y;
    rms[b] = finite > 0u ? sqrt(found.square / float(finite)) : 0.0;
    greatest[b] = found.peak;
    nan_count[b] = found.strange.x;
    inf_count[b] = found.strange.y;
}

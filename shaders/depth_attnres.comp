#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "numbers.glsl"

// Attention over depth: v goes into source `at` (added to it unless `fresh`), and the mix of sources 0 to `at` has the
// weights softmax_j(query . rmsnorm(source_j)). y is the mix and the running sum, weighed by gamma. One workgroup a
// stream; a lane reads and writes only its own channels of the sources.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint J; uint D; float at; float fresh; float eps; };

layout(binding = 0) readonly buffer V { float v[]; };
layout(binding = 1) readonly buffer Before { float before[]; };
layout(binding = 2) readonly buffer Query { float query[]; };
layout(binding = 3) readonly buffer Gamma { float gamma[]; };
layout(binding = 4) buffer Sources { float sources[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
layout(binding = 6) writeonly buffer After { float after[]; };

const uint LANES = gl_WorkGroupSize.x;
const uint MOST = 256u;

shared float scores[MOST];

#define REDUCTION workgroup_sum
#define VALUE vec2
#define VALUES sums
#define JOINED(a, b) (a) + (b)
#define OF_SUBGROUP(a) subgroupAdd(a)
#include "reduction.glsl"

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    uint last = uint(at);
    uint row = b * pitch(D);
    uint first = b * J * pitch(D);

    for (uint d = lane; d < D; d += LANES) {
        uint place = first + last * pitch(D) + d;
        sources[place] = fresh != 0.0 ? v[row + d] : sources[place] + v[row + d];
    }
    float greatest = uintBitsToFloat(0xFF800000u);
    for (uint j = 0u; j <= last; ++j) {
        vec2 sum = vec2(0.0);
        for (uint d = lane; d < D; d += LANES) {
            float value = sources[first + j * pitch(D) + d];
            sum += vec2(value * value, query[d] * value);
        }
        sum = workgroup_sum(sum);
        float score = sum.y / sqrt(sum.x / float(D) + eps);
        if (lane == 0u) scores[j] = score;
        greatest = max(greatest, score);
    }
    barrier();
    float total = 0.0;
    for (uint j = 0u; j <= last; ++j) total += exp_or_nan(scores[j] - greatest);
    float share = gamma[0];
    for (uint d = lane; d < D; d += LANES) {
        float mix = 0.0;
        for (uint j = 0u; j <= last; ++j) mix += exp_or_nan(scores[j] - greatest) * sources[first + j * pitch(D) + d];
        float sum = before[row + d] + v[row + d];
        after[row + d] = sum;
        y[row + d] = (1.0 - share) * sum + share * (mix / total);
    }
}

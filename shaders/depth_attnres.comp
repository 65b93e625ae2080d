#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "numbers.glsl"
#include "lanes.glsl"

// Attention over depth: v goes into source `at` (added to it unless `fresh`), and the mix of sources 0 to `at` has the
// weights softmax_j(query . rmsnorm(source_j)). y is the mix and the running sum, weighed by gamma. One workgroup a
// stream; a lane reads and writes only its own channels of the sources.

layout(push_constant) uniform Sizes { uint B; uint J; uint D; float at; float fresh; float eps; };

layout(binding = 0) readonly buffer V { vec4 v[]; };
layout(binding = 1) readonly buffer Before { vec4 before[]; };
layout(binding = 2) readonly buffer Query { vec4 query[]; };
layout(binding = 3) readonly buffer Gamma { float gamma[]; };
layout(binding = 4) buffer Sources { vec4 sources[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
layout(binding = 6) writeonly buffer After { float after[]; };

const uint LANES = gl_WorkGroupSize.x;
const uint MOST = 256u;

// Scores, then what they weigh.
shared float weights[MOST];

#define REDUCTION workgroup_sum
#define VALUE vec2
#define VALUES sums
#define JOINED(a, b) (a) + (b)
#define OF_SUBGROUP(a) subgroupAdd(a)
#include "reduction.glsl"

// How many of the k-th vec4's numbers are channels.
uint width(uint k) { return min(D - 4u * k, 4u); }

// Add v to the newest source, which begins at `place`. What pads it stays as it is.
void keep(uint row, uint place) {
    for (uint k = gl_LocalInvocationID.x; k < pitch4(D); k += LANES) {
        vec4 old = sources[place + k];
        vec4 now = fresh != 0.0 ? v[row + k] : old + v[row + k];
        sources[place + k] = head_on(now, width(k), old);
    }
}

// query . rmsnorm(source) of the source that begins at `place`.
float score(uint place) {
    vec2 sum = vec2(0.0);
    for (uint k = gl_LocalInvocationID.x; k < pitch4(D); k += LANES) {
        vec4 numbers = head(sources[place + k], width(k));
        sum += vec2(sum4(numbers * numbers), sum4(head(query[k], width(k)) * numbers));
    }
    sum = workgroup_sum(sum);
    return sum.y / sqrt(sum.x / float(D) + eps);
}

// Make weights of `count` scores, of which `greatest` is the greatest; returns their sum.
float weigh(uint count, float greatest) {
    barrier();
    for (uint j = gl_LocalInvocationID.x; j < count; j += LANES) weights[j] = exp_or_nan(weights[j] - greatest);
    barrier();
    float total = 0.0;
    for (uint j = 0u; j < count; ++j) total += weights[j];
    return total;
}

vec4 mixed(uint first, uint k, uint count) {
    vec4 sum = vec4(0.0);
    for (uint j = 0u; j < count; ++j) sum += weights[j] * sources[first + j * pitch4(D) + k];
    return sum;
}

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    uint last = uint(at);
    uint row = b * pitch4(D);
    uint first = b * J * pitch4(D);

    keep(row, first + last * pitch4(D));
    float greatest = uintBitsToFloat(0xFF800000u);
    for (uint j = 0u; j <= last; ++j) {
        float own = score(first + j * pitch4(D));
        if (lane == 0u) weights[j] = own;
        greatest = max(greatest, own);
    }
    float total = weigh(last + 1u, greatest);
    float share = gamma[0];
    for (uint k = lane; k < pitch4(D); k += LANES) {
        vec4 sum = before[row + k] + v[row + k];
        vec4 numbers = (1.0 - share) * sum + share * (mixed(first, k, last + 1u) / total);
        for (uint c = 0u; c < width(k); ++c) {
            after[4u * (row + k) + c] = sum[c];
            y[4u * (row + k) + c] = numbers[c];
        }
    }
}

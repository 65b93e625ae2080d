#version 450

// The fastest reading there is: all of X, `passes` times over, as vec4, LOADS (1, 4 or 8) of them an invocation and turn.
// Neighbours read neighbouring vec4s. Not an op: profile measures with it how many bytes a second a kernel gets at most.
//
// Sums are variables of their own and loops are written out: some drivers keep an array in memory and unroll nothing.

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint LOADS = 1u;

layout(push_constant) uniform Sizes { uint count; uint passes; float never; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

void main() {
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    vec4 a = vec4(0.0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    for (uint pass = 0u; pass < passes; ++pass) {
        // In each pass a workgroup reads another's share, so that none meets again what its own core has just read.
        uint at = (gl_GlobalInvocationID.x + pass * gl_WorkGroupSize.x) % stride;
        if (LOADS == 8u) {
            for (; at + 7u * stride < count; at += 8u * stride) {
                a += x[at];
                b += x[at + stride];
                c += x[at + 2u * stride];
                d += x[at + 3u * stride];
                e += x[at + 4u * stride];
                f += x[at + 5u * stride];
                g += x[at + 6u * stride];
                h += x[at + 7u * stride];
            }
        }
        if (LOADS == 4u) {
            for (; at + 3u * stride < count; at += 4u * stride) {
                a += x[at];
                b += x[at + stride];
                c += x[at + 2u * stride];
                d += x[at + 3u * stride];
            }
        }
        for (; at < count; at += stride) a += x[at];
    }
    vec4 all = ((a + b) + (c + d)) + ((e + f) + (g + h));
    float sum = all.x + all.y + all.z + all.w;
    // The host fills X with zeros and `never` is not zero: nothing is written, which no compiler can know.
    if (sum == never) y[0] = sum;
}

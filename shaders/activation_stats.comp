#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

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

shared float squares[LANES];
shared float peaks[LANES];
shared uvec2 strange[LANES];

void main() {
    uint b = gl_WorkGroupID.x;
    uint lane = gl_LocalInvocationID.x;
    float square = 0.0;
    float peak = 0.0;
    uvec2 found = uvec2(0u);
    for (uint d = lane; d < D; d += LANES) {
        float value = x[b * pitch(D) + d];
        // By its bits: a compiler may assume that no number is NaN.
        uint magnitude = floatBitsToUint(value) & 0x7FFFFFFFu;
        if (magnitude > 0x7F800000u) {
            found.x += 1u;
        } else if (magnitude == 0x7F800000u) {
            found.y += 1u;
        } else {
            square += value * value;
            peak = max(peak, abs(value));
        }
    }
    squares[lane] = square;
    peaks[lane] = peak;
    strange[lane] = found;
    for (uint half_size = LANES >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) {
            squares[lane] += squares[lane + half_size];
            peaks[lane] = max(peaks[lane], peaks[lane + half_size]);
            strange[lane] += strange[lane + half_size];
        }
    }
    if (lane > 0u) return;
    uint finite = D - strange[0].x - strange[0].y;
    rms[b] = finite > 0u ? sqrt(squares[0] / float(finite)) : 0.0;
    greatest[b] = peaks[0];
    nan_count[b] = strange[0].x;
    inf_count[b] = strange[0].y;
}

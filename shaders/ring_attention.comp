#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"

// o = softmax(q . k / sqrt(d) - slope * age) v over the last min(t, W) entries of a ring, t counting the newest. One
// workgroup a stream and head; 64 ages at a time with the softmax kept up as they come (running maximum and sum), so
// that no ring is too long. Heads of q share a key and value head in groups.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint W; uint C; uint Q; uint N; };

layout(binding = 0) readonly buffer Query { float q[]; };
layout(binding = 1) readonly buffer KRing { float k_ring[]; };
layout(binding = 2) readonly buffer VRing { float v_ring[]; };
layout(binding = 3) readonly buffer T { uint t[]; };
layout(binding = 4) readonly buffer Slopes { float slopes[]; };
layout(binding = 5) writeonly buffer Out { float o[]; };

const uint LANES = gl_WorkGroupSize.x;
const uint WIDEST = 1024u;

shared float scores[LANES];
shared float sums[WIDEST];

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint lane = gl_LocalInvocationID.x;
    uint d = Q / N;
    uint shared_head = head / (N / (C / d));
    uint count = min(t[b], W);
    // A stream that has not begun has an empty ring and the answer zero.
    uint newest = t[b] == 0u ? 0u : (t[b] - 1u) % W;
    float scale = 1.0 / sqrt(float(d));

    float greatest = uintBitsToFloat(0xFF800000u);
    float total = 0.0;
    for (uint i = lane; i < d; i += LANES) sums[i] = 0.0;

    for (uint start = 0u; start < count; start += LANES) {
        uint age = start + lane;
        uint live = min(LANES, count - start);
        if (age < count) {
            uint slot = (newest + W - age) % W;
            uint key = (b * W + slot) * pitch(C) + shared_head * d;
            float dot_product = 0.0;
            for (uint i = 0u; i < d; ++i) dot_product += q[b * pitch(Q) + head * d + i] * k_ring[key + i];
            scores[lane] = dot_product * scale - slopes[head] * float(age);
        }
        barrier();
        float before = greatest;
        for (uint j = 0u; j < live; ++j) greatest = max(greatest, scores[j]);
        float shrink = start == 0u ? 0.0 : exp(before - greatest);
        total *= shrink;
        for (uint j = 0u; j < live; ++j) total += exp(scores[j] - greatest);
        for (uint i = lane; i < d; i += LANES) {
            float sum = sums[i] * shrink;
            for (uint j = 0u; j < live; ++j) {
                uint slot = (newest + W - (start + j)) % W;
                sum += exp(scores[j] - greatest) * v_ring[(b * W + slot) * pitch(C) + shared_head * d + i];
            }
            sums[i] = sum;
        }
        barrier();
    }
    for (uint i = lane; i < d; i += LANES) {
        o[b * pitch(Q) + head * d + i] = count == 0u ? 0.0 : sums[i] / total;
    }
}

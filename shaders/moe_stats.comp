#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "scores.glsl"

// Telemetry of a router: the entropy of each token's scores, made to sum to one, and how many tokens chose each expert.
// Held streams choose nothing. An invocation looks at one token and counts for one expert.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint E; uint S; float softmax; };

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Index { uint index[]; };
layout(binding = 2) readonly buffer Mode { uint mode[]; };
layout(binding = 3) writeonly buffer Entropy { float entropy[]; };
layout(binding = 4) writeonly buffer Load { uint load[]; };

float row_entropy(uint row) {
    float greatest = logits[row];
    for (uint e = 1u; e < E; ++e) greatest = max(greatest, logits[row + e]);
    float total = 0.0;
    for (uint e = 0u; e < E; ++e) total += exp_or_nan(logits[row + e] - greatest);
    float sum = 0.0;
    for (uint e = 0u; e < E; ++e) sum += score(logits[row + e], greatest, total, softmax != 0.0);
    float result = 0.0;
    for (uint e = 0u; e < E; ++e) {
        float p = score(logits[row + e], greatest, total, softmax != 0.0) / sum;
        // p log p goes to zero with p.
        if (p != 0.0) result -= p * or_nan(p, log(p));
    }
    return result;
}

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < B) entropy[i] = row_entropy(i * pitch(E));
    if (i >= E) return;
    uint count = 0u;
    for (uint b = 0u; b < B; ++b) {
        for (uint s = 0u; s < S; ++s) count += mode[b] != HOLD && index[b * pitch(S) + s] == i ? 1u : 0u;
    }
    load[i] = count;
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "scores.glsl"
#include "lanes.glsl"

// The S experts of greatest score + bias, ties to the lower index; the bias chooses only. Scores are the sigmoid or the
// softmax of the logits. Weights are the chosen scores, made to sum to one when more than one is chosen. An invocation
// routes one stream. NaN is below every number: of a row of NaN the first S are chosen.

layout(push_constant) uniform Sizes { uint B; uint E; uint S; float softmax; };

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Bias { float bias[]; };
layout(binding = 2) writeonly buffer Index { uint index[]; };
layout(binding = 3) writeonly buffer Weight { float weight[]; };

const uint MOST = 16u;

void main() {
    uint b = gl_GlobalInvocationID.x;
    if (b >= B) return;
    uint row = b * pitch(E);

    float greatest = logits[row];
    for (uint e = 1u; e < E; ++e) greatest = max(greatest, logits[row + e]);
    float total = 0.0;
    for (uint e = 0u; e < E; ++e) total += exp_or_nan(logits[row + e] - greatest);

    uint chosen[MOST];
    float scores[MOST];
    float sum = 0.0;
    for (uint s = 0u; s < S; ++s) {
        uint best = E;
        uint best_key = 0u;
        float best_score = 0.0;
        for (uint e = 0u; e < E; ++e) {
            bool taken = false;
            for (uint j = 0u; j < s; ++j) taken = taken || chosen[j] == e;
            float value = score(logits[row + e], greatest, total, softmax != 0.0);
            // The first that is free is taken whatever its value, so that NaN never gives an index past the last.
            uint key = ordered(value + bias[e]);
            if (!taken && (best == E || key > best_key)) {
                best = e;
                best_key = key;
                best_score = value;
            }
        }
        chosen[s] = best;
        scores[s] = best_score;
        sum += best_score;
    }
    for (uint s = 0u; s < S; ++s) {
        index[b * pitch(S) + s] = chosen[s];
        weight[b * pitch(S) + s] = S > 1u ? scores[s] / (sum + 1e-20) : scores[s];
    }
}

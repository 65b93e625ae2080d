#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"

// Each expert takes its first `capacity` choices in the order of tokens; the weight of any other becomes zero, and is
// counted. A held stream has no token. An invocation looks at one.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint S; float capacity; };

layout(binding = 0) readonly buffer Index { uint index[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
layout(binding = 2) readonly buffer Mode { uint mode[]; };
layout(binding = 3) writeonly buffer Kept { float kept[]; };
layout(binding = 4) writeonly buffer Dropped { uint dropped[]; };

void main() {
    uint b = gl_GlobalInvocationID.x;
    if (b >= B) return;
    uint lost = 0u;
    for (uint s = 0u; s < S; ++s) {
        uint at = b * pitch(S) + s;
        // A token's own choices differ from each other, so only earlier tokens count.
        uint taken = 0u;
        for (uint other = 0u; other < b; ++other) {
            if (mode[other] == HOLD) continue;
            for (uint j = 0u; j < S; ++j) taken += index[other * pitch(S) + j] == index[at] ? 1u : 0u;
        }
        bool fits = mode[b] == HOLD || float(taken) < capacity;
        kept[at] = fits ? weight[at] : 0.0;
        lost += fits ? 0u : 1u;
    }
    dropped[b] = lost;
}

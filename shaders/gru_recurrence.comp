#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "tiling.glsl"

// Step t of a GRU over a sequence, with the reset after the product, all that its inputs give being there already.

layout(push_constant) uniform Sizes { uint B; uint H; float t; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer State { vec4 h[]; };
layout(binding = 2) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 3) readonly buffer BHh { float b_hh[]; };
layout(binding = 4) readonly buffer Mode { uint mode[]; };
layout(binding = 5) readonly buffer Lengths { uint lengths[]; };
layout(binding = 6) buffer Y { float y[]; };
layout(binding = 7) writeonly buffer Next { float h_next[]; };

uint now = uint(t);

vec4 state4(uint s, uint k) {
    bool fresh = now == 0u && mode[stream(s, B)] == RESTART;
    return fresh ? vec4(0.0) : h[stream(s, B) * pitch4(H) + k];
}

#define UNIT first_output()
#define STATE4(s, k) state4(s, k)
#include "recurrence.glsl"

void main() {
    multiply_state();
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        [[unroll]] for (uint s = 0u; s < TILE; ++s) {
            uint b = stream(s, B);
            float next = next_state(r, s, now * B + b);
            if (writes(r, H, s, B)) {
                uint j = first_output() + r;
                float kept = is_read(mode[b], now, lengths[b]) ? next : h[b * pitch4(H) + (j >> 2)][j & 3u];
                y[(now * B + b) * pitch(H) + j] = kept;
                h_next[b * pitch(H) + j] = kept;
            }
        }
    }
}

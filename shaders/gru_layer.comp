#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "tiling.glsl"
#include "normed.glsl"

// h' = gru_cell(rms_norm(x), h) and total = x + h': a layer before the norm of the next, in one dispatch.

layout(push_constant) uniform Sizes { uint B; uint H; float eps; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer Gain { vec4 gain[]; };
layout(binding = 2) readonly buffer State { vec4 h[]; };
layout(binding = 3) readonly buffer WIh { WEIGHT4 w_ih[]; };
layout(binding = 4) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 5) readonly buffer BIh { float b_ih[]; };
layout(binding = 6) readonly buffer BHh { float b_hh[]; };
layout(binding = 7) readonly buffer Mode { uint mode[]; };
layout(binding = 8) writeonly buffer Next { float h_next[]; };
layout(binding = 9) writeonly buffer Total { float total[]; };

#define INPUT(t, k, n) weighed(t, head(x[stream(t, B) * pitch4(H) + k], n), head(gain[k], n))
#include "gru.glsl"

void main() {
    clear_squares();
    begin();
    add_input_products(has_units() ? H : 0u);
    [[unroll]] for (uint t = 0u; t < TILE; ++t) scale_sums(t, norm_scale(t, H, eps));
    add_state_products(has_units() ? H : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        vec4 bias = biases(r);
        [[unroll]] for (uint t = 0u; t < TILE; ++t) {
            float next = next_state(r, t, bias);
            if (writes(r, H, t, B)) {
                uint j = first_output() + r;
                h_next[stream(t, B) * pitch(H) + j] = next;
                total[stream(t, B) * pitch(H) + j] = x[stream(t, B) * pitch4(H) + (j >> 2)][j & 3u] + next;
            }
        }
    }
}

#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "tiling.glsl"

// One GRU step, reset after the product (torch, cuDNN): both products, the gates and the update in one dispatch.

layout(push_constant) uniform Sizes { uint B; uint I; uint H; };

layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) readonly buffer State { vec4 h[]; };
layout(binding = 2) readonly buffer WIh { WEIGHT4 w_ih[]; };
layout(binding = 3) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 4) readonly buffer BIh { float b_ih[]; };
layout(binding = 5) readonly buffer BHh { float b_hh[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) writeonly buffer Next { float h_next[]; };

#define INPUT(t, k, n) head(x[stream(t, B) * pitch4(I) + k], n)
#include "gru.glsl"

void main() {
    begin();
    add_input_products(has_units() ? I : 0u);
    add_state_products(has_units() ? H : 0u);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        vec4 bias = biases(r);
        [[unroll]] for (uint t = 0u; t < TILE; ++t) {
            float next = next_state(r, t, bias);
            if (writes(r, H, t, B)) h_next[stream(t, B) * pitch(H) + first_output() + r] = next;
        }
    }
}

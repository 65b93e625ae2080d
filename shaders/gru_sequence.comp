#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "weights.glsl"
#include "gates.glsl"
#include "tiling.glsl"

// All steps of gru_recurrence in one dispatch: one workgroup for TILE streams, whose state it keeps in shared memory.

layout(push_constant) uniform Sizes { uint R; uint B; uint H; };

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer State { float h[]; };
layout(binding = 2) readonly buffer WHh { WEIGHT4 w_hh[]; };
layout(binding = 3) readonly buffer BHh { float b_hh[]; };
layout(binding = 4) readonly buffer Mode { uint mode[]; };
layout(binding = 5) readonly buffer Lengths { uint lengths[]; };
layout(binding = 6) writeonly buffer Y { float y[]; };
layout(binding = 7) writeonly buffer Next { float h_next[]; };

// The state that a step reads and the one that it makes, in turn: vkcat/ops/gru_sequence.py has what fits. Not of vec4:
// see FOUR_OF.
const uint MOST = 1536u;
shared float states[2u * MOST];

uint unit;     // the first of this invocation in a pass
uint reading;  // where the state that a step reads begins

vec4 state4(uint s, uint k) {
    uint at = reading + s * pitch(H) + 4u * k;
    return FOUR_OF(states, at);
}

#define UNIT unit
#define STATE4(s, k) state4(s, k)
#include "recurrence.glsl"

// A stream that holds keeps even what it would restart from.
void load_states() {
    for (uint i = gl_LocalInvocationID.x; i < TILE * pitch(H); i += gl_WorkGroupSize.x) {
        uint b = stream(i / pitch(H), B);
        bool fresh = mode[b] == RESTART && lengths[b] > 0u;
        states[i] = fresh ? 0.0 : h[b * pitch(H) + i % pitch(H)];
    }
    barrier();
}

void run_units(uint now, uint writing) {
    multiply_state();
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        [[unroll]] for (uint s = 0u; s < TILE; ++s) {
            uint b = stream(s, B);
            float next = next_state(r, s, now * B + b);
            uint j = unit + r;
            if (part() == 0u && j < H) {
                float kept = is_read(mode[b], now, lengths[b]) ? next : states[reading + s * pitch(H) + j];
                states[writing + s * pitch(H) + j] = kept;
                if (first_stream() + s < B) {
                    y[(now * B + b) * pitch(H) + j] = kept;
                    if (now + 1u == R / B) h_next[b * pitch(H) + j] = kept;
                }
            }
        }
    }
}

void main() {
    load_states();
    uint own = gl_LocalInvocationID.x / SPLIT * ROWS;
    for (uint now = 0u; now < R / B; ++now) {
        reading = (now & 1u) * MOST;
        for (uint pass = 0u; pass < H; pass += gl_WorkGroupSize.x / SPLIT * ROWS) {
            unit = pass + own;
            run_units(now, MOST - reading);
        }
        barrier();
    }
}

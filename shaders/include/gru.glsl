// One GRU step with the reset after the product, for a shader that has h, w_ih, w_hh, b_ih, b_hh, mode, B, I and H. Before
// it, INPUT(t, k, n): the k-th vec4 of the t-th stream's input, of which n numbers count.

// Of each unit: the sums of r, of z, and the input's and the state's part of n.
float sums[4u * ROWS * TILE];

uint modes[TILE];

vec4 state4(uint t, uint k) { return modes[t] == RESTART ? vec4(0.0) : h[stream(t, B) * pitch4(H) + k]; }

#define PRODUCT add_input_products
#define MATRIX w_ih
#define COUNT 3u * ROWS
#define ROW(r) (r % 3u) * H + min(first_output() + r / 3u, H - 1u)
#define VALUE(t, k, n) INPUT(t, k, n)
#define SUM(r, t) sums[(r / 3u * 4u + r % 3u) * TILE + t]
#include "product.glsl"

#define PRODUCT add_state_products
#define MATRIX w_hh
#define COUNT 3u * ROWS
#define ROW(r) (r % 3u) * H + min(first_output() + r / 3u, H - 1u)
#define VALUE(t, k, n) head(state4(t, k), n)
#define SUM(r, t) sums[(r / 3u * 4u + (r % 3u == 2u ? 3u : r % 3u)) * TILE + t]
#include "product.glsl"

bool has_units() { return first_output() < H; }

void begin() {
    [[unroll]] for (uint t = 0u; t < TILE; ++t) modes[t] = mode[stream(t, B)];
    [[unroll]] for (uint i = 0u; i < 4u * ROWS * TILE; ++i) sums[i] = 0.0;
}

// Multiply what the t-th stream's input gave.
void scale_sums(uint t, float scale) {
    [[unroll]] for (uint i = 0u; i < 4u * ROWS; ++i) sums[i * TILE + t] *= scale;
}

uint unit(uint r) { return min(first_output() + r, H - 1u); }

// What is added to each of the r-th unit's sums, the same for all streams.
vec4 biases(uint r) {
    uint j = unit(r);
    return vec4(b_ih[j] + b_hh[j], b_ih[H + j] + b_hh[H + j], b_ih[2u * H + j], b_hh[2u * H + j]);
}

// What the r-th unit of the t-th stream becomes.
float next_state(uint r, uint t, vec4 bias) {
    uint at = 4u * r * TILE + t;
    float to_r = across(sums[at]) + bias.x;
    float to_z = across(sums[at + TILE]) + bias.y;
    float from_input = across(sums[at + 2u * TILE]) + bias.z;
    float from_state = across(sums[at + 3u * TILE]) + bias.w;
    float before = state4(t, unit(r) >> 2)[unit(r) & 3u];
    return modes[t] == HOLD ? before : gru_update(to_r, to_z, from_input, from_state, before);
}

// The recurrence of a GRU with the reset after the product, where all that its input gives is there already, for a shader
// that has x (rows of 3H), w_hh, b_hh and H. Before it:
//
//     UNIT             the first unit of this invocation
//     STATE4(t, k)     the k-th vec4 of the t-th stream's state

// Of each unit: what the state gives of r, z and n.
float sums[3u * ROWS * TILE];

#define PRODUCT add_state_products
#define MATRIX w_hh
#define COUNT 3u * ROWS
#define ROW(r) (r % 3u) * H + min(UNIT + r / 3u, H - 1u)
#define VALUE(t, k, n) head(STATE4(t, k), n)
#define SUM(r, t) sums[(r) * TILE + t]
#include "product.glsl"

void multiply_state() {
    [[unroll]] for (uint i = 0u; i < 3u * ROWS * TILE; ++i) sums[i] = 0.0;
    add_state_products(UNIT < H ? H : 0u);
}

// What the r-th unit of the t-th stream becomes, by its row of x.
float next_state(uint r, uint t, uint row) {
    uint j = min(UNIT + r, H - 1u);
    uint at = 3u * r * TILE + t;
    uint given = row * pitch(3u * H) + j;
    float to_r = across(sums[at]) + b_hh[j];
    float to_z = across(sums[at + TILE]) + b_hh[H + j];
    float from_state = across(sums[at + 2u * TILE]) + b_hh[2u * H + j];
    float before = STATE4(t, j >> 2)[j & 3u];
    return gru_update(x[given] + to_r, x[given + H] + to_z, x[given + 2u * H], from_state, before);
}

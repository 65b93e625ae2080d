// A function that adds products of matrix rows with vectors, for the outputs and streams of this invocation. Before each
// inclusion, after tiling.glsl and weights.glsl:
//
//     PRODUCT            its name; it takes the width of the rows, or 0 to do nothing
//     MATRIX             the weights
//     COUNT              how many rows of it an invocation multiplies
//     ROW(r)             which one is the r-th
//     VALUE(t, k, n)     the k-th vec4 of the t-th stream's vector, of which n numbers count: head(..., n)
//     SUM(r, t)          what their product is added to

#ifndef PANELS
#define PANELS
// Rows of a matrix that lie side by side, vec4 by vec4; 1 where rows follow each other: vkcat/plan/panels.py.
layout(constant_id = 4) const uint PANEL = 1u;

// Where the k-th vec4 of a row lies, of rows of so many.
uint matrix_at(uint row, uint count, uint k) { return (row / PANEL * count + k) * PANEL + row % PANEL; }
#endif

void PRODUCT(uint width) {
    uint row = pitch4(width);
    vec4 v[TILE];
    for (uint k = part(); k < row; k += SPLIT) {
        uint n = min(width - 4u * k, 4u);
        [[unroll]] for (uint t = 0u; t < TILE; ++t) v[t] = VALUE(t, k, n);
        [[unroll]] for (uint r = 0u; r < COUNT; ++r) {
            vec4 weight = head(unpacked(MATRIX[matrix_at(ROW(r), row, k)]), n);
            [[unroll]] for (uint t = 0u; t < TILE; ++t) SUM(r, t) = accumulated(SUM(r, t), dot(weight, v[t]));
        }
    }
}

#undef PRODUCT
#undef MATRIX
#undef COUNT
#undef ROW
#undef VALUE
#undef SUM

// A short causal depthwise convolution, of each channel by itself, for a shader that has x, w, history, history_next, B, C,
// L and M. Needs rows.glsl and gates.glsl.

// Of all that stream b was given the i-th that still counts: M of its history, which is zero of a `fresh` one, and then
// its rows of x.
float given(uint b, uint i, uint c, bool fresh) {
    if (i >= M) return x[((i - M) * B + b) * pitch(C) + c];
    return fresh ? 0.0 : history[(b * M + i) * pitch(C) + c];
}

// swish of the convolution that ends with the stream's row `now`.
float convolved(uint b, uint now, uint c, bool fresh) {
    float sum = w[c * pitch(L) + M] * given(b, now + M, c, fresh);
    for (uint j = 0u; j < M; ++j) sum += w[c * pitch(L) + j] * given(b, now + j, c, fresh);
    return sum * sigmoid(sum);
}

// Keep what counts after so many steps.
void keep_history(uint b, uint steps, uint c, bool fresh) {
    for (uint j = 0u; j < M; ++j) history_next[(b * M + j) * pitch(C) + c] = given(b, steps + j, c, fresh);
}

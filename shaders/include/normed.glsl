// RMSNorm of vectors on their way into a product. All numbers of a row are scaled alike, so the product is taken of
// x * gain, and scaled once the squares that went by have been summed.

vec4 squares[TILE];

void clear_squares() {
    [[unroll]] for (uint t = 0u; t < TILE; ++t) squares[t] = vec4(0.0);
}

vec4 weighed(uint t, vec4 x, vec4 gain) {
    squares[t] += x * x;
    return x * gain;
}

// What the t-th stream's product is multiplied with.
float norm_scale(uint t, uint width, float eps) {
    return 1.0 / sqrt(across(sum4(squares[t])) / float(width) + eps);
}

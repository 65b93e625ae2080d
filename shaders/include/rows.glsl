// Rows of a tensor are padded to a multiple of four floats, so that a row is read as vec4. Padding holds anything,
// NaN included: the last, partial vec4 of a row goes through head().

uint pitch4(uint n) { return (n + 3u) >> 2; }

uint pitch(uint n) { return (n + 3u) & ~3u; }

// The first n (1 to 4) lanes of v, the rest zero.
vec4 head(vec4 v, uint n) { return vec4(v.x, n > 1u ? v.y : 0.0, n > 2u ? v.z : 0.0, n > 3u ? v.w : 0.0); }

float sum4(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

// Rows of a tensor are padded to a multiple of four floats, so that a row is read as vec4. Padding holds anything,
// NaN included: the last, partial vec4 of a row goes through head().

uint pitch4(uint n) { return (n + 3u) >> 2; }

uint pitch(uint n) { return (n + 3u) & ~3u; }

// The first n (1 to 4) lanes of v, the rest zero.
vec4 head(vec4 v, uint n) { return vec4(v.x, n > 1u ? v.y : 0.0, n > 2u ? v.z : 0.0, n > 3u ? v.w : 0.0); }

// The first n lanes of v, the rest of `padding`.
vec4 head_on(vec4 v, uint n, vec4 padding) { return mix(padding, v, lessThan(uvec4(0u, 1u, 2u, 3u), uvec4(n))); }

// Four numbers of an array from `at` on. What invocations write one by one in shared memory is not of vec4: some drivers
// write all of one where a shader writes one of its numbers, and so over what neighbours wrote.
#define FOUR_OF(numbers, at) vec4(numbers[at], numbers[(at) + 1u], numbers[(at) + 2u], numbers[(at) + 3u])

float sum4(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

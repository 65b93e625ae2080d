#extension GL_EXT_control_flow_attributes : require

// How invocations share a product: constants that vkcat chooses by device and shape (vkcat/tiling.py). An invocation
// works on ROWS outputs of TILE streams, so that it loads each weight once for all of them and each number of a stream
// once for all of its rows. SPLIT neighbours of a workgroup share a sum: each takes every SPLIT-th vec4.
//
// Where a workgroup belongs to one stream, the shader defines ONE_STREAM before it: then TILE is no constant to choose. What
// ROWS are is such a shader's to say: outputs, ages or columns.
//
// No invocation returns early, as across() has barriers: one without an output of its own computes on nothing. Loops over
// TILE and ROWS are unrolled, or drivers leave what they index in memory.

layout(local_size_x = 64, local_size_x_id = 3) in;
#ifdef ONE_STREAM
const uint TILE = 1u;
#else
layout(constant_id = 0) const uint TILE = 1u;
#endif
layout(constant_id = 1) const uint ROWS = 1u;
layout(constant_id = 2) const uint SPLIT = 1u;

const uint MOST_LANES = 128u;
shared float parts_of_sums[MOST_LANES];

uint part() { return gl_LocalInvocationID.x % SPLIT; }

uint first_output() { return gl_GlobalInvocationID.x / SPLIT * ROWS; }

uint first_stream() { return gl_GlobalInvocationID.y * TILE; }

// The t-th stream of this invocation; past the last one, the last.
uint stream(uint t, uint B) { return min(first_stream() + t, B - 1u); }

// Whether this invocation writes its r-th of N outputs for its t-th of B streams.
bool writes(uint r, uint N, uint t, uint B) {
    return part() == 0u && first_output() + r < N && first_stream() + t < B;
}

// The sum of `value` over the neighbours that share it.
float across(float value) {
    if (SPLIT == 1u) return value;
    uint lane = gl_LocalInvocationID.x;
    barrier();
    parts_of_sums[lane] = value;
    for (uint half_size = SPLIT >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (part() < half_size) parts_of_sums[lane] += parts_of_sums[lane + half_size];
    }
    barrier();
    return parts_of_sums[lane - part()];
}

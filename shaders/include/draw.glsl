// The next token of a stream: the greatest logit, or with a temperature the greatest of logit / temperature plus Gumbel
// noise, among the top_k greatest logits. For a shader that has logits, seed, stream, temperature, top_k, mode, token,
// position and history, B, V and M, and includes best.glsl; one workgroup a stream.

const uint LANES = gl_WorkGroupSize.x;

#define REDUCTION workgroup_count
#define VALUE uint
#define VALUES counts
#define JOINED(a, b) (a) + (b)
#define OF_SUBGROUP(a) subgroupAdd(a)
#include "reduction.glsl"

// How many logits of a row are at least (or, with `only`, exactly) `least`, of those before index `end`.
uint count(uint row, uint least, bool only, uint end) {
    uint found = 0u;
    for (uint v = gl_LocalInvocationID.x; v < end; v += LANES) {
        uint key = ordered(logits[row + v]);
        found += (only ? key == least : key >= least) ? 1u : 0u;
    }
    return workgroup_count(found);
}

// The value of the k-th greatest logit, and the index from which on logits of that value are left out: built bit by bit.
uvec2 last_chosen(uint row, uint k) {
    uint least = 0u;
    for (uint bit = 0x80000000u; bit > 0u; bit >>= 1) {
        if (count(row, least | bit, false, V) >= k) least |= bit;
    }
    uint above = least == 0xFFFFFFFFu ? 0u : count(row, least + 1u, false, V);
    uint end = 0u;
    for (uint bit = 1u << findMSB(V); bit > 0u; bit >>= 1) {
        uint further = min(end | bit, V);
        if (count(row, least, true, further) <= k - above) end = further;
    }
    return uvec2(least, end);
}

// Chooses, counts and remembers; returns the stream's token, to every lane. A held stream keeps what it has.
uint drawn_token(uint b) {
    uint row = b * pitch(V);
    bool drawn = temperature[b] > 0.0;
    uint step_number = mode[b] == RESTART ? 0u : position[b];
    uvec2 last = uvec2(0u, V);
    if (drawn && top_k[b] > 0u && top_k[b] < V) last = last_chosen(row, top_k[b]);

    uvec2 own = nothing_of(V);
    for (uint v = gl_LocalInvocationID.x; v < V; v += LANES) {
        float candidate = logits[row + v];
        uint key = ordered(candidate);
        if (key < last.x || (key == last.x && v >= last.y)) continue;
        if (drawn) {
            uint word = philox(uvec4(v >> 2, step_number, 0u, 0u), uvec2(seed[b], stream[b]))[v & 3u];
            candidate = candidate / temperature[b] - log(exponential(word));
        }
        own = better_of(own, uvec2(ordered(candidate), v));
    }
    uint chosen = workgroup_best(own, V);
    if (mode[b] == HOLD) return token[b];
    if (gl_LocalInvocationID.x == 0u) {
        token[b] = chosen;
        history[b * pitch(M) + step_number % M] = chosen;
        position[b] = step_number + 1u;
    }
    return chosen;
}

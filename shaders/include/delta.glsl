// One step of a gated delta memory, by one workgroup for a head of a stream whose state is S of (K, V):
//     S <- diag(exp g) S;  d = b (v - S^T k);  S <- S + k d^T;  o = S^T q
// for a shader that has q, k, z, v, o, memory, bounded and V. Needs rows.glsl, gates.glsl, decay.glsl and tiling.glsl.
//
// k, q and exp g lie in shared memory. A lane works on ROWS columns of S, four to a vec4, which do not depend on each
// other; SPLIT neighbours share the rows of a column.

const uint LANES = gl_WorkGroupSize.x;
const uint QUADS = (ROWS + 3u) / 4u;
const uint WIDEST = 1024u;

shared float query[WIDEST];
shared float key[WIDEST];
shared float keep[WIDEST];
shared vec4 parts_of_columns[MOST_LANES];

#define REDUCTION workgroup_sum
#define VALUE vec2
#define VALUES sums_of_squares
#define JOINED(a, b) (a) + (b)
#define OF_SUBGROUP(a) subgroupAdd(a)
#include "reduction.glsl"

// Share a step's `width` channels of the head, which begin at `at`. Every lane must call it.
void share_channels(uint at, uint width, float rate) {
    uint lane = gl_LocalInvocationID.x;
    vec2 squares = vec2(0.0);
    for (uint i = lane; i < width; i += LANES) squares += vec2(q[at + i] * q[at + i], k[at + i] * k[at + i]);
    vec2 norms = sqrt(workgroup_sum(squares) + 1e-6);
    float q_scale = 1.0 / (norms.x * sqrt(float(width)));
    float k_scale = 1.0 / norms.y;
    for (uint i = lane; i < width; i += LANES) {
        query[i] = q[at + i] * q_scale;
        key[i] = k[at + i] * k_scale;
        keep[i] = exp_or_nan(log_decay(z[at + i], rate, bounded != 0.0));
    }
    barrier();
}

// The sum of `value` over the neighbours that share columns.
vec4 across4(vec4 value) {
    if (SPLIT == 1u) return value;
    uint lane = gl_LocalInvocationID.x;
    barrier();
    parts_of_columns[lane] = value;
    barrier();
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint s = 0u; s < SPLIT; ++s) sum += parts_of_columns[lane - part() + s];
    return sum;
}

// Four of the head's values, which begin at `at`, from column 4 `quad` on.
vec4 values(uint at, uint quad) {
    vec4 found = vec4(0.0);
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        if (4u * quad + c < V) found[c] = v[at + 4u * quad + c];
    }
    return found;
}

void write_answers(uint at, uint quad, vec4 answers) {
    [[unroll]] for (uint c = 0u; c < 4u; ++c) {
        if (4u * quad + c < V) o[at + 4u * quad + c] = answers[c];
    }
}

// Step the columns of this lane that begin with `quad`, of which it has `own`, none or more; S begins at `rows`, and the
// head's v and o at `at`. Every lane must call it. `fresh`: from zero; `held`: not at all.
void step_own(uint quad, uint own, uint rows, uint width, uint at, float strength, bool fresh, bool held) {
    uint place[QUADS];
    vec4 recalled[QUADS];
    vec4 delta[QUADS];
    vec4 answers[QUADS];
    uint end = own > 0u ? width : 0u;
    [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
        place[r] = quad + (r < own ? r : 0u) * (LANES / SPLIT);
        recalled[r] = vec4(0.0);
        answers[r] = vec4(0.0);
    }
    for (uint i = part(); i < end; i += SPLIT) {
        [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
            vec4 s = fresh ? vec4(0.0) : memory[rows + i * pitch4(V) + place[r]];
            recalled[r] += keep[i] * s * key[i];
        }
    }
    [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
        delta[r] = strength * (values(at, place[r]) - across4(recalled[r]));
    }
    for (uint i = part(); i < end; i += SPLIT) {
        [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
            uint where = rows + i * pitch4(V) + place[r];
            vec4 before = memory[where];
            vec4 s = fresh ? vec4(0.0) : before;
            if (!held) s = keep[i] * s + key[i] * delta[r];
            // What pads a row stays as it is.
            if (r < own) memory[where] = head_on(s, V - 4u * place[r], before);
            answers[r] += s * query[i];
        }
    }
    [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
        vec4 answer = across4(answers[r]);
        if (part() == 0u && r < own) write_answers(at, place[r], answer);
    }
}

// Step all columns of the head.
void step_columns(uint rows, uint width, uint at, float strength, bool fresh, bool held) {
    const uint APART = LANES / SPLIT;
    for (uint pass = 0u; pass < pitch4(V); pass += APART * QUADS) {
        uint quad = pass + gl_LocalInvocationID.x / SPLIT;
        uint own = quad < pitch4(V) ? min((pitch4(V) - 1u - quad) / APART + 1u, QUADS) : 0u;
        step_own(quad, own, rows, width, at, strength, fresh, held);
    }
}

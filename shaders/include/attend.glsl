// softmax(q . k / sqrt(d) - slope * age) v of one head, one workgroup a head, its steps in any number of calls: the greatest
// score, the sum of weights and the answer are kept up as they come, so that no ring is too long. A lane works on ROWS
// ages, or numbers of the answer, at a time. Before it, after tiling.glsl and workgroup.glsl:
//
//     QUERY(i)           the i-th number of the query
//     ENTRY(age)         where the key and value of an age begin
//     QUERY4(i)          four of them, from a multiple of four on: where heads are whole vec4
//     KEY4(at), PAST4(at)  the vec4 of keys and of values that has a number

#include "numbers.glsl"

#define KEY(at) KEY4(at)[(at) & 3u]
#define PAST(at) PAST4(at)[(at) & 3u]

const uint LANES = gl_WorkGroupSize.x;
const uint WIDEST = 1024u;
const uint MOST_AGES = 512u;
// Below every number: an entry of score -Inf has no weight, and where no entry has any, the answer is 0.
const float NO_SCORE = -3.4028234663852886e38;

shared float weights[MOST_AGES];
shared float answers[WIDEST];
float greatest = NO_SCORE;
float total = 0.0;

// Whether heads are whole vec4. A constant, since a driver compiles both ways otherwise.
layout(constant_id = 5) const uint HEADS_OF_VEC4 = 0u;

bool of_vec4() { return HEADS_OF_VEC4 != 0u; }

// The products of the query with the keys at `at`.
void multiply_keys(uint at[ROWS], uint d, out float products[ROWS]) {
    vec4 sums[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] = vec4(0.0);
    if (of_vec4()) {
        for (uint i = 0u; i < d; i += 4u) {
            vec4 numbers = QUERY4(i);
            [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] += numbers * KEY4(at[r] + i);
        }
    } else {
        for (uint i = 0u; i < d; ++i) {
            float number = QUERY(i);
            [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r].x += number * KEY(at[r] + i);
        }
    }
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) products[r] = sum4(sums[r]);
}

// The scores of this lane's ages from `start` on, of those below `count`.
void score_ages(uint start, uint count, uint d, float slope, out float scores[ROWS]) {
    uint at[ROWS];
    float scale = 1.0 / sqrt(float(d));
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        at[r] = ENTRY(min(start + gl_LocalInvocationID.x + r * LANES, count - 1u));
    }
    multiply_keys(at, d, scores);
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        uint age = start + gl_LocalInvocationID.x + r * LANES;
        scores[r] = age < count ? scores[r] * scale - slope * float(age) : NO_SCORE;
    }
}

// As add_values, four numbers at a time.
void add_vec4_values(uint start, uint live, uint d, float shrink) {
    const uint QUADS = (ROWS + 3u) / 4u;
    for (uint first = 4u * gl_LocalInvocationID.x; first < d; first += 4u * LANES * QUADS) {
        vec4 sums[QUADS];
        uint at[QUADS];
        [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
            at[r] = min(first + 4u * r * LANES, d - 4u);
            sums[r] = FOUR_OF(answers, at[r]) * shrink;
        }
        for (uint j = 0u; j < live; ++j) {
            float weight = weights[j];
            uint entry = ENTRY(start + j);
            [[unroll]] for (uint r = 0u; r < QUADS; ++r) sums[r] += weight * PAST4(entry + at[r]);
        }
        [[unroll]] for (uint r = 0u; r < QUADS; ++r) {
            if (first + 4u * r * LANES < d) {
                [[unroll]] for (uint c = 0u; c < 4u; ++c) answers[at[r] + c] = sums[r][c];
            }
        }
    }
}

void add_single_values(uint start, uint live, uint d, float shrink) {
    for (uint first = gl_LocalInvocationID.x; first < d; first += LANES * ROWS) {
        float sums[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] = answers[min(first + r * LANES, d - 1u)] * shrink;
        for (uint j = 0u; j < live; ++j) {
            float weight = weights[j];
            uint at = ENTRY(start + j);
            [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] += weight * PAST(at + min(first + r * LANES, d - 1u));
        }
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
            if (first + r * LANES < d) answers[first + r * LANES] = sums[r];
        }
    }
}

// Adds the values of `live` ages from `start` on, with their weights, to the answer's numbers that are this lane's.
void add_values(uint start, uint live, uint d, float shrink) {
    if (of_vec4()) add_vec4_values(start, live, d, shrink);
    else add_single_values(start, live, d, shrink);
}

void attend_nothing(uint d) {
    greatest = NO_SCORE;
    total = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < d; i += LANES) answers[i] = 0.0;
}

// Takes in the ages from `from` to below `count`.
void attend(uint from, uint count, uint d, float slope) {
    float scores[ROWS];
    for (uint start = from; start < count; start += LANES * ROWS) {
        score_ages(start, count, d, slope, scores);
        float before = greatest;
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) greatest = max(greatest, scores[r]);
        greatest = workgroup_max(greatest);
        float sum = 0.0;
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
            bool counts = start + gl_LocalInvocationID.x + r * LANES < count;
            float weight = counts ? exp_or_nan(scores[r] - greatest) : 0.0;
            weights[gl_LocalInvocationID.x + r * LANES] = weight;
            sum += weight;
        }
        float shrink = exp_or_nan(before - greatest);
        total = total * shrink + workgroup_sum(sum);
        add_values(start, min(LANES * ROWS, count - start), d, shrink);
    }
    // What is four of a lane's here is one of four lanes' elsewhere.
    if (of_vec4()) barrier();
}

// The i-th number of the answer, of which a lane looks at those at its own number modulo LANES; 0 when nothing was there.
float answer(uint i) { return total == 0.0 ? 0.0 : answers[i] / total; }

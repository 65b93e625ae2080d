// softmax(q . k / sqrt(d) - slope * age) v of one head, one workgroup a head, its steps in any number of calls: the greatest
// score, the sum of weights and the answer are kept up as they come, so that no ring is too long. A lane works on ROWS
// ages, or numbers of the answer, at a time. Before it, after tiling.glsl and workgroup.glsl:
//
//     QUERY(i)         the i-th number of the query
//     ENTRY(age)       where the key and value of an age begin
//     KEY(at), PAST(at)  numbers of keys and of values

const uint LANES = gl_WorkGroupSize.x;
const uint WIDEST = 1024u;
const uint MOST_AGES = 512u;
const float NO_SCORE = -1e38;

shared float weights[MOST_AGES];
shared float answers[WIDEST];
float greatest = NO_SCORE;
float total = 0.0;

// The scores of this lane's ages from `start` on, of those below `count`.
void score_ages(uint start, uint count, uint d, float slope, out float scores[ROWS]) {
    uint at[ROWS];
    float scale = 1.0 / sqrt(float(d));
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        at[r] = ENTRY(min(start + gl_LocalInvocationID.x + r * LANES, count - 1u));
        scores[r] = 0.0;
    }
    for (uint i = 0u; i < d; ++i) {
        float number = QUERY(i);
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) scores[r] += number * KEY(at[r] + i);
    }
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        uint age = start + gl_LocalInvocationID.x + r * LANES;
        scores[r] = age < count ? scores[r] * scale - slope * float(age) : NO_SCORE;
    }
}

// Adds the values of `live` ages from `start` on, with their weights, to the answer's numbers that are this lane's.
void add_values(uint start, uint live, uint d, float shrink) {
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
            float weight = counts ? exp(scores[r] - greatest) : 0.0;
            weights[gl_LocalInvocationID.x + r * LANES] = weight;
            sum += weight;
        }
        float shrink = exp(before - greatest);
        total = total * shrink + workgroup_sum(sum);
        add_values(start, min(LANES * ROWS, count - start), d, shrink);
    }
}

// The i-th number of the answer, of which a lane knows those at its own number modulo LANES; 0 when nothing was there.
float answer(uint i) { return total > 0.0 ? answers[i] / total : 0.0; }

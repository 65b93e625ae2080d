// softmax(q . k / sqrt(d) - slope * age) v of one head over the newest `count` steps, one workgroup a head. LANES ages at a
// time, with the greatest score and the sum of weights kept up as they come, so that no ring is too long. Before it,
// after workgroup.glsl: QUERY(i), KEY(age, i) and PAST(age, i), the i-th number of the query, a key and a value.

const uint LANES = gl_WorkGroupSize.x;
const uint WIDEST = 1024u;
const float NO_SCORE = -1e38;

shared float weights[LANES];
shared float answers[WIDEST];

// Leaves the d numbers of the answer in `answers`, of which each lane knows those at its own number modulo LANES.
void attend(uint count, uint d, float slope) {
    uint lane = gl_LocalInvocationID.x;
    float scale = 1.0 / sqrt(float(d));
    float greatest = NO_SCORE;
    float total = 0.0;
    for (uint i = lane; i < d; i += LANES) answers[i] = 0.0;
    for (uint start = 0u; start < count; start += LANES) {
        uint age = start + lane;
        float score = NO_SCORE;
        if (age < count) {
            float dot_product = 0.0;
            for (uint i = 0u; i < d; ++i) dot_product += QUERY(i) * KEY(age, i);
            score = dot_product * scale - slope * float(age);
        }
        float before = greatest;
        greatest = max(before, workgroup_max(score));
        float shrink = start == 0u ? 0.0 : exp(before - greatest);
        float weight = age < count ? exp(score - greatest) : 0.0;
        weights[lane] = weight;
        total = total * shrink + workgroup_sum(weight);
        uint live = min(LANES, count - start);
        for (uint i = lane; i < d; i += LANES) {
            float sum = answers[i] * shrink;
            for (uint j = 0u; j < live; ++j) sum += weights[j] * PAST(start + j, i);
            answers[i] = sum;
        }
    }
    for (uint i = lane; i < d; i += LANES) answers[i] = count == 0u ? 0.0 : answers[i] / total;
}

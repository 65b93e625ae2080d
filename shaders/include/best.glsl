// The greatest of scores with their indices, ties to the lower index. NaN is never chosen. One workgroup a row.

shared float best_score[gl_WorkGroupSize.x];
shared uint best_index[gl_WorkGroupSize.x];

#define WORST uintBitsToFloat(0xFF800000u)

bool better(float score, uint at, float than, uint than_at) {
    return score > than || (score == than && at < than_at);
}

// The index of the best of each lane's; every lane gets it. `at` is V where a lane has none, so that a row of -inf still
// has a lowest one; 0 where no lane has one.
uint workgroup_best(float score, uint at, uint V) {
    uint lane = gl_LocalInvocationID.x;
    best_score[lane] = score;
    best_index[lane] = at;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size &&
            better(best_score[lane + half_size], best_index[lane + half_size], best_score[lane], best_index[lane])) {
            best_score[lane] = best_score[lane + half_size];
            best_index[lane] = best_index[lane + half_size];
        }
    }
    barrier();
    return best_index[0] < V ? best_index[0] : 0u;
}

// The sum of one value a lane over the workgroup, whose size is a power of two. Every lane must call it, at most once.

shared float workgroup_sums[gl_WorkGroupSize.x];

float workgroup_sum(float value) {
    uint lane = gl_LocalInvocationID.x;
    workgroup_sums[lane] = value;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) workgroup_sums[lane] += workgroup_sums[lane + half_size];
    }
    barrier();
    return workgroup_sums[0];
}

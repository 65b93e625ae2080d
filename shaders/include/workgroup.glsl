// Sum and maximum of one value a lane over the workgroup, whose size is a power of two. Every lane must call them.

shared float workgroup_values[gl_WorkGroupSize.x];

float workgroup_sum(float value) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    workgroup_values[lane] = value;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) workgroup_values[lane] += workgroup_values[lane + half_size];
    }
    barrier();
    return workgroup_values[0];
}

float workgroup_max(float value) {
    uint lane = gl_LocalInvocationID.x;
    barrier();
    workgroup_values[lane] = value;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) workgroup_values[lane] = max(workgroup_values[lane], workgroup_values[lane + half_size]);
    }
    barrier();
    return workgroup_values[0];
}

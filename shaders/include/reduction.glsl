// A function that joins one value of each invocation into one, which every invocation gets. All of the workgroup must
// call it; what they wrote to shared memory before, each can read after it. Before each inclusion:
//
//     REDUCTION          its name
//     VALUE              the type of a value
//     VALUES             a name for values in shared memory
//     JOINED(a, b)       two values as one
//     OF_SUBGROUP(a)     a subgroup's values as one
//
// A shader that includes this is compiled as it is, and with SUBGROUP, for devices with arithmetic in subgroups: then a
// subgroup joins its values by itself, and one value of each goes through shared memory. Nothing is assumed of how large
// subgroups are, whether they are whole, or which invocations make one. The first barrier keeps the values of an earlier
// call until all have read them, and brings a subgroup's invocations together. As it is, the workgroup's size must be a
// power of two.

#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

shared VALUE VALUES[gl_WorkGroupSize.x];

VALUE REDUCTION(VALUE value) {
    barrier();
#ifdef SUBGROUP
    VALUE part = OF_SUBGROUP(value);
    if (subgroupElect()) VALUES[gl_SubgroupID] = part;
    barrier();
    VALUE whole = VALUES[0];
    for (uint i = 1u; i < gl_NumSubgroups; ++i) whole = JOINED(whole, VALUES[i]);
    return whole;
#else
    uint lane = gl_LocalInvocationID.x;
    VALUES[lane] = value;
    for (uint half_size = gl_WorkGroupSize.x >> 1; half_size > 0u; half_size >>= 1) {
        barrier();
        if (lane < half_size) VALUES[lane] = JOINED(VALUES[lane], VALUES[lane + half_size]);
    }
    barrier();
    return VALUES[0];
#endif
}

#undef REDUCTION
#undef VALUE
#undef VALUES
#undef JOINED
#undef OF_SUBGROUP

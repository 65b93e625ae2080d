// The greatest of scores with their indices, ties to the lower index. NaN is never chosen. One workgroup a row.

#define WORST uintBitsToFloat(0xFF800000u)

bool better(float score, uint at, float than, uint than_at) {
    return score > than || (score == than && at < than_at);
}

// Unsigned integers in the order of floats; NaN below all of them, both zeros alike.
uint ordered(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0u;
    if ((bits & 0x7FFFFFFFu) == 0u) return 0x80000000u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// Of ordered scores with their indices the better. As integers: a device may flush small floats of a maximum to zero,
// which then equals none of them.
uvec2 better_of(uvec2 one, uvec2 other) {
    return one.x > other.x || (one.x == other.x && one.y < other.y) ? one : other;
}

#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
uvec2 best_of_subgroup(uvec2 own) {
    uint greatest = subgroupMax(own.x);
    return uvec2(greatest, subgroupMin(own.x == greatest ? own.y : 0xFFFFFFFFu));
}
#endif

#define REDUCTION best_of_all
#define VALUE uvec2
#define VALUES bests
#define JOINED(a, b) better_of(a, b)
#define OF_SUBGROUP(a) best_of_subgroup(a)
#include "reduction.glsl"

// The index of the best of each lane's; every lane gets it. `at` is V where a lane has none, so that a row of -inf still
// has a lowest one; 0 where no lane has one.
uint workgroup_best(float score, uint at, uint V) {
    uint best = best_of_all(uvec2(ordered(score), at)).y;
    return best < V ? best : 0u;
}

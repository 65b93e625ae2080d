// The greatest of scores with their indices, ties to the lower index. NaN is never chosen. One workgroup a row.

#include "numbers.glsl"

// Of two pairs of an ordered score and its index the better.
uvec2 better_of(uvec2 one, uvec2 other) {
    return one.x > other.x || (one.x == other.x && one.y < other.y) ? one : other;
}

// What a lane begins with, of V scores. NaN at any index is better, so that a row of NaN has a lowest one.
uvec2 nothing_of(uint V) { return uvec2(0u, V); }

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

// The index of the best of each lane's; every lane gets it. 0 where no lane has one.
uint workgroup_best(uvec2 own, uint V) {
    uint best = best_of_all(own).y;
    return best < V ? best : 0u;
}

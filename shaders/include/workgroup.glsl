// Sum and maximum of one value a lane over the workgroup. Every lane must call them.

#define REDUCTION workgroup_sum
#define VALUE float
#define VALUES workgroup_sums
#define JOINED(a, b) (a) + (b)
#define OF_SUBGROUP(a) subgroupAdd(a)
#include "reduction.glsl"

#define REDUCTION workgroup_max
#define VALUE float
#define VALUES workgroup_maxima
#define JOINED(a, b) max(a, b)
#define OF_SUBGROUP(a) subgroupMax(a)
#include "reduction.glsl"

#version 450

// The fastest multiply-adds there are: CHAINS (1, 2, 4 or 8) independent vec4 sums in registers, four turns of a loop at
// a time, no memory. Not an op: profile measures with it how many operations a second a kernel does at most.
//
// Sums are variables of their own, and no branch is inside a loop: some drivers keep an array in memory, and blend what is
// set in a branch. How many sums fill the registers differs by driver.

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint CHAINS = 1u;

layout(push_constant) uniform Sizes { uint turns; float scale; float shift; float never; };

layout(binding = 0) writeonly buffer Y { float y[]; };

#define TURN(v) v = v * scale + shift;
#define TURNS(v) TURN(v) TURN(v) TURN(v) TURN(v)

float one(vec4 a) {
    for (uint turn = 0u; turn < turns; turn += 4u) {
        TURNS(a)
    }
    return a.x + a.y + a.z + a.w;
}

float two(vec4 a) {
    vec4 b = a + 1.0;
    for (uint turn = 0u; turn < turns; turn += 4u) {
        TURNS(a)
        TURNS(b)
    }
    a += b;
    return a.x + a.y + a.z + a.w;
}

float four(vec4 a) {
    vec4 b = a + 1.0, c = a + 2.0, d = a + 3.0;
    for (uint turn = 0u; turn < turns; turn += 4u) {
        TURNS(a)
        TURNS(b)
        TURNS(c)
        TURNS(d)
    }
    a += b + c + d;
    return a.x + a.y + a.z + a.w;
}

float eight(vec4 a) {
    vec4 b = a + 1.0, c = a + 2.0, d = a + 3.0, e = a + 4.0, f = a + 5.0, g = a + 6.0, h = a + 7.0;
    for (uint turn = 0u; turn < turns; turn += 4u) {
        TURNS(a)
        TURNS(b)
        TURNS(c)
        TURNS(d)
        TURNS(e)
        TURNS(f)
        TURNS(g)
        TURNS(h)
    }
    a += b + c + d + e + f + g + h;
    return a.x + a.y + a.z + a.w;
}

void main() {
    vec4 start = vec4(float(gl_LocalInvocationID.x));
    float sum = CHAINS == 8u ? eight(start) : CHAINS == 4u ? four(start) : CHAINS == 2u ? two(start) : one(start);
    // The values go to shift / (1 - scale), which is not `never`: nothing is written, which no compiler can know.
    if (sum == never) y[0] = sum;
}

#extension GL_EXT_control_flow_attributes : require

// Numbers that a workgroup's invocations all compute alike, read from shared memory. A compiler that makes invocations
// coroutines, as lavapipe's, computes anew after a barrier what was computed before it, wherever it is used: divisions in
// the innermost loop. What was loaded it keeps. Before it: SETTLED, how many numbers.

shared uint settled_numbers[SETTLED];

// Become those of invocation 0. All of the workgroup must call it, once.
void settle(inout uint numbers[SETTLED]) {
    if (gl_LocalInvocationID.x == 0u) {
        [[unroll]] for (uint i = 0u; i < SETTLED; ++i) settled_numbers[i] = numbers[i];
    }
    barrier();
    [[unroll]] for (uint i = 0u; i < SETTLED; ++i) numbers[i] = settled_numbers[i];
}

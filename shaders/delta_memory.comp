#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "decay.glsl"

// One step of a gated delta memory, a state S of (K, V) for each stream and head:
//     S <- diag(exp g) S;  d = b (v - S^T k);  S <- S + k d^T;  o = S^T q
// One workgroup a stream and head; k, q and exp g lie in shared memory, and each lane keeps whole columns of S, which
// do not depend on each other.

layout(local_size_x = 64) in;

layout(push_constant) uniform Sizes { uint B; uint R; uint P; uint V; uint N; float bounded; };

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer Value { float v[]; };
layout(binding = 3) readonly buffer Beta { float beta[]; };
layout(binding = 4) readonly buffer Z { float z[]; };
layout(binding = 5) readonly buffer A { float a[]; };
layout(binding = 6) readonly buffer Mode { uint mode[]; };
layout(binding = 7) buffer Memory { float memory[]; };
layout(binding = 8) writeonly buffer Out { float o[]; };

const uint WIDEST = 1024u;

shared float query[WIDEST];
shared float key[WIDEST];
shared float keep[WIDEST];

void main() {
    uint b = gl_WorkGroupID.x;
    uint head = gl_WorkGroupID.y;
    uint lane = gl_LocalInvocationID.x;
    uint width = R / N;
    uint at = b * pitch(R) + head * width;

    float q_norm = 1e-6;
    float k_norm = 1e-6;
    for (uint i = 0u; i < width; ++i) {
        q_norm += q[at + i] * q[at + i];
        k_norm += k[at + i] * k[at + i];
    }
    float q_scale = 1.0 / (sqrt(q_norm) * sqrt(float(width)));
    float k_scale = 1.0 / sqrt(k_norm);
    float rate = exp(a[head]);
    for (uint i = lane; i < width; i += gl_WorkGroupSize.x) {
        query[i] = q[at + i] * q_scale;
        key[i] = k[at + i] * k_scale;
        keep[i] = exp(log_decay(z[at + i], rate, bounded != 0.0));
    }
    barrier();

    float strength = sigmoid(beta[b * pitch(N) + head]);
    bool fresh = mode[b] == RESTART;
    bool held = mode[b] == HOLD;
    for (uint j = lane; j < V; j += gl_WorkGroupSize.x) {
        uint column = (b * R + head * width) * pitch(V) + j;
        float recalled = 0.0;
        for (uint i = 0u; i < width; ++i) {
            float s = fresh ? 0.0 : memory[column + i * pitch(V)];
            recalled += keep[i] * s * key[i];
        }
        float delta = strength * (v[b * pitch(P) + head * V + j] - recalled);
        float answer = 0.0;
        for (uint i = 0u; i < width; ++i) {
            float s = fresh ? 0.0 : memory[column + i * pitch(V)];
            if (!held) s = keep[i] * s + key[i] * delta;
            memory[column + i * pitch(V)] = s;
            answer += s * query[i];
        }
        o[b * pitch(P) + head * V + j] = answer;
    }
}

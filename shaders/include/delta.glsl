// One step of a gated delta memory, by one workgroup for a head of a stream whose state is S of (K, V):
//     S <- diag(exp g) S;  d = b (v - S^T k);  S <- S + k d^T;  o = S^T q
// for a shader that has q, k, z, memory, bounded and V. Needs rows.glsl, gates.glsl and decay.glsl.
//
// k, q and exp g lie in shared memory, and each lane keeps whole columns of S, which do not depend on each other.

const uint WIDEST = 1024u;

shared float query[WIDEST];
shared float key[WIDEST];
shared float keep[WIDEST];

// Share a step's `width` channels of the head, which begin at `at`. Every lane must call it.
void share_channels(uint at, uint width, float rate) {
    float q_norm = 1e-6;
    float k_norm = 1e-6;
    for (uint i = 0u; i < width; ++i) {
        q_norm += q[at + i] * q[at + i];
        k_norm += k[at + i] * k[at + i];
    }
    float q_scale = 1.0 / (sqrt(q_norm) * sqrt(float(width)));
    float k_scale = 1.0 / sqrt(k_norm);
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        query[i] = q[at + i] * q_scale;
        key[i] = k[at + i] * k_scale;
        keep[i] = exp_or_nan(log_decay(z[at + i], rate, bounded != 0.0));
    }
    barrier();
}

// Step the column of S that begins at `column`; returns what it answers then. `fresh`: from zero; `held`: not at all.
float stepped(uint column, uint width, float value, float strength, bool fresh, bool held) {
    float recalled = 0.0;
    for (uint i = 0u; i < width; ++i) {
        float s = fresh ? 0.0 : memory[column + i * pitch(V)];
        recalled += keep[i] * s * key[i];
    }
    float delta = strength * (value - recalled);
    float answer = 0.0;
    for (uint i = 0u; i < width; ++i) {
        float s = fresh ? 0.0 : memory[column + i * pitch(V)];
        if (!held) s = keep[i] * s + key[i] * delta;
        memory[column + i * pitch(V)] = s;
        answer += s * query[i];
    }
    return answer;
}

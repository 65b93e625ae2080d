// Gate functions that never overflow: the exponent is never positive. NaN gives NaN.

#include "numbers.glsl"

float sigmoid(float x) {
    float e = exp_or_nan(-abs(x));
    float s = 1.0 / (1.0 + e);
    return x < 0.0 ? e * s : s;
}

float tanh_exp(float x) {
    float e = exp_or_nan(-2.0 * abs(x));
    float t = (1.0 - e) / (1.0 + e);
    return x < 0.0 ? -t : t;
}

// The hidden unit of a gated MLP: silu(gate) * up, or SiTU, which bounds both.
float gated(float gate, float up, bool situ) {
    if (situ) return 4.0 * tanh_exp(gate / 4.0) * sigmoid(gate) * (25.0 * tanh_exp(up / 25.0));
    return gate * sigmoid(gate) * up;
}

// What a unit of a GRU becomes, from what its gates are given: r, z, and of n the input's and the state's part.
float gru_update(float to_r, float to_z, float from_input, float from_state, float before) {
    float z = sigmoid(to_z);
    float n = tanh_exp(from_input + sigmoid(to_r) * from_state);
    return (1.0 - z) * n + z * before;
}

// What a step does to one stream of the batch.
const uint HOLD = 0u;     // the state stays as it is
const uint STEP = 1u;     // the state advances
const uint RESTART = 2u;  // the state advances from zero, whatever it held

// Whether a stream reads the row t of a sequence, of whose rows the first `length` are its own.
bool is_read(uint mode, uint t, uint length) { return mode != HOLD && t < length; }

// How many of the `count` rows that a sequence has of each stream this one reads: `is_read` is true of these.
uint rows_read(uint mode, uint length, uint count) { return mode == HOLD ? 0u : min(length, count); }

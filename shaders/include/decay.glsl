// How fast a delta memory forgets: g of a channel whose retention is x, at a head's rate. Needs gates.glsl.

float softplus(float x) { return or_nan(x, max(x, 0.0) + log(1.0 + exp(-abs(x)))); }

float log_decay(float x, float rate, bool bounded) {
    return bounded ? -5.0 * sigmoid(rate * x) : -rate * softplus(x);
}

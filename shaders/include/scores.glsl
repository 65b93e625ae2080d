// A router's scores. Needs gates.glsl; the greatest logit of a row and the sum of exp(logit - greatest) are the caller's.

float score(float logit, float greatest, float total, bool softmax) {
    return softmax ? exp_or_nan(logit - greatest) / total : sigmoid(logit);
}

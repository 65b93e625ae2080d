// Philox4x32-10 (Salmon et al., SC 2011): four random words from a counter and a key, with no state.

uvec4 philox(uvec4 counter, uvec2 key) {
    for (uint round_number = 0u; round_number < 10u; ++round_number) {
        uint high_x, low_x, high_z, low_z;
        umulExtended(counter.x, 0xD2511F53u, high_x, low_x);
        umulExtended(counter.z, 0xCD9E8D57u, high_z, low_z);
        counter = uvec4(high_z ^ counter.y ^ key.x, low_z, high_x ^ counter.w ^ key.y, low_x);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

// An exponential variate, -log of a uniform one, from a random word. It is as precise near 0 as elsewhere: small values
// come from a series, as log(1 - x) would have lost x.
float exponential(uint word) {
    if (word >= 0x80000000u) return -log((float(~word) + 0.5) * 2.3283064365386963e-10);
    float x = (float(word) + 0.5) * 2.3283064365386963e-10;
    float s = x / (2.0 - x);
    float square = s * s;
    float sum = 0.0;
    for (int n = 15; n > 0; n -= 2) sum = sum * square + 1.0 / float(n);
    return 2.0 * s * sum;
}

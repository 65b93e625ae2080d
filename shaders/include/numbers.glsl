// Numbers by their bits: a compiler may assume that none is NaN, a device may take small ones for zero, and some make a
// number of the exp or log of NaN.
#ifndef NUMBERS
#define NUMBERS

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }

// y, which was made of x: NaN where x is.
float or_nan(float x, float y) { return is_nan(x) ? x : y; }

float exp_or_nan(float x) { return or_nan(x, exp(x)); }

// Unsigned integers in the order of floats; NaN below all of them, both zeros alike.
uint ordered(float x) {
    uint bits = floatBitsToUint(x);
    if (is_nan(x)) return 0u;
    if ((bits & 0x7FFFFFFFu) == 0u) return 0x80000000u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
#endif

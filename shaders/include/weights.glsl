// Matrices of weights, and sums of their products. A shader that includes this is compiled three times:
//     as it is                  float32
//     FLOAT16                   weights as float16, two to a word, with sums in float32
//     FLOAT16 and ROUNDED       the same, with sums rounded to float16 after every four products
// No device feature is needed for any of them.

#ifdef FLOAT16
#define WEIGHT4 uvec2
vec4 unpacked(uvec2 weight) { return vec4(unpackHalf2x16(weight.x), unpackHalf2x16(weight.y)); }
#else
#define WEIGHT4 vec4
vec4 unpacked(vec4 weight) { return weight; }
#endif

float accumulated(float sum, float product) {
#ifdef ROUNDED
    return unpackHalf2x16(packHalf2x16(vec2(sum + product, 0.0))).x;
#else
    return sum + product;
#endif
}

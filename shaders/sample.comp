#version 450
#extension GL_GOOGLE_include_directive : require
#include "rows.glsl"
#include "gates.glsl"
#include "philox.glsl"
#include "lanes.glsl"
#include "best.glsl"

// The next token of each stream: the greatest logit, or with a temperature the greatest of logit / temperature plus
// Gumbel noise, among the top_k greatest logits. Ties go to the lower index; NaN is never chosen. The noise is a
// function of seed, stream, position and index alone. A held stream changes nothing. One workgroup a stream.

layout(push_constant) uniform Sizes { uint B; uint V; uint M; };

layout(binding = 0) readonly buffer Logits { float logits[]; };
layout(binding = 1) readonly buffer Seed { uint seed[]; };
layout(binding = 2) readonly buffer Stream { uint stream[]; };
layout(binding = 3) readonly buffer Temperature { float temperature[]; };
layout(binding = 4) readonly buffer TopK { uint top_k[]; };
layout(binding = 5) readonly buffer Mode { uint mode[]; };
layout(binding = 6) buffer Token { uint token[]; };
layout(binding = 7) buffer Position { uint position[]; };
layout(binding = 8) buffer History { uint history[]; };

#include "draw.glsl"

void main() { drawn_token(gl_WorkGroupID.x); }

#version 450

// The smallest dispatch: one workgroup that reads a word and does nothing with it. Not an op: profile measures with it
// what a dispatch and a barrier cost by themselves.

layout(local_size_x = 1) in;

layout(binding = 0) readonly buffer X { float x[]; };

void main() { float unused = x[0]; }

// A few row groups of a packed matrix times a block of tokens: the piece of work that all matrix ops are made of.
#pragma once
#include "plugins/cpu/ops.h"

namespace mh_cpu {

constexpr uint32_t kTokenBlock = 128;  // tokens of a piece: how often a weight is used once unpacked
constexpr uint32_t kSliceGroups = 4;   // row groups of a piece: streams that the memory system follows well

// Scratch of one thread.
struct MultiplyScratch {
  explicit MultiplyScratch(Arena& arena);
  float* panel;     // weights as f32
  const float** x;  // [kTokenBlock]: the rows to multiply, set by the caller
};

// How rows are cut into pieces: slices of up to kSliceGroups row groups, fewer where threads would go without.
struct Slices {
  Slices(const Matrix& m, const Cpu& cpu, uint32_t others);  // others: pieces there are for every slice
  uint32_t groups, count;
  uint32_t first(uint32_t slice) const { return slice * groups; }
  uint32_t size(uint32_t slice, const Matrix& m) const { return std::min(groups, m.groups - first(slice)); }
};

// y[t][r] for the rows of groups [first, first + count) and the tokens scratch.x[0 .. tokens). y: 16 floats a group.
// strict: a token's result does not depend on their number.
void multiply(const KernelTable& kernels, const Matrix& m, uint32_t slab, uint32_t first, uint32_t count,
              const MultiplyScratch& scratch, uint32_t tokens, bool strict, float* y, size_t y_stride);

}  // namespace mh_cpu

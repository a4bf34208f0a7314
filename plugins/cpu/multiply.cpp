// Few tokens: straight from packed weights. Many: a panel of them is expanded to f32 in cache and used for all tokens.
#include "plugins/cpu/multiply.h"

#include "plugins/cpu/dense.h"

namespace mh_cpu {
namespace {

// Up to here reading packed weights once per token is faster than expanding them first.
constexpr uint32_t kFewTokens = 4;
constexpr uint32_t kPanelInputs = 256;  // whole blocks of every format
constexpr uint32_t kPanelCols = kSliceGroups * kGroupRows;

}  // namespace

MultiplyScratch::MultiplyScratch(Arena& arena)
    : panel(arena.array<float>(kPanelInputs * kPanelCols)), x(arena.array<const float*>(2 * kTokenBlock)) {}

Slices::Slices(const Matrix& m, const Cpu& cpu, uint32_t others) : groups(kSliceGroups) {
  const uint32_t wanted = 4 * cpu.pool.threads();
  while (groups > 1 && uint64_t{ceil_div(m.groups, groups)} * others < wanted) groups /= 2;
  count = ceil_div(m.groups, groups);
}

void multiply(const KernelTable& kernels, const Matrix& m, uint32_t slab, uint32_t first, uint32_t count,
              const MultiplyScratch& scratch, uint32_t tokens, bool strict, float* y, size_t y_stride) {
  const uint8_t* weights = m.group(slab, first);
  if (strict || tokens <= kFewTokens)
    return kernels.matvec[m.format](weights, count, m.cols, scratch.x, tokens, y, y_stride);
  const bool dense = is_plain(format_at(m.format)) && dense_takes(scratch.x, tokens);
  const uint32_t step = dense ? count : std::min(count, kernels.panel_cols / kGroupRows);
  const float** const x = scratch.x + kTokenBlock;
  for (uint32_t g = 0; g < count; g += step) {
    const uint32_t groups = std::min(step, count - g), cols = groups * kGroupRows;
    for (uint32_t k = 0; k < m.cols; k += kPanelInputs) {
      const uint32_t inputs = std::min(kPanelInputs, m.cols - k);
      for (uint32_t i = 0; i < groups; ++i)
        kernels.unpack[m.format](weights + (g + i) * m.group_bytes, k, inputs, scratch.panel + i * kGroupRows, cols);
      for (uint32_t t = 0; t < tokens; ++t) x[t] = scratch.x[t] + k;
      float* out = y + g * kGroupRows;
      if (!dense || !dense_multiply(x, tokens, inputs, scratch.panel, cols, out, y_stride, k > 0))
        kernels.tile(scratch.panel, cols, inputs, cols, x, tokens, out, y_stride, k > 0);
    }
  }
}

}  // namespace mh_cpu

// The kernels of one instruction set, as a table of plain functions: the only line between baseline code and code that
// may need a newer CPU. Shapes are in floats unless a name says bytes; no function allocates or keeps state. [any]
#pragma once
#include <cstddef>
#include <cstdint>

#include "plugins/cpu/format.h"

namespace mh_cpu {

// Beside the MH_ACT_* numbers: sigmoid(a) * b, for the gate op.
constexpr uint32_t kSigmoidTimes = 0xffff;

struct KernelTable {
  const char* name;     // "avx2", for people
  uint32_t panel_cols;  // columns of the widest panel that `tile` takes

  // For few tokens: y[t][16 g + r] = row r of row group g times x[t]. Groups follow each other in memory and are walked
  // several at a time. A token's result does not depend on how many there are. By index in MH_CPU_FORMATS.
  void (*matvec[kFormatCount])(const uint8_t* groups, uint32_t group_count, uint32_t inputs, const float* const* x,
                               uint32_t tokens, float* y, size_t y_stride);
  // Inputs [first, first + count) of one row group as f32: panel[input][16]. Whole blocks of the format.
  void (*unpack[kFormatCount])(const uint8_t* group, uint32_t first, uint32_t count, float* panel, size_t panel_stride);

  // For many tokens: y[t][c] = (add ? y[t][c] : 0) + sum over k of x[t][k] * panel[k][c], in the order of k. cols: a
  // multiple of 16. A token's result does not depend on how many there are.
  void (*tile)(const float* panel, size_t panel_stride, uint32_t inputs, uint32_t cols, const float* const* x,
               uint32_t tokens, float* y, size_t y_stride, bool add);

  // rows: 16 rows of n values, null for zeros. panel[k][r] = rows[r][k]. By index: F32, F16, BF16.
  void (*transpose[3])(const void* const* rows, uint32_t n, float* panel, size_t panel_stride);
  // n values to and from f32. By index: F32, F16, BF16.
  void (*load_row[3])(const void* row, uint32_t n, float* out);
  void (*store_row[3])(const float* row, uint32_t n, void* out);

  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* out);  // weight: may be null
  // MH_ACT_* or kSigmoidTimes of a, times b where it is not null. out may be a or b.
  void (*activate)(uint32_t kind, const float* a, const float* b, uint32_t n, float limit, float alpha, float* out);
  // v = exp(v - max), and their sum. exp(-inf) is 0.
  float (*exp_row)(float* v, uint32_t n, float max);
  float (*max_row)(const float* v, uint32_t n);
  void (*softcap)(float* v, uint32_t n, float cap);                          // v = cap * tanh(v / cap)
  void (*scale)(float* v, uint32_t n, float factor);                         // v *= factor
  void (*add_scaled)(float* out, const float* v, uint32_t n, float factor);  // out += factor * v
};

}  // namespace mh_cpu

// One a kernel unit; hidden.
extern "C" {
const mh_cpu::KernelTable* mh_cpu_kernels_avx2();
const mh_cpu::KernelTable* mh_cpu_kernels_avx512();
const mh_cpu::KernelTable* mh_cpu_kernels_avx512_vnni();
const mh_cpu::KernelTable* mh_cpu_kernels_avx512_emulated();
const mh_cpu::KernelTable* mh_cpu_kernels_scalar();  // tests
}

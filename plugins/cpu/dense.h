// Products of f32 panels by oneDNN, where it was there when this was built.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mh_cpu {

// What multiplies plain matrices by many tokens, for the log: "oneDNN 2.6.3", or "own kernels".
const char* dense_library();

// True where dense_multiply is there, and faster than the tile kernel: many tokens whose rows are evenly spaced.
bool dense_takes(const float* const* x, uint32_t tokens);

// y[t][c] = (add ? y[t][c] : 0) + sum over k of x[t][k] * panel[k][c], on the calling thread alone. panel: [inputs,
// cols]. False, with y as it was, where the library is absent or refuses.
bool dense_multiply(const float* const* x, uint32_t tokens, uint32_t inputs, const float* panel, uint32_t cols,
                    float* y, size_t y_stride, bool add);

}  // namespace mh_cpu

// oneDNN's f32 matrix product, called by every thread of the pool for its own piece.
#include "plugins/cpu/dense.h"

#ifdef MH_CPU_ONEDNN
#include <dnnl.h>
#include <omp.h>

#define MH_STRING_(x) #x
#define MH_STRING(x) MH_STRING_(x)

namespace mh_cpu {

const char* dense_library() {
  return "oneDNN " MH_STRING(DNNL_VERSION_MAJOR) "." MH_STRING(DNNL_VERSION_MINOR) "." MH_STRING(DNNL_VERSION_PATCH);
}

bool dense_takes(const float* const* x, uint32_t tokens) {
  constexpr uint32_t kManyTokens = 32;
  if (tokens < kManyTokens) return false;
  const ptrdiff_t stride = x[1] - x[0];
  if (stride <= 0) return false;
  for (uint32_t t = 2; t < tokens; ++t)
    if (x[t] - x[t - 1] != stride) return false;
  return true;
}

bool dense_multiply(const float* const* x, uint32_t tokens, uint32_t inputs, const float* panel, uint32_t cols,
                    float* y, size_t y_stride, bool add) {
  omp_set_num_threads(1);  // of this thread: oneDNN would start a second pool beside ours
  return dnnl_sgemm('N', 'N', tokens, cols, inputs, 1, x[0], x[1] - x[0], panel, cols, add, y,
                    static_cast<dnnl_dim_t>(y_stride)) == dnnl_success;
}

}  // namespace mh_cpu
#else
namespace mh_cpu {

const char* dense_library() { return "own kernels"; }
bool dense_takes(const float* const*, uint32_t) { return false; }
bool dense_multiply(const float* const*, uint32_t, uint32_t, const float*, uint32_t, float*, size_t, bool) {
  return false;
}

}  // namespace mh_cpu
#endif

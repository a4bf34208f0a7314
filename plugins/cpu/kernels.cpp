// A kernel unit: compiled once an instruction set, with MH_SIMD (0, 256, 512), its compiler flags, and its name in
// MH_KERNELS. It gives the linker one function, mh_cpu_kernels_NAME; everything else has internal linkage.
#include "plugins/cpu/kernels.h"

#include "plugins/cpu/row_kernels.h"
#include "plugins/cpu/weight_kernels.h"

#define MH_STRING_(x) #x
#define MH_STRING(x) MH_STRING_(x)
#define MH_FUNCTION_(name) mh_cpu_kernels_##name
#define MH_FUNCTION(name) MH_FUNCTION_(name)
#define MH_MATVEC_(format) matvec<mh_cpu::format, Simd>,
#define MH_UNPACK_(format) unpack<mh_cpu::format, Simd>,

extern "C" __attribute__((visibility("hidden"))) const mh_cpu::KernelTable* MH_FUNCTION(MH_KERNELS)() {
  using S = Simd;
  static constexpr mh_cpu::KernelTable kTable{
      MH_STRING(MH_KERNELS),
      kPanelVectors * S::kLanes,
      {MH_CPU_FORMATS(MH_MATVEC_)},
      {MH_CPU_FORMATS(MH_UNPACK_)},
      tile<S>,
      {transpose<S, RowF32<S>>, transpose<S, RowF16<S>>, transpose<S, RowBf16<S>>},
      {load_row<S, RowF32<S>>, load_row<S, RowF16<S>>, load_row<S, RowBf16<S>>},
      {store_row<S, RowF32<S>>, store_row<S, RowF16<S>>, store_row<S, RowBf16<S>>},
      rms_norm<S>,
      activate<S>,
      exp_row<S>,
      max_row<S>,
      softcap<S>,
      scale_row<S>,
      add_scaled<S>,
  };
  return &kTable;
}

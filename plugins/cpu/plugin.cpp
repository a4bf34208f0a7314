// The entry of backend_cpu_avx2 and backend_cpu_avx512 (MH_CPU_512). Baseline code. Core has checked the manifest's
// cpu_features, which the last variant needs; for the others __builtin_cpu_supports asks CPUID and what the system
// saves.
#include "plugins/cpu/backend.h"

namespace {

#if defined(MH_CPU_512_EMULATED)
#define MH_ID "backend_cpu_avx512_emulated"
constexpr mh_cpu::Variant kVariants[] = {{[] { return true; }, mh_cpu_kernels_avx512_emulated}};
#elif defined(MH_CPU_512)
#define MH_ID "backend_cpu_avx512"
constexpr mh_cpu::Variant kVariants[] = {
    {[] { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"); },
     mh_cpu_kernels_avx512_vnni},
    {[] { return true; }, mh_cpu_kernels_avx512}};
#else
#define MH_ID "backend_cpu_avx2"
constexpr mh_cpu::Variant kVariants[] = {{[] { return true; }, mh_cpu_kernels_avx2}};
#endif

class Device : public mh_cpu::Backend {
 public:
  static constexpr const char* kId = MH_ID;
  static constexpr const char* kOptions[] = {MH_ID ".batch_size", nullptr};
  static void info(uint32_t, mh_device_info& out) { mh_cpu::describe_cpu(out); }
  explicit Device(const mh_device_spec& spec) : Backend(spec, kId, kVariants) {}
};

}  // namespace

MH_PLUGIN(Device)

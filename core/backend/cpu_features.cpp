// CPU features by name: what CPUID says, where the operating system saves the registers (XCR0).
#include <string_view>

#include "core/backend/manifest.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace moehost {
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };
// State that the operating system has to save, in bits of XCR0: none, SSE and AVX, and the three parts of AVX-512.
constexpr uint64_t kNoState = 0, kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000;

// Names as in /proc/cpuinfo and GCC's -m options; bits from Intel's manual, volume 2, CPUID.
struct Feature {
  std::string_view name;
  uint32_t leaf, subleaf;
  Register where;
  uint32_t bit;
  uint64_t state;
};
constexpr Feature kFeatures[] = {
    {"sse4.2", 1, 0, kEcx, 20, kNoState},
    {"popcnt", 1, 0, kEcx, 23, kNoState},
    {"fma", 1, 0, kEcx, 12, kAvx},
    {"f16c", 1, 0, kEcx, 29, kAvx},
    {"avx", 1, 0, kEcx, 28, kAvx},
    {"avx2", 7, 0, kEbx, 5, kAvx},
    {"bmi", 7, 0, kEbx, 3, kNoState},
    {"bmi2", 7, 0, kEbx, 8, kNoState},
    {"avx512f", 7, 0, kEbx, 16, kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512},
    {"avx512vnni", 7, 0, kEcx, 11, kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512},
    {"avx512fp16", 7, 0, kEdx, 23, kAvx512},
    {"amx_bf16", 7, 0, kEdx, 22, kAmx},
    {"amx_tile", 7, 0, kEdx, 24, kAmx},
    {"amx_int8", 7, 0, kEdx, 25, kAmx},
    {"avx_vnni", 7, 1, kEax, 4, kAvx},
    {"avx512_bf16", 7, 1, kEax, 5, kAvx512},
};

#if defined(__x86_64__)
uint64_t saved_state() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kOsXsave = 1u << 27;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & kOsXsave)) return 0;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool present(const Feature& feature) {
  uint32_t registers[4] = {};
  return __get_cpuid_count(feature.leaf, feature.subleaf, &registers[kEax], &registers[kEbx], &registers[kEcx],
                           &registers[kEdx]) &&
         (registers[feature.where] >> feature.bit & 1) && (saved_state() & feature.state) == feature.state;
}
#else
bool present(const Feature&) { return false; }
#endif

// One spelling for "avx512-vnni", "avx512_vnni" and "avx512vnni".
std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-') out += c;
  }
  return out;
}

}  // namespace

bool has_cpu_feature(std::string_view name, bool* known) {
  for (const Feature& feature : kFeatures) {
    if (plain(feature.name) != plain(name)) continue;
    *known = true;
    return present(feature);
  }
  *known = false;
  return false;
}

}  // namespace moehost

// The kernel tables that this machine can run, and random weights. For the tests of the CPU backends.
#pragma once
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "moehost/codec.hpp"
#include "plugins/cpu/kernels.h"
#include "plugins/cpu/pack.h"

namespace mh_cpu_test {

inline std::vector<const mh_cpu::KernelTable*> tables() {
  std::vector<const mh_cpu::KernelTable*> all{mh_cpu_kernels_scalar()};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) all.push_back(mh_cpu_kernels_avx2());
#ifdef MH_CPU_EMULATED
  if (avx2) all.push_back(mh_cpu_kernels_avx512_emulated());
#endif
  if (avx512) all.push_back(mh_cpu_kernels_avx512());
  if (avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
    all.push_back(mh_cpu_kernels_avx512_vnni());
  return all;
}

// Values as activations are: normal, of size 1.
inline std::vector<float> normals(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

// Rows of a format: any codes and sub-scales, block scales of a usual size.
inline std::vector<std::byte> random_rows(std::mt19937& random, const mh_cpu::Format& f, uint32_t rows, uint32_t cols) {
  std::vector<std::byte> bytes(size_t{rows} * cols / f.elements * f.bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const auto put_half = [&](std::byte* p) {
    const uint16_t half = mh::float_to_half(std::uniform_real_distribution<float>(-0.02f, 0.02f)(random));
    std::memcpy(p, &half, 2);
  };
  for (size_t at = 0; at < bytes.size(); at += f.bytes) {
    std::byte* block = bytes.data() + at;
    if (f.scales == mh_cpu::Scales::kE8m0) {
      block[f.scale_at] = static_cast<std::byte>(118 + random() % 8);
    } else if (f.id == mh_cpu::kF32.id) {
      const float v = std::normal_distribution<float>()(random);
      std::memcpy(block, &v, 4);
    } else if (f.id == mh_cpu::kBf16.id) {
      const uint16_t v = mh::float_to_bfloat(std::normal_distribution<float>()(random));
      std::memcpy(block, &v, 2);
    } else {
      put_half(block + f.scale_at);
      if (has_min(f)) put_half(block + f.min_at);
    }
  }
  return bytes;
}

// A random matrix, packed, and what its values are.
struct Weights {
  Weights(std::mt19937& random, const mh_cpu::Format& f, uint32_t row_count, uint32_t col_count)
      : rows(row_count),
        cols(col_count),
        groups((row_count + 15) / 16),
        stored(random_rows(random, f, rows, cols)),
        packed(groups * group_bytes(f, cols)),
        values(size_t{rows} * cols) {
    const uint64_t row_bytes = cols / f.elements * f.bytes;
    for (uint32_t r = 0; r < rows; ++r)
      mh::decode_row(f.id, stored.data() + r * row_bytes, cols, values.data() + size_t{r} * cols);
    for (uint32_t g = 0; g < groups; ++g)
      pack_group(f, stored.data() + 16 * g * row_bytes, row_bytes, std::min(16u, rows - 16 * g), cols,
                 packed.data() + g * group_bytes(f, cols));
  }
  uint32_t rows, cols, groups;
  std::vector<std::byte> stored;
  std::vector<uint8_t> packed;
  std::vector<float> values;  // [rows, cols]
};

}  // namespace mh_cpu_test

// Integers from files: no raw + or * on a size that was read. Floor 1.
#pragma once
#include <cstdint>
#include <optional>

namespace moehost {

// a + b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}
// a * b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}
// value rounded up to a multiple of alignment (not zero), or nothing when it does not fit.
inline std::optional<uint64_t> checked_align(uint64_t value, uint64_t alignment) {
  const uint64_t rest = value % alignment;
  return rest ? checked_add(value, alignment - rest) : std::optional<uint64_t>(value);
}

}  // namespace moehost

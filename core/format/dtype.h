// The storage formats of weights: sizes and names of the registry in the SDK (moehost/ops.h). Floor 2.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "moehost/ops.h"

namespace moehost {

// A format: `elements` values take `bytes` bytes (a block). Numbers below 1000 are GGUF type numbers.
struct FormatInfo {
  uint32_t number;
  const char* name;  // "Q4_K"
  uint32_t elements, bytes;
};

// All formats of the registry.
std::span<const FormatInfo> formats();
// Null for a number that the registry does not have.
const FormatInfo* find_format(uint32_t number);
const FormatInfo* find_format(std::string_view name);
// "Q4_K", or "format 77".
std::string format_name(uint32_t number);
// Bytes of a row of `elements` values; nothing when they are no whole number of blocks or the size does not fit.
std::optional<uint64_t> row_bytes(uint32_t format, uint64_t elements);

}  // namespace moehost

// The metadata types of GGUF: how each is stored and what it is kept as. Shared by reader and writer only. Floor 2.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/format/gguf.h"

namespace moehost::gguf {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr const char* kAlignmentKey = "general.alignment";

// Calls use(Stored{}, Element{}, Scalar{}) for a type of fixed size: its bytes in the file, what an array keeps, what
// a single value is kept as. Returns use's result, or `otherwise` for strings, arrays and numbers that are no type.
template <class Use, class Otherwise>
auto visit_number(uint32_t type, Otherwise otherwise, Use use) -> Otherwise {
  switch (type) {
    case kGgufU8:
      return use(uint8_t{}, uint64_t{}, uint64_t{});
    case kGgufI8:
      return use(int8_t{}, int64_t{}, int64_t{});
    case kGgufU16:
      return use(uint16_t{}, uint64_t{}, uint64_t{});
    case kGgufI16:
      return use(int16_t{}, int64_t{}, int64_t{});
    case kGgufU32:
      return use(uint32_t{}, uint64_t{}, uint64_t{});
    case kGgufI32:
      return use(int32_t{}, int64_t{}, int64_t{});
    case kGgufF32:
      return use(float{}, float{}, double{});
    case kGgufBool:
      return use(uint8_t{}, bool{}, bool{});
    case kGgufU64:
      return use(uint64_t{}, uint64_t{}, uint64_t{});
    case kGgufI64:
      return use(int64_t{}, int64_t{}, int64_t{});
    case kGgufF64:
      return use(double{}, double{}, double{});
    default:
      return otherwise;
  }
}

// "u32", "string"; "type 13".
std::string type_name(uint32_t type);

}  // namespace moehost::gguf

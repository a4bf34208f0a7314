// The storage formats of weights, from the SDK's registry. Floor 2.
#include "core/format/dtype.h"

#include <algorithm>
#include <array>

#include "core/base/checked.h"

namespace moehost {
namespace {

#define MOEHOST_FORMAT_ROW(name, number, elements, bytes) FormatInfo{number, #name, elements, bytes},
constexpr auto kFormats = std::to_array<FormatInfo>({MH_FORMATS(MOEHOST_FORMAT_ROW)});
#undef MOEHOST_FORMAT_ROW

template <class Matches>
const FormatInfo* find_where(Matches matches) {
  const auto found = std::ranges::find_if(kFormats, matches);
  return found == kFormats.end() ? nullptr : &*found;
}

}  // namespace

std::span<const FormatInfo> formats() { return kFormats; }

const FormatInfo* find_format(uint32_t number) {
  return find_where([&](const FormatInfo& format) { return format.number == number; });
}

const FormatInfo* find_format(std::string_view name) {
  return find_where([&](const FormatInfo& format) { return format.name == name; });
}

std::string format_name(uint32_t number) {
  const FormatInfo* format = find_format(number);
  return format ? format->name : "format " + std::to_string(number);
}

std::optional<uint64_t> row_bytes(uint32_t format, uint64_t elements) {
  const FormatInfo* info = find_format(format);
  if (!info || elements % info->elements != 0) return std::nullopt;
  return checked_mul(elements / info->elements, info->bytes);
}

}  // namespace moehost

// The readers behind json_input.h.
#include "apps/moehost/json_input.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace moehost {

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0 || length > text.size() - i) return false;
    uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      point = point << 6 | (next & 0x3Fu);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
    i += length;
  }
  return true;
}

bool json_depth_within(std::string_view text, size_t limit) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return false;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return true;
}

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in || in.bad()) return fail(Code::kUsage, path, ": cannot be read: ", std::strerror(errno ? errno : EIO));
  return text;
}

Result<std::vector<TokenId>> parse_ids(std::string_view json, std::string_view what) {
  const auto expected = [&](const auto&... seen) {
    return fail(Code::kUsage, what, ": ", seen..., ": a JSON array of token ids or {\"input_ids\": [...]} is expected");
  };
  if (!json_depth_within(json, kMaxJsonDepth)) return expected("nests deeper than ", kMaxJsonDepth);
  const auto root = nlohmann::json::parse(json, nullptr, false);
  if (root.is_discarded()) return expected("not JSON");
  const nlohmann::json* list = &root;
  for (const char* key : {"input_ids", "ids"})
    if (root.is_object() && root.contains(key)) list = &root[key];
  if (!list->is_array()) return expected("no list of ids");
  std::vector<TokenId> ids;
  for (const auto& value : *list) {
    if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<TokenId>::max())
      return expected("entry ", ids.size(), " is no token id");
    ids.push_back(value.get<TokenId>());
  }
  return ids;
}

}  // namespace moehost

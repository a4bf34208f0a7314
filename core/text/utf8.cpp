// UTF-8: validity, code points, replacement.
#include "core/text/utf8.h"

namespace moehost {

Utf8Char first_utf8_char(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Char::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Char::kInvalid, 1};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte is narrower after four leads: no overlong forms, no surrogates, nothing above U+10FFFF.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7F >> size);
  for (uint32_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Utf8Char::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Char::kInvalid, i};
    code_point = (code_point << 6) | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Char::kValid, size, code_point};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char next = first_utf8_char(text.substr(at));
    if (next.kind != Utf8Char::kValid) break;
    at += next.size;
  }
  return at;
}

void for_each_utf8_run(std::string_view text, const std::function<void(std::string_view run, bool valid)>& visit) {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) visit(text.substr(0, valid), true);
    text.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Char next = first_utf8_char(text.substr(invalid));
      if (next.kind == Utf8Char::kValid) break;
      invalid += next.size;
    }
    if (invalid > 0) visit(text.substr(0, invalid), false);
    text.remove_prefix(invalid);
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacementCharacter;
    text.remove_prefix(first_utf8_char(text).size);
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t hit; (hit = text.find(from)) != std::string_view::npos; text.remove_prefix(hit + from.size())) {
    out += text.substr(0, hit);
    out += to;
  }
  return out += text;
}

}  // namespace moehost

// UTF-8 as the Unicode standard defines it (table 3-7): validity, code points, replacement. Floor 2.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moehost {

// The first character of a text.
struct Utf8Char {
  enum Kind {
    kValid,
    kInvalid,     // no character begins here; size is that of the longest part that could have begun one, at least 1
    kIncomplete,  // the text ends within a character that more bytes could complete
  };
  Kind kind;
  uint32_t size;  // bytes
  char32_t code_point = 0;
};
// text: not empty.
Utf8Char first_utf8_char(std::string_view text);

// Bytes in front that are valid.
size_t valid_utf8_prefix(std::string_view text);

// text cut into runs that are valid and runs that hold no valid character, none of them empty, in order.
void for_each_utf8_run(std::string_view text, const std::function<void(std::string_view run, bool valid)>& visit);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// text with U+FFFD for each invalid part (one for each Utf8Char that is not valid).
std::string replace_invalid_utf8(std::string_view text);

// text with every `from` (not empty) replaced by `to`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace moehost

// Unicode normalization form C, on the tables of utf8proc.
#include "core/text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "core/base/status.h"
#include "core/text/utf8.h"

namespace moehost {
namespace {

using CodePoint = utf8proc_int32_t;

auto combining_class(CodePoint code_point) { return utf8proc_get_property(code_point)->combining_class; }

// Puts each run of combining marks in canonical order. utf8proc would do it too, but in quadratic time.
void order_marks(std::vector<CodePoint>* text) {
  const auto is_mark = [](CodePoint code_point) { return combining_class(code_point) != 0; };
  for (auto run = text->begin(); (run = std::find_if(run, text->end(), is_mark)) != text->end();) {
    const auto end = std::find_if_not(run, text->end(), is_mark);
    std::stable_sort(run, end, [](CodePoint a, CodePoint b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Below U+0300 (lead byte CC) nothing decomposes to, or combines with, anything: such text is normalized.
  const auto is_plain = [](char c) { return static_cast<uint8_t>(c) < 0xCC; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);

  std::vector<CodePoint> code_points;
  code_points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char next = first_utf8_char(text);
    CodePoint parts[4];  // a canonical decomposition has at most four
    int last_boundary_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<CodePoint>(next.code_point), parts, std::size(parts),
                                               UTF8PROC_DECOMPOSE, &last_boundary_class);
    MOEHOST_CHECK(count >= 0 && static_cast<size_t>(count) <= std::size(parts));
    code_points.insert(code_points.end(), parts, parts + count);
    text.remove_prefix(next.size);
  }
  order_marks(&code_points);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
  MOEHOST_CHECK(count >= 0);

  std::string out;
  out.reserve(code_points.size() * 2);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(code_points[i], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return out;
}

}  // namespace moehost

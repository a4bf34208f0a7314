// Renders errors: finds line and column of a byte, prints the line and underlines the span.
#include "core/config/source.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

// Of a longer line only this many characters around the span are shown.
constexpr size_t kShownChars = 120;
constexpr size_t kQuotedBytes = 60;
constexpr size_t kMaxErrors = 100;  // nobody reads more, and finding the line of each takes time

// Text as the terminal shows it, one element a character: tabs, control characters and bytes that are not UTF-8 become
// one visible character each, so that the caret stays below its target.
std::vector<std::string> columns_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte == '\t') {
      out.emplace_back(" ");
    } else if (length == 0 || byte < 0x20 || byte == 0x7f) {
      out.emplace_back("?");
    } else {
      out.emplace_back(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

struct Position {
  size_t line = 1;        // from 1
  size_t column = 0;      // characters before the span, from 0
  std::string_view text;  // of the line
  size_t length = 1;      // characters of the span on this line, at least 1
};

Position locate(const std::string& text, Span span) {
  const size_t begin = std::min(span.begin, text.size());
  const size_t line_begin = begin == 0 ? 0 : text.rfind('\n', begin - 1) + 1;  // npos + 1 = 0
  size_t line_end = std::min(text.find('\n', begin), text.size());
  if (line_end > begin && text[line_end - 1] == '\r') --line_end;
  const size_t end = std::clamp(span.end, begin, line_end);
  Position out;
  out.line += static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(line_begin), '\n'));
  out.text = std::string_view(text).substr(line_begin, line_end - line_begin);
  out.column = columns_of(out.text.substr(0, begin - line_begin)).size();
  out.length = std::max<size_t>(columns_of(out.text.substr(begin - line_begin, end - begin)).size(), 1);
  return out;
}

std::string join(const std::vector<std::string>& columns, size_t first, size_t last) {
  std::string out;
  for (size_t i = first; i < last; ++i) out += columns[i];
  return out;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Forms longer than needed, surrogates, beyond U+10FFFF.
  const bool bad = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
                   (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return bad ? 0 : length;
}

std::string place_of(const Source& source, Span span) {
  if (!source.is_file) return source.name;
  const Position position = locate(source.text, span);
  return cat(source.name, ":", position.line, ":", position.column + 1);
}

std::string quote(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && end < kQuotedBytes) end += std::max<size_t>(utf8_length(text.substr(end)), 1);
  return cat("'", printable(text.substr(0, end)), end < text.size() ? "...'" : "'");
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? "" : cat("did you mean ", quote(near), "?");
}

void Diagnostics::add(Span span, const std::string& message, const std::string& hint) {
  if (++count_ > kMaxErrors) return;
  const Position position = locate(source_.text, span);
  const std::vector<std::string> columns = columns_of(position.text);
  const size_t first =
      columns.size() > kShownChars && position.column > kShownChars / 2 ? position.column - kShownChars / 2 : 0;
  const size_t last = std::min(columns.size(), first + kShownChars);
  const std::string number = source_.is_file ? std::to_string(position.line) : "";
  const std::string margin(number.size() < 5 ? 5 - number.size() : 0, ' ');
  std::string text = cat(place_of(source_, span), ": error: ", message, "\n");
  text += cat(margin, number, " | ", join(columns, first, last), "\n");
  text += cat(margin, std::string(number.size(), ' '), " | ", std::string(position.column - first, ' '), "^",
              std::string(std::min(position.length, kShownChars) - 1, '~'));
  if (!hint.empty()) text += cat(" ", hint);
  errors_.push_back({span.begin, std::move(text)});
}

std::vector<std::string> Diagnostics::texts() const {
  std::vector<Error> sorted = errors_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Error& a, const Error& b) { return a.offset < b.offset; });
  std::vector<std::string> out;
  for (Error& error : sorted) out.push_back(std::move(error.text));
  if (count_ > errors_.size()) out.push_back(cat(source_.name, ": error: ", count_ - errors_.size(), " more errors"));
  return out;
}

}  // namespace moehost

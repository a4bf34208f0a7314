// Numbers from text with std::from_chars, after the form is checked.
#include "core/config/number.h"

#include <charconv>

#include "core/config/source.h"

namespace moehost {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the digits that text begins with, and says how many they were.
size_t skip_digits(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  text.remove_prefix(count);
  return count;
}

// Removes the first character of text if it is one of `characters`.
bool skip_one_of(std::string_view& text, std::string_view characters) {
  if (text.empty() || characters.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

bool is_real(std::string_view text) {
  skip_one_of(text, "-");
  const bool zero = !text.empty() && text[0] == '0';
  const size_t whole = skip_digits(text);
  if (whole == 0 || (zero && whole > 1)) return false;
  if (skip_one_of(text, ".") && skip_digits(text) == 0) return false;
  if (skip_one_of(text, "eE")) {
    skip_one_of(text, "+-");
    if (skip_digits(text) == 0) return false;
  }
  return text.empty();
}

template <class T>
std::optional<T> convert(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<uint64_t> parse_whole(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  return convert<uint64_t>(text);
}

std::optional<double> parse_real(std::string_view text) {
  if (!is_real(text)) return std::nullopt;
  return convert<double>(text);
}

Result<double> parse_weight(std::string_view text) {
  constexpr double kMaxWeight = 1e9;  // so that sums stay exact enough to share layers by
  const std::optional<double> weight = parse_real(text);
  if (!weight || *weight <= 0 || *weight > kMaxWeight)
    return fail(Code::kBadConfig, "a weight must be a number above 0, at most 1e9, not ", quote(text));
  return *weight;
}

std::string format_real(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace moehost

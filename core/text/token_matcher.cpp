// Tokens spelled out in a text: a sorted list, narrowed byte by byte.
#include "core/text/token_matcher.h"

#include <algorithm>

namespace moehost {

TokenMatcher::TokenMatcher(std::vector<std::pair<std::string, TokenId>> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const auto& token) { return token.first.empty(); });
  std::sort(tokens_.begin(), tokens_.end());
  const auto same_text = [](const auto& a, const auto& b) { return a.first == b.first; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same_text), tokens_.end());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    auto& [begin, end] = ranges_[static_cast<uint8_t>(tokens_[i].first[0])];
    if (end == 0) begin = i;
    end = i + 1;
  }
}

std::optional<TokenMatcher::Match> TokenMatcher::match_at(std::string_view text, size_t begin) const {
  const auto& range = ranges_[static_cast<uint8_t>(text[begin])];
  auto low = tokens_.begin() + static_cast<ptrdiff_t>(range.first);
  auto high = tokens_.begin() + static_cast<ptrdiff_t>(range.second);
  std::optional<Match> longest;
  // Tokens in [low, high) agree with the text in `size` bytes; one of just that size is the first of them.
  for (size_t size = 1; low != high; ++size) {
    if (low->first.size() == size) {
      longest = Match{begin, begin + size, low->second};
      ++low;
    }
    if (begin + size == text.size()) break;
    const auto byte_at = [size](const auto& token) { return static_cast<uint8_t>(token.first[size]); };
    const auto next = static_cast<uint8_t>(text[begin + size]);
    low = std::partition_point(low, high, [&](const auto& token) { return byte_at(token) < next; });
    high = std::partition_point(low, high, [&](const auto& token) { return byte_at(token) == next; });
  }
  return longest;
}

std::optional<TokenMatcher::Match> TokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (ranges_[static_cast<uint8_t>(text[begin])].second == 0) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

}  // namespace moehost

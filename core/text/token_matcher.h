// Finds tokens that are spelled out in a text. Floor 2.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/tokenizer.h"

namespace moehost {

// Immutable, thread-safe.
class TokenMatcher {
 public:
  struct Match {
    size_t begin, end;  // bytes
    TokenId id;
  };
  // Empty texts are left out; of equal ones the first counts.
  explicit TokenMatcher(std::vector<std::pair<std::string, TokenId>> tokens);
  // The leftmost match at or after from; of several that begin there the longest.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::vector<std::pair<std::string, TokenId>> tokens_;  // sorted by text
  std::array<std::pair<size_t, size_t>, 256> ranges_{};  // of tokens_, by first byte
};

}  // namespace moehost

// Merging of neighbouring symbols, best pair first: what every kind of BPE does to a piece of text. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/text/pair_map.h"
#include "core/text/tokenizer.h"

namespace moehost {

// What a pair of symbols merges into; the lowest rank first.
struct Merge {
  uint32_t rank;
  TokenId result;
};
using MergeTable = PairMap<Merge>;

// Applies a table. Keeps its buffers from one piece to the next; one for each thread. O(n log n).
class Merger {
 public:
  struct Symbol {
    TokenId id;
    size_t first;  // index of the start symbol it begins with
  };
  // table outlives the merger.
  explicit Merger(const MergeTable& table) : table_(table) {}
  // Repeatedly merges the pair of lowest rank, the leftmost of equals. A negative id in start merges with nothing.
  // The result is valid until the next call.
  std::span<const Symbol> merge(std::span<const TokenId> start);

 private:
  struct Candidate {
    uint32_t rank;
    uint32_t length;  // of both symbols: tells whether one of them has grown since
    size_t left;      // index of the left symbol
  };
  static bool worse(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
  // Remembers the pair of the symbol at left and the one after it, if they merge.
  void consider(size_t left);
  // Nothing when a symbol of the pair has grown or is gone.
  bool apply(const Candidate& best);

  const MergeTable& table_;
  std::vector<TokenId> ids_;       // of the symbol that begins at an index; kInner within a symbol
  std::vector<uint32_t> lengths_;  // in start symbols, at both ends of a symbol
  std::vector<Candidate> heap_;
  std::vector<Symbol> result_;
};

}  // namespace moehost

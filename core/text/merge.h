// Merging of neighbouring symbols, best pair first: what every kind of BPE does to a piece of text. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/text/tokenizer.h"

namespace moehost {

// Which pairs of symbols merge into which, the lowest rank first.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  // The first rule for a pair counts.
  void add(TokenId left, TokenId right, Merge merge) { merges_.try_emplace(key(left, right), merge); }
  // Null: these do not merge. Valid until the next add.
  const Merge* find(TokenId left, TokenId right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void reserve(size_t merges) { merges_.reserve(merges); }

 private:
  static uint64_t key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // Ids are dense small numbers: without mixing they would share buckets.
  struct Hash {
    size_t operator()(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }
  };
  std::unordered_map<uint64_t, Merge, Hash> merges_;
};

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
    TokenId result;
    size_t left;    // index of the left symbol
    size_t length;  // of both symbols: tells whether one of them has grown since
  };
  static bool worse(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
  // Remembers the pair of the symbol at left and the one after it, if they merge.
  void consider(size_t left);
  void apply(const Candidate& best);

  const MergeTable& table_;
  std::vector<TokenId> ids_;       // of the symbol that begins at an index; kInner within a symbol
  std::vector<uint32_t> lengths_;  // in start symbols, at the first and at the last index of a symbol
  std::vector<Candidate> heap_;
  std::vector<Symbol> result_;
};

}  // namespace moehost

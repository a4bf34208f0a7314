// A hash map from pairs of token ids, made once and then read very often. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/text/tokenizer.h"

namespace moehost {

// Open addressing in one array: a look-up touches one cache line, where std::unordered_map touches three.
template <class Value>
class PairMap {
 public:
  // Keeps what is already there for the pair. Ids are not negative.
  void insert(TokenId left, TokenId right, const Value& value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(key(left, right))];
    if (slot.key != kEmpty) return;
    slot = {key(left, right), value};
    ++size_;
  }
  // Null: no such pair. Valid until the next insert.
  const Value* find(TokenId left, TokenId right) const {
    if (size_ == 0) return nullptr;
    const Slot& slot = slots_[place_of(key(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // the key of (-1, -1)
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };
  static uint64_t key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // Where the key is, or would be put.
  size_t place_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t place = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;  // Fibonacci hashing
    while (slots_[place].key != key && slots_[place].key != kEmpty) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[place_of(slot.key)] = slot;
    }
  }

  size_t size_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace moehost

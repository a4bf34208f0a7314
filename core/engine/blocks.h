// KV blocks: which are free, and the table of a sequence. Floor 5. Not thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace moehost {

// All blocks of one kv group: which are free. Block ids are 0 .. block_count - 1.
class BlockPool {
 public:
  BlockPool(uint32_t block_count, uint32_t block_tokens);
  uint32_t block_tokens() const { return block_tokens_; }
  uint32_t free_blocks() const { return static_cast<uint32_t>(free_.size()); }

 private:
  friend class BlockTable;
  uint32_t block_tokens_;
  std::vector<int32_t> free_;
};

// The blocks of one sequence; gives them back when it ends.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(pool) {}
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable();
  // Enough blocks for `tokens` positions. kNoResource when the pool is empty; the table is unchanged then.
  Status grow(uint32_t tokens);
  std::span<const int32_t> blocks() const { return blocks_; }

 private:
  BlockPool& pool_;
  std::vector<int32_t> blocks_;
};

}  // namespace moehost

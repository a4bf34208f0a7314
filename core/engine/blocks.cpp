// KV blocks.
#include "core/engine/blocks.h"

namespace moehost {

BlockPool::BlockPool(uint32_t block_count, uint32_t block_tokens) : block_tokens_(block_tokens) {
  for (uint32_t i = block_count; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

BlockTable::~BlockTable() { pool_.free_.insert(pool_.free_.end(), blocks_.rbegin(), blocks_.rend()); }

Status BlockTable::grow(uint32_t tokens) {
  const size_t wanted = (tokens + pool_.block_tokens_ - 1) / pool_.block_tokens_;
  if (wanted <= blocks_.size()) return {};
  const size_t more = wanted - blocks_.size();
  if (more > pool_.free_.size())
    return fail(Code::kNoResource, "the KV cache has ", pool_.free_.size(), " free blocks of ", pool_.block_tokens_,
                " tokens, ", more, " are needed");
  for (size_t i = 0; i < more; ++i) {
    blocks_.push_back(pool_.free_.back());
    pool_.free_.pop_back();
  }
  return {};
}

}  // namespace moehost

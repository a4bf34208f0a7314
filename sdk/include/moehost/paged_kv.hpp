// paged_kv.hpp - a paged cache in host memory. Header-only C++17.
//
// Layout: [layers][K then V][blocks][kv heads][block tokens][cols], in the formats of the description (F32, F16, BF16):
// the tokens of a head in a block follow one another. Without a V of its own (a prefix of K) there is no V part.
#pragma once
#include "codec.hpp"
#include "device.hpp"

#pragma GCC visibility push(hidden)
namespace mh {

class PagedKv : public Kv {
 public:
  // What the constructor charges to the account. Throws MH_UNSUPPORTED for another kind or format.
  static uint64_t bytes(const mh_kv_desc& desc) {
    if (desc.kind != MH_KV_PAGED) fail(MH_UNSUPPORTED, "kv kind ", desc.kind, ": only paged caches (0)");
    for (const uint32_t format : {desc.k_format, desc.v_is_prefix_of_k ? desc.k_format : desc.v_format})
      if (format != MH_FORMAT_F32 && format != MH_FORMAT_F16 && format != MH_FORMAT_BF16)
        fail(MH_UNSUPPORTED, "kv format ", format, ": F32, F16 or BF16");
    return checked_mul(layer_bytes(desc), desc.layers);
  }
  PagedKv(const mh_kv_desc& desc, MemoryAccount& account)
      : Kv(desc),
        memory_(account, bytes(desc), MH_MEMORY_HUGE),
        layer_(layer_bytes(desc)),
        k_row_(row_bytes(desc.k_format, desc.k_cols)),
        v_row_(desc.v_is_prefix_of_k ? 0 : row_bytes(desc.v_format, desc.v_cols)) {}

  // K of `block_tokens` tokens of a head: rows of k_row_bytes().
  std::byte* k(uint32_t layer, uint32_t block, uint32_t head) const {
    return k_block(layer, block) + head_bytes(k_row_, head);
  }
  // V likewise; the same rows as K where V is a prefix of K, to be decoded in K's format.
  std::byte* v(uint32_t layer, uint32_t block, uint32_t head) const {
    if (desc().v_is_prefix_of_k) return k(layer, block, head);
    return v_block(layer, block) + head_bytes(v_row_, head);
  }
  uint64_t k_row_bytes() const { return k_row_; }
  uint64_t v_row_bytes() const { return desc().v_is_prefix_of_k ? k_row_ : v_row_; }
  uint32_t v_format() const { return desc().v_is_prefix_of_k ? desc().k_format : desc().v_format; }

  void copy_block(uint32_t layer, uint32_t from, uint32_t to) override {
    std::memcpy(k_block(layer, to), k_block(layer, from), head_bytes(k_row_, desc().kv_heads));
    if (v_row_) std::memcpy(v_block(layer, to), v_block(layer, from), head_bytes(v_row_, desc().kv_heads));
  }

 private:
  static uint64_t layer_bytes(const mh_kv_desc& d) {
    const uint64_t v = d.v_is_prefix_of_k ? 0 : row_bytes(d.v_format, d.v_cols);
    const uint64_t token = checked_mul(checked_add(row_bytes(d.k_format, d.k_cols), v), d.kv_heads);
    return checked_mul(checked_mul(token, d.block_tokens), d.block_count);
  }
  uint64_t head_bytes(uint64_t row, uint64_t heads) const { return row * desc().block_tokens * heads; }
  std::byte* k_block(uint32_t layer, uint32_t block) const {
    return memory_.data() + layer * layer_ + block * head_bytes(k_row_, desc().kv_heads);
  }
  std::byte* v_block(uint32_t layer, uint32_t block) const {
    const uint64_t k_part = desc().block_count * head_bytes(k_row_, desc().kv_heads);
    return memory_.data() + layer * layer_ + k_part + block * head_bytes(v_row_, desc().kv_heads);
  }
  HostMemory memory_;
  const uint64_t layer_, k_row_, v_row_;  // bytes
};

}  // namespace mh
#pragma GCC visibility pop

// stored_op.hpp - an op that keeps its weights as they are stored, rows tightly packed, in one counted allocation.
// Enough for a backend that decodes on the fly; one that repacks derives from mh::Op itself. Header-only C++17.
#pragma once
#include "codec.hpp"
#include "device.hpp"

#pragma GCC visibility push(hidden)
namespace mh {

// Bytes of a weight with tightly packed rows, all slabs.
inline uint64_t packed_bytes(const mh_weight& w) {
  return checked_mul(checked_mul(row_bytes(w.format, w.cols), w.rows), w.slab_count);
}

// One weight of a StoredOp: slabs of [rows, cols].
struct StoredWeight {
  const std::byte* data = nullptr;  // null: absent
  uint32_t format = 0, slabs = 0;
  uint64_t rows = 0, cols = 0, row_size = 0;  // row_size in bytes
  explicit operator bool() const { return data != nullptr; }
  const std::byte* row(uint64_t slab, uint64_t r) const { return data + (slab * rows + r) * row_size; }
  // The row as f32. out: [cols]
  void decode(uint64_t slab, uint64_t r, float* out) const { decode_row(format, row(slab, r), cols, out); }
  // For F32 weights: the row in place.
  const float* floats(uint64_t slab, uint64_t r) const { return reinterpret_cast<const float*>(row(slab, r)); }
};

class StoredOp : public Op {
 public:
  // What the constructor charges to the account.
  static uint64_t resident_bytes(const mh_op_desc& desc) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < desc.weight_count; ++s)
      if (const mh_weight* w = desc.weights[s]) sum = checked_add(sum, align_up(packed_bytes(*w)));
    return sum;
  }
  StoredOp(const mh_op_desc& desc, MemoryAccount& account)
      : Op(desc), memory_(account, resident_bytes(desc)), weights_(desc.weight_count) {
    std::byte* to = memory_.data();
    for (uint32_t s = 0; s < desc.weight_count; ++s) {
      const mh_weight* w = desc.weights[s];
      if (!w) continue;
      weights_[s] = {to, w->format, w->slab_count, w->rows, w->cols, row_bytes(w->format, w->cols)};
      std::byte* row = to;
      for (uint32_t i = 0; i < w->slab_count; ++i)
        for (uint64_t r = 0; r < w->rows; ++r, row += weights_[s].row_size)
          std::memcpy(row, static_cast<const std::byte*>(w->slabs[i]) + r * w->row_stride_bytes, weights_[s].row_size);
      to += align_up(packed_bytes(*w));
    }
  }
  // By slot; false where the description has none.
  StoredWeight weight(uint32_t slot) const { return slot < weights_.size() ? weights_[slot] : StoredWeight{}; }

 private:
  HostMemory memory_;
  std::vector<StoredWeight> weights_;
};

}  // namespace mh
#pragma GCC visibility pop

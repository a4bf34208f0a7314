// Packing of an op's weights into one allocation.
#include "plugins/cpu/weights.h"

#include "moehost/codec.hpp"

namespace mh_cpu {
namespace {

// Slots that hold matrices; the others hold vectors.
bool is_matrix(uint32_t kind, uint32_t slot) {
  if (kind == MH_OP_EXPERTS || kind == MH_OP_FFN) return slot <= MH_DOWN;
  return slot == 0 && (kind == MH_OP_LINEAR || kind == MH_OP_HEAD_LINEAR);
}

uint64_t row_groups(const mh_weight& w) { return mh::checked_add(w.rows, kGroupRows - 1) / kGroupRows; }

uint64_t packed_bytes(const mh_weight& w, bool matrix) {
  if (!matrix) return mh::align_up(mh::checked_mul(mh::checked_mul(w.cols, w.slab_count), sizeof(float)));
  const Format& format = format_at(static_cast<uint32_t>(format_index(w.format)));
  return mh::align_up(mh::checked_mul(mh::checked_mul(row_groups(w), w.slab_count), group_bytes(format, w.cols)));
}

Matrix pack_matrix(const mh_weight& w, uint8_t* out, ThreadPool& pool) {
  Matrix m;
  m.data = out, m.format = static_cast<uint32_t>(format_index(w.format)), m.slabs = w.slab_count;
  m.rows = static_cast<uint32_t>(w.rows), m.cols = static_cast<uint32_t>(w.cols);
  m.groups = static_cast<uint32_t>(row_groups(w));
  const Format& format = format_at(m.format);
  m.group_bytes = group_bytes(format, m.cols);
  pool.run(m.groups, [&](uint32_t g, uint32_t) {
    const uint32_t first = g * kGroupRows, count = std::min(kGroupRows, m.rows - first);
    for (uint32_t s = 0; s < m.slabs; ++s)
      pack_group(format, static_cast<const std::byte*>(w.slabs[s]) + first * w.row_stride_bytes, w.row_stride_bytes,
                 count, m.cols, out + (uint64_t{s} * m.groups + g) * m.group_bytes);
  });
  return m;
}

}  // namespace

void PackedOp::check(const mh_op_desc& desc) {
  for (uint32_t slot = 0; slot < desc.weight_count; ++slot) {
    if (!desc.weights[slot]) continue;
    const mh_weight& w = *desc.weights[slot];
    const char* name = mh::find_format(w.format)->name;
    if (w.scales || w.zeros || w.scale_block_rows || w.scale_block_cols)
      mh::fail(MH_UNSUPPORTED, "weight ", slot, " of op kind ", desc.kind,
               " has scales beside it: only GGUF formats here");
    if (is_matrix(desc.kind, slot) && format_index(w.format) < 0)
      mh::fail(MH_UNSUPPORTED, "weight ", slot, " of op kind ", desc.kind, " is ", name,
               ": F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K and MXFP4 are known");
    if (!is_matrix(desc.kind, slot) && !mh::can_decode(w.format))
      mh::fail(MH_UNSUPPORTED, "weight ", slot, " of op kind ", desc.kind, " is a vector in ", name, ": known are ",
               mh::kDecodedFormats);
    if (w.rows > INT32_MAX || w.cols > INT32_MAX)
      mh::fail(MH_UNSUPPORTED, "weight ", slot, " of op kind ", desc.kind, " is [", w.rows, ", ", w.cols,
               "]: at most 2^31 - 1 rows and columns");
  }
}

uint64_t PackedOp::resident_bytes(const mh_op_desc& desc) {
  uint64_t sum = 0;
  for (uint32_t slot = 0; slot < desc.weight_count; ++slot)
    if (desc.weights[slot]) sum = mh::checked_add(sum, packed_bytes(*desc.weights[slot], is_matrix(desc.kind, slot)));
  return sum;
}

PackedOp::PackedOp(const mh_op_desc& desc, mh::MemoryAccount& account, ThreadPool& pool)
    : Op(desc), memory_(account, resident_bytes(desc), MH_MEMORY_HUGE) {
  std::byte* out = memory_.data();
  for (uint32_t slot = 0; slot < desc.weight_count; ++slot) {
    if (!desc.weights[slot]) continue;
    const mh_weight& w = *desc.weights[slot];
    if (is_matrix(desc.kind, slot)) {
      matrices_[slot] = pack_matrix(w, reinterpret_cast<uint8_t*>(out), pool);
    } else {
      float* values = reinterpret_cast<float*>(out);
      vectors_[slot] = {values, static_cast<uint32_t>(w.cols)};
      for (uint32_t s = 0; s < w.slab_count; ++s)
        mh::decode_row(w.format, static_cast<const std::byte*>(w.slabs[s]), w.cols, values + s * w.cols);
    }
    out += packed_bytes(w, is_matrix(desc.kind, slot));
  }
  if (desc.kind != MH_OP_EXPERTS) return;
  const auto& p = params<mh_experts_params>();
  slots_.assign(p.experts, -1);
  for (uint32_t s = 0; s < p.slot_count; ++s) slots_[static_cast<size_t>(p.expert_ids[s])] = static_cast<int32_t>(s);
}

}  // namespace mh_cpu

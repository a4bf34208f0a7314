// A Program made by hand: the shape of a Mixture-of-Experts transformer without weights.
#pragma once
#include <vector>

#include "core/model/program.h"

namespace moehost::testing_support {

// Layers of {norm, attention, add, norm, route, experts or ffn, shared ffn, add}; the first dense_layers have no
// experts.
inline Program toy_program(uint32_t layers, uint32_t experts, uint32_t dense_layers = 0) {
  Program p;
  p.layers = layers, p.experts = experts, p.model_dim = 32, p.vocab_size = 50, p.context_length = 128;
  p.kv_groups = {{layers, 1, 32, 32, false}};
  int32_t layer = -1;
  const auto value = [&](uint32_t rows = MH_ROWS_TOKENS, uint32_t cols = 32, uint32_t format = MH_FORMAT_F32) {
    const auto id = static_cast<ValueId>(p.values.size());
    p.values.push_back({"v", {id, rows, format, 1, cols, cols, 0, 0}});
    return id;
  };
  const auto op = [&](uint32_t kind, std::vector<ValueId> in, std::vector<ValueId> out) -> ProgramOp& {
    ProgramOp o;
    o.name = "blk." + std::to_string(layer) + ".op" + std::to_string(kind);
    o.kind = kind, o.layer = layer, o.inputs = std::move(in), o.outputs = std::move(out);
    p.ops.push_back(std::move(o));
    return p.ops.back();
  };
  ValueId x = value();
  op(MH_OP_EMBED, {}, {x});
  for (layer = 0; layer < static_cast<int32_t>(layers); ++layer) {
    const ValueId n = value(), a = value(), y = value(), m = value();
    op(MH_OP_RMS_NORM, {x}, {n});
    ProgramOp& attention = op(MH_OP_ATTENTION, {n, n, n}, {a});
    attention.params = mh_attention_params{};
    op(MH_OP_ADD, {x, a}, {y});
    op(MH_OP_RMS_NORM, {y}, {m});
    const ValueId next = value(), out = value(), shared = value();
    if (layer < static_cast<int32_t>(dense_layers)) {
      op(MH_OP_FFN, {m}, {out});
    } else {
      const ValueId ids = value(MH_ROWS_TOKENS, 2, MH_FORMAT_I32), weights = value(MH_ROWS_TOKENS, 2);
      op(MH_OP_ROUTE, {m}, {ids, weights});
      ProgramOp& e = op(MH_OP_EXPERTS, {m, ids, weights}, {out});
      e.part = Part::kExperts;
      e.params = mh_experts_params{};
      e.weights.resize(6);
      for (uint32_t slot = 0; slot < 3; ++slot) {
        Weight w;
        w.format = MH_FORMAT_F32, w.rows = slot == MH_DOWN ? 32 : 64, w.cols = slot == MH_DOWN ? 64 : 32;
        w.row_stride_bytes = w.cols * 4, w.slab_count = experts;
        w.slabs.resize(experts);
        e.weights[slot] = w;
      }
    }
    op(MH_OP_FFN, {m}, {shared});
    op(MH_OP_ADD, {y, out, shared}, {next});
    x = next;
  }
  const ValueId rows = value(MH_ROWS_OUTPUTS);
  op(MH_OP_TAKE_ROWS, {x}, {rows});
  p.logits = value(MH_ROWS_OUTPUTS, 50);
  op(MH_OP_LINEAR, {rows}, {p.logits});
  return p;
}

}  // namespace moehost::testing_support

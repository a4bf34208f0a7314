// Feed-forward networks of the reference: routed experts, and the dense network as one expert with weight 1.
//
// Tokens go in tiles, so that a weight row is decoded once for a tile and the f64 sums stay small.
#include "ops.h"

namespace reference {
namespace {

constexpr uint32_t kTile = 64;

struct Row {
  uint32_t in_tile;
  double weight;
};

struct Buffers {
  double *sums, *hidden;    // [kTile, D], [kTile, F]
  float *gate, *up, *down;  // a decoded row each
  Row* rows;                // [kTile]: what goes through the expert at hand
  Buffers(Scratch& scratch, uint64_t model_dim, uint64_t expert_dim)
      : sums(scratch.take<double>(kTile * model_dim)),
        hidden(scratch.take<double>(kTile * expert_dim)),
        gate(scratch.take<float>(model_dim)),
        up(scratch.take<float>(model_dim)),
        down(scratch.take<float>(expert_dim)),
        rows(scratch.take<Row>(kTile)) {}
};

double bias_at(const StoredWeight& bias, uint64_t slab, uint64_t i) { return bias ? bias.floats(slab, 0)[i] : 0; }

// Adds weight * down(act(gate x) * up x) of one slab for `count` rows of the tile that begins at row `first` of x.
void run_slab(const StoredOp& op, uint64_t slab, const View& x, uint32_t first, uint32_t count, const Buffers& b) {
  const auto& p = op.params<mh_experts_params>();
  const StoredWeight gate = op.weight(MH_GATE), up = op.weight(MH_UP), down = op.weight(MH_DOWN);
  const StoredWeight gate_bias = op.weight(MH_GATE_BIAS), up_bias = op.weight(MH_UP_BIAS);
  const StoredWeight down_bias = op.weight(MH_DOWN_BIAS);
  const uint64_t model_dim = x.cols, expert_dim = up.rows;
  for (uint64_t f = 0; f < expert_dim; ++f) {
    up.decode(slab, f, b.up);
    if (gate) gate.decode(slab, f, b.gate);
    for (uint32_t i = 0; i < count; ++i) {
      const float* from = x.row(first + b.rows[i].in_tile);
      const double factor = p.weigh_input ? b.rows[i].weight : 1;
      const double u = factor * dot(b.up, from, model_dim) + bias_at(up_bias, slab, f);
      const double g = gate ? factor * dot(b.gate, from, model_dim) + bias_at(gate_bias, slab, f) : 0;
      b.hidden[i * expert_dim + f] = gate ? gated_activation(p.activation, g, u) : activation(p.activation, u);
    }
  }
  for (uint64_t d = 0; d < model_dim; ++d) {
    down.decode(slab, d, b.down);
    for (uint32_t i = 0; i < count; ++i) {
      const double factor = p.weigh_input ? 1 : b.rows[i].weight;
      const double y = dot(b.down, b.hidden + i * expert_dim, expert_dim) + bias_at(down_bias, slab, d);
      b.sums[b.rows[i].in_tile * model_dim + d] += factor * y;
    }
  }
}

// For every tile of x: zero the sums, let `fill` add to them, write them out.
template <class F>
void for_each_tile(const StoredOp& op, const Call& call, F&& fill) {
  const View &x = call.in[0], &y = call.out[0];
  Scratch scratch(call.scratch);
  const Buffers b(scratch, x.cols, op.weight(MH_UP).rows);
  for (uint32_t first = 0; first < y.rows; first += kTile) {
    const uint32_t tokens = std::min(kTile, y.rows - first);
    std::fill_n(b.sums, uint64_t{tokens} * x.cols, 0.0);
    fill(first, tokens, b);
    for (uint32_t t = 0; t < tokens; ++t)
      for (uint32_t d = 0; d < x.cols; ++d) y.row(first + t)[d] = static_cast<float>(b.sums[uint64_t{t} * x.cols + d]);
  }
}

}  // namespace

uint64_t network_scratch(const mh_op_desc& desc) {
  Scratch scratch(nullptr);
  Buffers(scratch, desc.in_cols[0], desc.weights[MH_UP]->rows);
  return scratch.bytes();
}

// x [T, D], ids [T, K], weights [T, K] -> [T, D]: for each row the owned experts in ascending global id.
void experts(const StoredOp& op, const Call& call) {
  const auto& p = op.params<mh_experts_params>();
  const View &x = call.in[0], &ids = call.in[1], &weights = call.in[2];
  for_each_tile(op, call, [&](uint32_t first, uint32_t tokens, const Buffers& b) {
    for (uint32_t slot = 0; slot < p.slot_count; ++slot) {
      uint32_t count = 0;
      for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t k = 0; k < ids.cols; ++k) {
          if (ids.row<int32_t>(first + t)[k] != p.expert_ids[slot]) continue;
          b.rows[count++] = {t, double{weights.row(first + t)[k]}};
          if (count < kTile) continue;
          run_slab(op, slot, x, first, count, b);
          count = 0;
        }
      if (count) run_slab(op, slot, x, first, count, b);
    }
  });
}

// [T, D] -> [T, D].
void ffn(const StoredOp& op, const Call& call) {
  for_each_tile(op, call, [&](uint32_t first, uint32_t tokens, const Buffers& b) {
    for (uint32_t t = 0; t < tokens; ++t) b.rows[t] = {t, 1};
    run_slab(op, 0, call.in[0], first, tokens, b);
  });
}

}  // namespace reference

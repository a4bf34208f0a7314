// backend_template: the smallest backend that is of use. It runs the routed experts of a model, gated SiLU networks
// with f32 weights, and nothing else: core places only the experts on it.
//
// Rename it (this file, the .json, kId, the names in both CMake lines), then make run() yours.
#include <cmath>

#include "moehost/stored_op.hpp"

namespace {

class Template final : public mh::Backend {
 public:
  static constexpr const char* kId = "backend_template";
  using Backend::Backend;

  // What we can do, and what it takes. The helper has checked the description; here we refuse what we lack.
  mh_op_cost cost(const mh_op_desc& desc) override {
    if (desc.kind != MH_OP_EXPERTS) mh::fail(MH_UNSUPPORTED, "op kind ", desc.kind, ": only experts (8)");
    const auto& p = *static_cast<const mh_experts_params*>(desc.params);
    if (!desc.weights[MH_GATE] || p.activation.kind != MH_ACT_SILU || p.weigh_input)
      mh::fail(MH_UNSUPPORTED, "experts: only gated SiLU, weighted at the output");
    for (uint32_t s = 0; s < desc.weight_count; ++s)
      if (desc.weights[s] && (s > MH_DOWN || !mh::can_decode(desc.weights[s]->format)))
        mh::fail(MH_UNSUPPORTED, "experts: weight ", s, " is a bias, or not one of ", mh::kDecodedFormats);
    mh_op_cost cost{};
    cost.verdict = MH_SLOW;
    cost.resident_bytes = mh::StoredOp::resident_bytes(desc);
    cost.slice_align = mh::find_format(desc.weights[MH_DOWN]->format)->block_elements;  // a cut of F cuts down's rows
    return cost;
  }

  // Keeps the weights as they are. A backend that repacks derives from mh::Op and allocates mh::HostMemory.
  std::unique_ptr<mh::Op> load(const mh_op_desc& desc) override {
    return std::make_unique<mh::StoredOp>(desc, memory());
  }

  uint64_t scratch_bytes(const mh_op_desc& desc) override {
    const uint64_t model_dim = desc.in_cols[0], expert_dim = desc.weights[MH_UP]->rows;
    return (expert_dim + std::max(model_dim, expert_dim)) * sizeof(float);
  }

  // x: [T, D] f32, ids: [T, K] i32, weights: [T, K] f32 -> y: [T, D] f32. Of every row's experts we add those that we
  // own, in ascending id, each times its weight; a row without one is zero.
  void run(const mh::Op& base, const mh::Call& call) override {
    const auto& op = static_cast<const mh::StoredOp&>(base);
    const auto& p = op.params<mh_experts_params>();
    const mh::View &x = call.in[0], &ids = call.in[1], &weights = call.in[2], &y = call.out[0];
    const mh::StoredWeight gate = op.weight(MH_GATE), up = op.weight(MH_UP), down = op.weight(MH_DOWN);
    auto* hidden = reinterpret_cast<float*>(call.scratch);  // [F]
    float* row = hidden + up.rows;                          // [max(D, F)], one row of a matrix
    const auto dot = [row](const mh::StoredWeight& w, uint64_t slot, uint64_t r, const float* with) {
      w.decode(slot, r, row);
      double sum = 0;
      for (uint64_t i = 0; i < w.cols; ++i) sum += double{row[i]} * double{with[i]};
      return static_cast<float>(sum);
    };
    for (uint32_t t = 0; t < y.rows; ++t) {
      std::fill_n(y.row(t), y.cols, 0.0F);
      for (uint32_t slot = 0; slot < p.slot_count; ++slot)
        for (uint32_t k = 0; k < ids.cols; ++k) {
          if (ids.row<int32_t>(t)[k] != p.expert_ids[slot]) continue;
          for (uint64_t f = 0; f < up.rows; ++f) {
            const float g = dot(gate, slot, f, x.row(t));
            hidden[f] = g / (1 + std::exp(-g)) * dot(up, slot, f, x.row(t));
          }
          for (uint32_t d = 0; d < y.cols; ++d) y.row(t)[d] += weights.row(t)[k] * dot(down, slot, d, hidden);
        }
    }
  }
};

}  // namespace

MH_PLUGIN(Template)

// Op descriptions in the form of the device ABI.
#include "core/placement/placed.h"

namespace moehost {

struct OpDescription::Parts {
  mh_op_desc desc{};
  Params params;
  mh_kv_desc kv_desc{};
  std::vector<int32_t> expert_ids;
  std::vector<mh_weight> weights;
  std::vector<const mh_weight*> list;
  std::vector<std::vector<const void*>> slabs;
};

OpDescription::OpDescription(const PlacedProgram& program, const PlacedOp& placed) : parts_(std::make_shared<Parts>()) {
  Parts& p = *parts_;
  const ProgramOp& op = placed.op;
  const auto view = [&](ValueId id) -> const mh_value& { return program.values[id].view; };
  p.desc.size = sizeof p.desc;
  p.desc.kind = op.kind;
  p.desc.max_rows = program.max_rows(op.outputs[0]);
  p.desc.in_groups = op.inputs.empty() ? 1 : view(op.inputs[0]).groups;
  p.desc.out_groups = view(op.outputs[0]).groups;
  const size_t inputs = op.kind == MH_OP_ADD ? 1 : op.inputs.size();  // one entry stands for all terms
  for (size_t i = 0; i < inputs && i < 4; ++i) p.desc.in_cols[i] = view(op.inputs[i]).cols;
  for (size_t i = 0; i < op.outputs.size(); ++i) p.desc.out_cols[i] = view(op.outputs[i]).cols;

  p.weights.resize(op.weights.size());
  p.slabs.resize(op.weights.size());
  for (size_t s = 0; s < op.weights.size(); ++s) {
    p.list.push_back(op.weights[s] ? &p.weights[s] : nullptr);
    if (!op.weights[s]) continue;
    const Weight& w = *op.weights[s];
    p.slabs[s].assign(w.slabs.begin(), w.slabs.end());
    mh_weight& to = p.weights[s];
    to.size = sizeof to, to.format = w.format;
    to.rows = w.rows, to.cols = w.cols, to.row_stride_bytes = w.row_stride_bytes, to.slab_count = w.slab_count;
  }
  p.desc.weight_count = static_cast<uint32_t>(p.list.size());
  p.desc.weights = p.list.data();

  p.params = op.params;
  p.expert_ids = placed.expert_ids;
  if (auto* experts = std::get_if<mh_experts_params>(&p.params); experts && op.kind == MH_OP_EXPERTS) {
    experts->slot_count = static_cast<uint32_t>(p.expert_ids.size());
    experts->expert_ids = p.expert_ids.data();
  }
  if (auto* attention = std::get_if<mh_attention_params>(&p.params)) {
    p.kv_desc = program.kvs[*placed.kv].desc;
    attention->layer = op.kv_layer;
    attention->kv_desc = &p.kv_desc;
  }
  p.desc.params = std::visit(
      [](const auto& value) -> const void* {
        return std::is_same_v<std::decay_t<decltype(value)>, std::monostate> ? nullptr
                                                                             : static_cast<const void*>(&value);
      },
      p.params);
}

const mh_op_desc& OpDescription::describe(bool with_data, mh_kv* kv) {
  Parts& p = *parts_;
  for (size_t s = 0; s < p.weights.size(); ++s) p.weights[s].slabs = with_data ? p.slabs[s].data() : nullptr;
  if (auto* attention = std::get_if<mh_attention_params>(&p.params)) attention->kv = kv;
  return p.desc;
}

}  // namespace moehost

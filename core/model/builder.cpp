// ProgramBuilder: ops and views, with shapes checked against the file's tensors.
#include "core/model/builder.h"

#include <cstring>

#include "core/format/codec.h"
#include "core/format/dtype.h"

namespace moehost {
namespace {

template <class P>
P params_of() {
  P p{};
  p.size = sizeof p;
  return p;
}

std::string shape_text(const GgufTensor& t) {
  std::string out = "{";
  for (uint32_t i = 0; i < t.dimensions; ++i) out += cat(i ? ", " : "", t.shape[i]);
  return out + "}";
}

}  // namespace

ProgramBuilder::ProgramBuilder(const GgufFile& file, const HyperParameters& hyper) : file_(file), hyper_(hyper) {
  program_.architecture = hyper.architecture;
  program_.name = hyper.name;
  program_.layers = hyper.layers;
  program_.model_dim = hyper.model_dim;
  program_.vocab_size = hyper.vocab_size;
  program_.context_length = hyper.context_length;
  program_.experts = hyper.experts;
  program_.experts_per_token = hyper.experts_per_token;
}

void ProgramBuilder::begin_layer(uint32_t layer) { layer_ = static_cast<int32_t>(layer); }

std::string ProgramBuilder::full_name(const std::string& name) const {
  const bool inside = layer_ >= 0 && layer_ < static_cast<int32_t>(hyper_.layers);
  return inside ? cat("blk.", layer_, ".", name) : name;
}
std::string ProgramBuilder::op_name(const std::string& name) const { return full_name(name); }

const GgufTensor* ProgramBuilder::tensor(const std::string& name, const char* ending) const {
  return file_.tensor(full_name(name) + ending);
}
bool ProgramBuilder::has(const std::string& name) const { return tensor(name) != nullptr; }

// ---- values

ValueId ProgramBuilder::add_value(std::string name, uint32_t rows, uint32_t format, uint32_t groups, uint32_t cols) {
  const auto id = static_cast<ValueId>(program_.values.size());
  program_.values.push_back({std::move(name), {id, rows, format, groups, cols, cols, 0, 0}});
  return id;
}

ValueId ProgramBuilder::add_view(ValueId x, uint32_t groups, uint32_t cols, uint32_t stride, uint32_t offset) {
  const mh_value v = view(x);
  program_.values.push_back({program_.values[x].name, {v.root, v.rows, v.format, groups, cols, stride, offset, 0}});
  return static_cast<ValueId>(program_.values.size() - 1);
}

ValueId ProgramBuilder::make(const std::string& name, uint32_t groups, uint32_t cols) {
  return add_value(op_name(name), MH_ROWS_TOKENS, MH_FORMAT_F32, groups, cols);
}

ValueId ProgramBuilder::heads(ValueId x, uint32_t groups) {
  const mh_value v = view(x);
  if (v.groups != 1 || v.cols % groups) {
    refuse(program_.values[x].name, " of width ", v.cols, " is not ", groups, " heads");
    return x;
  }
  return add_view(x, groups, v.cols / groups, v.cols / groups, v.offset);
}

ValueId ProgramBuilder::flat(ValueId x) {
  const mh_value v = view(x);
  MOEHOST_CHECK(v.groups == 1 || v.group_stride == v.cols);
  return add_view(x, 1, v.groups * v.cols, v.groups * v.cols, v.offset);
}

ValueId ProgramBuilder::window(ValueId x, uint32_t first, uint32_t cols) {
  const mh_value v = view(x);
  if (first > v.cols || cols > v.cols - first) {
    refuse(program_.values[x].name, " of width ", v.cols, " has no columns ", first, " to ", uint64_t{first} + cols);
    return x;
  }
  return add_view(x, v.groups, cols, v.group_stride, v.offset + first);
}

// ---- weights

Weight ProgramBuilder::weight(const std::string& name, uint64_t rows, uint64_t cols, uint32_t slabs) {
  Weight w;
  w.name = full_name(name) + ".weight";
  w.rows = rows, w.cols = cols, w.slab_count = slabs;
  const GgufTensor* t = tensor(name);
  if (!t) {
    refuse("the tensor ", w.name, " is missing");
    return w;
  }
  if (t->shape[0] != cols || t->shape[1] != rows || t->shape[2] != slabs || t->shape[3] != 1) {
    refuse("the tensor ", w.name, " has shape ", shape_text(*t), ", expected {", cols, ", ", rows,
           slabs > 1 ? cat(", ", slabs) : std::string(), "}");
    return w;
  }
  w.format = t->format;
  w.row_stride_bytes = row_bytes(t->format, cols).value_or(0);
  for (uint32_t s = 0; s < slabs; ++s) w.slabs.push_back(t->data + s * rows * w.row_stride_bytes);
  return w;
}

Weight ProgramBuilder::vector_weight(const GgufTensor& t, uint64_t elements) {
  Weight w;
  w.name = t.name;
  w.rows = 1, w.cols = elements;
  if (t.shape[0] != elements || t.bytes != row_bytes(t.format, elements).value_or(0)) {
    refuse("the tensor ", t.name, " has shape ", shape_text(t), ", expected {", elements, "}");
    return w;
  }
  w.format = t.format;
  w.row_stride_bytes = t.bytes;
  w.slabs = {t.data};
  return w;
}

std::optional<Weight> ProgramBuilder::bias(const std::string& name, uint64_t elements, uint32_t slabs) {
  const GgufTensor* t = tensor(name, ".bias");
  if (!t) return std::nullopt;
  if (slabs == 1) return vector_weight(*t, elements);
  Weight w = vector_weight(*t, t->shape[0]);
  if (t->shape[0] != elements || t->shape[1] != slabs)
    refuse("the tensor ", t->name, " has shape ", shape_text(*t), ", expected {", elements, ", ", slabs, "}");
  w.slab_count = slabs;
  for (uint32_t s = 1; s < slabs && !w.slabs.empty(); ++s) w.slabs.push_back(t->data + s * w.row_stride_bytes);
  return w;
}

RopeTable ProgramBuilder::rope_table() {
  std::vector<float> divisors;
  if (const GgufTensor* t = file_.tensor("rope_freqs.weight")) {
    if (t->format != MH_FORMAT_F32 || t->shape[0] != hyper_.rope.dims / 2 || t->dimensions != 1) {
      refuse("the tensor rope_freqs.weight has shape ", shape_text(*t), ", expected {", hyper_.rope.dims / 2, "} F32");
    } else {
      divisors.resize(t->shape[0]);
      std::memcpy(divisors.data(), t->data, t->bytes);
    }
  }
  return make_rope_table(hyper_.rope, divisors);
}

// ---- ops

ProgramOp& ProgramBuilder::add_op(const std::string& name, uint32_t kind, std::vector<ValueId> inputs,
                                  std::vector<ValueId> outputs) {
  ProgramOp op;
  op.name = op_name(name);
  op.kind = kind;
  op.layer = layer_;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  program_.ops.push_back(std::move(op));
  return program_.ops.back();
}

ValueId ProgramBuilder::embed(float factor) {
  const ValueId out = make("token_embd", 1, hyper_.model_dim);
  Weight table = weight("token_embd", hyper_.vocab_size, hyper_.model_dim);
  ProgramOp& op = add_op("token_embd", MH_OP_EMBED, {}, {out});
  op.weights = {std::move(table)};
  auto p = params_of<mh_embed_params>();
  p.factor = factor;
  op.params = p;
  program_.layer_outputs.push_back(out);
  return out;
}

ValueId ProgramBuilder::rms_norm(ValueId x, const std::string& name, float eps, ValueId into) {
  const mh_value v = view(x);
  std::optional<Weight> w;
  if (const GgufTensor* t = tensor(name))
    w = vector_weight(*t, v.cols);
  else
    refuse("the tensor ", full_name(name), ".weight is missing");
  const ValueId out = into == kFresh ? make(name, v.groups, v.cols) : into;
  ProgramOp& op = add_op(name, MH_OP_RMS_NORM, {x}, {out});
  op.weights = {std::move(w)};
  auto p = params_of<mh_rms_norm_params>();
  p.eps = eps;
  op.params = p;
  return out;
}

ValueId ProgramBuilder::linear(ValueId x, const std::string& name, uint32_t out_cols) {
  Weight w = weight(name, out_cols, view(x).cols);
  std::optional<Weight> b = bias(name, out_cols, 1);
  const ValueId out = make(name, 1, out_cols);
  ProgramOp& op = add_op(name, MH_OP_LINEAR, {x}, {out});
  op.weights.push_back(std::move(w));
  if (b) op.weights.push_back(std::move(b));
  return out;
}

ValueId ProgramBuilder::head_linear(ValueId x, Weight w, ValueId into) {
  const ValueId out = into == kFresh ? make("heads", view(x).groups, static_cast<uint32_t>(w.rows)) : into;
  const std::string prefix = full_name(""), &name = w.name;
  ProgramOp& op = add_op(name.substr(name.rfind(prefix, 0) == 0 ? prefix.size() : 0), MH_OP_HEAD_LINEAR, {x}, {out});
  op.weights = {std::move(w)};
  return out;
}

ValueId ProgramBuilder::rope(ValueId x, const RopeTable& table, bool interleaved, ValueId into) {
  const mh_value v = view(x);
  const auto dims = static_cast<uint32_t>(table.inverse_frequencies.size() * 2);
  if (dims > v.cols) refuse(program_.values[x].name, ": ", dims, " rotary dimensions in heads of ", v.cols);
  Weight w;
  w.name = "rope frequencies";
  w.format = MH_FORMAT_F32;
  w.rows = 1, w.cols = dims / 2, w.row_stride_bytes = w.cols * sizeof(float);
  const auto* bytes = reinterpret_cast<const std::byte*>(table.inverse_frequencies.data());
  w.owned = std::make_shared<const std::vector<std::byte>>(bytes, bytes + w.row_stride_bytes);
  w.slabs = {w.owned->data()};
  const ValueId out = into == kFresh ? make("rope", v.groups, v.cols) : into;
  ProgramOp& op = add_op("rope", MH_OP_ROPE, {x}, {out});
  op.weights = {std::move(w)};
  auto p = params_of<mh_rope_params>();
  p.interleaved = interleaved, p.dims = dims, p.magnitude = table.magnitude;
  op.params = p;
  return out;
}

ValueId ProgramBuilder::attention(ValueId q, ValueId k, ValueId v, uint32_t value_cols, float scale) {
  const mh_value key = view(k);
  const bool prefix = v == kFresh;
  if (program_.kv_groups.empty()) program_.kv_groups.push_back({0, key.groups, key.cols, value_cols, prefix});
  KvGroup& group = program_.kv_groups.front();
  const ValueId out = make("attention", view(q).groups, value_cols);
  ProgramOp& op = add_op("attention", MH_OP_ATTENTION, prefix ? std::vector{q, k} : std::vector{q, k, v}, {out});
  op.kv_group = 0, op.kv_layer = group.layers++;
  auto p = params_of<mh_attention_params>();
  p.scale = scale;
  op.params = p;
  return out;
}

std::pair<ValueId, ValueId> ProgramBuilder::route(ValueId x, const mh_route_params& params) {
  const ValueId logits = linear(x, "ffn_gate_inp", hyper_.experts);
  std::optional<Weight> correction = bias("exp_probs_b", hyper_.experts, 1);
  const ValueId ids = add_value(op_name("expert_ids"), MH_ROWS_TOKENS, MH_FORMAT_I32, 1, params.experts_per_token);
  const ValueId weights = make("expert_weights", 1, params.experts_per_token);
  ProgramOp& op = add_op("route", MH_OP_ROUTE, {logits}, {ids, weights});
  if (correction) op.weights = {std::move(correction)};
  op.params = params;
  return {ids, weights};
}

Weight ProgramBuilder::expert_weight(const std::string& name, const std::string& fused, uint64_t fused_row,
                                     uint64_t rows, uint64_t cols) {
  const uint32_t experts = hyper_.experts;
  if (has(name + "_exps")) return weight(name + "_exps", rows, cols, experts);
  if (!fused.empty() && has(fused)) {  // [gate rows, then up rows] of every expert in one tensor
    Weight w = weight(fused, 2 * rows, cols, experts);
    w.rows = rows;
    for (const std::byte*& slab : w.slabs) slab += fused_row * w.row_stride_bytes;
    return w;
  }
  if (!has(name + ".0")) return weight(name + "_exps", rows, cols, experts);  // names what is missing
  Weight all = weight(name + ".0", rows, cols);
  for (uint32_t e = 1; e < experts; ++e) {
    const Weight one = weight(cat(name, ".", e), rows, cols);
    if (one.format != all.format)
      refuse(one.name, " is ", format_name(one.format), ", ", all.name, " is ", format_name(all.format));
    all.slabs.insert(all.slabs.end(), one.slabs.begin(), one.slabs.end());
  }
  all.slab_count = experts;
  return all;
}

ValueId ProgramBuilder::experts(ValueId x, std::pair<ValueId, ValueId> chosen, uint32_t activation) {
  const uint32_t D = hyper_.model_dim, F = hyper_.expert_dim, E = hyper_.experts;
  std::vector<std::optional<Weight>> weights(6);
  weights[MH_GATE] = expert_weight("ffn_gate", "ffn_gate_up_exps", 0, F, D);
  weights[MH_UP] = expert_weight("ffn_up", "ffn_gate_up_exps", F, F, D);
  weights[MH_DOWN] = expert_weight("ffn_down", "", 0, D, F);
  weights[MH_GATE_BIAS] = bias("ffn_gate_exps", F, E);
  weights[MH_UP_BIAS] = bias("ffn_up_exps", F, E);
  weights[MH_DOWN_BIAS] = bias("ffn_down_exps", D, E);
  const ValueId out = make("experts", 1, D);
  ProgramOp& op = add_op("experts", MH_OP_EXPERTS, {x, chosen.first, chosen.second}, {out});
  op.part = Part::kExperts;
  op.weights = std::move(weights);
  auto p = params_of<mh_experts_params>();
  p.experts = E, p.slot_count = E;
  p.activation.size = sizeof p.activation, p.activation.kind = activation;
  op.params = p;
  return out;
}

ValueId ProgramBuilder::ffn(ValueId x, const std::string& suffix, uint32_t ffn_dim, uint32_t activation) {
  const uint32_t D = hyper_.model_dim;
  std::vector<std::optional<Weight>> weights(6);
  weights[MH_GATE] = weight("ffn_gate" + suffix, ffn_dim, D);
  weights[MH_UP] = weight("ffn_up" + suffix, ffn_dim, D);
  weights[MH_DOWN] = weight("ffn_down" + suffix, D, ffn_dim);
  weights[MH_GATE_BIAS] = bias("ffn_gate" + suffix, ffn_dim, 1);
  weights[MH_UP_BIAS] = bias("ffn_up" + suffix, ffn_dim, 1);
  weights[MH_DOWN_BIAS] = bias("ffn_down" + suffix, D, 1);
  const ValueId out = make("ffn" + suffix, 1, D);
  ProgramOp& op = add_op("ffn" + suffix, MH_OP_FFN, {x}, {out});
  op.weights = std::move(weights);
  auto p = params_of<mh_experts_params>();
  p.experts = 1, p.slot_count = 1;
  p.activation.size = sizeof p.activation, p.activation.kind = activation;
  op.params = p;
  return out;
}

ValueId ProgramBuilder::add(std::vector<ValueId> terms) {
  const ValueId out = make("add", 1, view(terms[0]).cols);
  add_op("add", MH_OP_ADD, std::move(terms), {out});
  return out;
}

void ProgramBuilder::end_layer(ValueId x) { program_.layer_outputs.push_back(x); }

Result<Program> ProgramBuilder::finish(ValueId x) {
  layer_ = static_cast<int32_t>(hyper_.layers);
  const ValueId normed = rms_norm(x, "output_norm", hyper_.rms_eps);
  const ValueId rows = add_value("output_rows", MH_ROWS_OUTPUTS, MH_FORMAT_F32, 1, hyper_.model_dim);
  add_op("take_rows", MH_OP_TAKE_ROWS, {normed}, {rows});
  Weight head = weight(has("output") ? "output" : "token_embd", hyper_.vocab_size, hyper_.model_dim);
  program_.logits = add_value("logits", MH_ROWS_OUTPUTS, MH_FORMAT_F32, 1, hyper_.vocab_size);
  add_op("output", MH_OP_LINEAR, {rows}, {program_.logits}).weights = {std::move(head)};
  MOEHOST_RETURN_IF_ERROR(status_);
  return std::move(program_);
}

}  // namespace moehost

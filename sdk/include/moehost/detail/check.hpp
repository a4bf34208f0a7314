// check.hpp - every description is checked here before a backend sees it. Part of device.hpp.
//
// MH_INVALID: the caller broke a rule. MH_UNSUPPORTED: a number, a flag or a longer struct of a later minor. Texts name
// the op kind, the thing, the value seen, and what is allowed.
#pragma once
#include "../codec.hpp"
#include "../support.hpp"

#pragma GCC visibility push(hidden)
namespace mh::detail {

inline const char* kind_name(uint32_t kind) {
  static constexpr const char* kNames[] = {"",         "embed",     "rms_norm", "linear",  "head_linear",
                                           "rope",     "attention", "route",    "experts", "ffn",
                                           "activate", "gate",      "add",      "scale",   "take_rows"};
  return kind < std::size(kNames) ? kNames[kind] : "unknown";
}

// A struct of another minor: what is beyond the known part must be zero.
template <class T>
void check_size(const T& value, const char* what) {
  if (value.size < sizeof(T)) fail(MH_INVALID, what, " has ", value.size, " bytes, ", sizeof(T), " are needed");
  if (!mh_tail_is_zero(&value, value.size, sizeof(T)))
    fail(MH_UNSUPPORTED, what, " of ", value.size, " bytes says more than the ", sizeof(T), " known here");
}

class OpCheck {
 public:
  OpCheck(const mh_op_desc& desc, bool with_data) : d_(desc), with_data_(with_data) {}

  void run() const {
    check_size(d_, "mh_op_desc");
    if (d_.kind == 0 || d_.kind > MH_OP_TAKE_ROWS)
      fail(MH_UNSUPPORTED, "unknown op kind ", d_.kind, ": 1 to ", uint32_t{MH_OP_TAKE_ROWS}, " are known");
    if (d_.flags & ~uint32_t{MH_STRICT}) unsupported("flags", d_.flags, "only MH_STRICT (1)");
    if (d_.reserved) unsupported("reserved", d_.reserved, "0");
    require(d_.max_rows > 0, "max_rows is 0");
    require(d_.out_groups > 0 && d_.out_cols[0] > 0, "out_groups or out_cols is 0");
    if (d_.kind != MH_OP_EMBED) require(d_.in_groups > 0 && d_.in_cols[0] > 0, "in_groups or in_cols is 0");
    require(d_.weight_count == 0 || d_.weights, "weights is NULL");
    for (uint32_t s = 0; s < d_.weight_count; ++s)
      if (d_.weights[s]) check_weight(s, *d_.weights[s]);
    shapes();
  }

 private:
  template <class... Parts>
  void require(bool holds, const Parts&... parts) const {
    if (!holds) fail(MH_INVALID, kind_name(d_.kind), ": ", parts...);
  }
  void unsupported(const char* what, uint32_t value, const char* allowed) const {
    fail(MH_UNSUPPORTED, kind_name(d_.kind), ": ", what, " ", value, ": known here: ", allowed);
  }
  template <class P>
  const P& params() const {
    require(d_.params, "params is NULL");
    const P& p = *static_cast<const P*>(d_.params);
    check_size(p, kind_name(d_.kind));
    return p;
  }

  void check_weight(uint32_t slot, const mh_weight& w) const {
    check_size(w, "mh_weight");
    const FormatInfo* f = find_format(w.format);
    if (!f) fail(MH_UNSUPPORTED, kind_name(d_.kind), ": weight ", slot, " has unknown format ", w.format);
    require(w.rows > 0 && w.cols > 0 && w.slab_count > 0, "weight ", slot, " is empty");
    require(w.cols % f->block_elements == 0, "weight ", slot, " has ", w.cols, " columns, no whole blocks of ",
            f->name);
    checked_mul(w.cols, sizeof(double));
    checked_mul(checked_mul(w.rows, w.row_stride_bytes), w.slab_count);
    require(w.row_stride_bytes >= row_bytes(w.format, w.cols), "weight ", slot, " has a row stride of ",
            w.row_stride_bytes, " bytes, a row takes ", row_bytes(w.format, w.cols));
    if (!with_data_) return;
    require(w.slabs, "weight ", slot, " has no data");
    for (uint32_t i = 0; i < w.slab_count; ++i) require(w.slabs[i], "weight ", slot, ": slab ", i, " is NULL");
  }
  const mh_weight* weight(uint32_t slot) const { return slot < d_.weight_count ? d_.weights[slot] : nullptr; }
  void no_weights_beyond(uint32_t known) const {
    for (uint32_t s = known; s < d_.weight_count; ++s)
      if (d_.weights[s]) unsupported("weight slot", s, known ? "lower slots" : "none");
  }
  void matrix(uint32_t slot, const char* name, uint64_t rows, uint64_t cols, uint32_t slabs = 1) const {
    const mh_weight* w = weight(slot);
    require(w, "weight ", slot, " (", name, ") is missing");
    require(w->rows == rows && w->cols == cols && w->slab_count == slabs, name, " is ", w->slab_count, " x [", w->rows,
            ", ", w->cols, "], ", slabs, " x [", rows, ", ", cols, "] is expected");
  }
  void optional_vector(uint32_t slot, const char* name, uint64_t cols, uint32_t slabs = 1) const {
    if (weight(slot)) matrix(slot, name, 1, cols, slabs);
  }
  void same_shape() const {
    require(d_.in_groups == d_.out_groups && d_.in_cols[0] == d_.out_cols[0], "input [", d_.in_groups, ", ",
            d_.in_cols[0], "] and output [", d_.out_groups, ", ", d_.out_cols[0], "] differ");
  }
  void flat() const { require(d_.in_groups <= 1 && d_.out_groups == 1, "values of one group are expected"); }

  void shapes() const {
    const uint32_t in = d_.in_cols[0], out = d_.out_cols[0];
    switch (d_.kind) {
      case MH_OP_EMBED:
        params<mh_embed_params>(), flat(), no_weights_beyond(1);
        require(weight(0), "the table is missing");
        return matrix(0, "table", weight(0)->rows, out);
      case MH_OP_RMS_NORM: {
        params<mh_rms_norm_params>(), same_shape(), no_weights_beyond(1);
        const bool shared = weight(0) && weight(0)->cols == in;
        return optional_vector(0, "weight", shared ? in : uint64_t{in} * d_.in_groups);
      }
      case MH_OP_LINEAR:
        flat(), no_weights_beyond(2), matrix(0, "weight", out, in);
        return optional_vector(1, "bias", out);
      case MH_OP_HEAD_LINEAR:
        no_weights_beyond(1);
        require(d_.in_groups == d_.out_groups, "heads in and out differ");
        return matrix(0, "weight", out, in, d_.in_groups);
      case MH_OP_ROPE:
        return rope();
      case MH_OP_ATTENTION:
        return attention();
      case MH_OP_ROUTE:
        return route();
      case MH_OP_EXPERTS:
        return experts();
      case MH_OP_FFN:
        flat(), same_shape();
        return network(params<mh_experts_params>(), 1);
      case MH_OP_ACTIVATE:
        activation(params<mh_activation>()), same_shape(), no_weights_beyond(0);
        return require(d_.in_cols[1] == 0 || d_.in_cols[1] == in, "a and b differ");
      case MH_OP_GATE:
        same_shape(), no_weights_beyond(0);
        return require(d_.in_cols[1] == 1 || d_.in_cols[1] == in, "g has ", d_.in_cols[1], " columns, 1 or ", in,
                       " are allowed");
      case MH_OP_SCALE:
        params<mh_embed_params>();
        [[fallthrough]];
      default:
        same_shape(), no_weights_beyond(0);  // add, scale, take_rows
    }
  }
  void rope() const {
    const auto& p = params<mh_rope_params>();
    same_shape(), no_weights_beyond(1);
    if (p.interleaved > 1) unsupported("interleaved", p.interleaved, "0, 1");
    if (p.reserved) unsupported("reserved", p.reserved, "0");
    require(p.dims > 0 && p.dims % 2 == 0 && uint64_t{p.first} + p.dims <= d_.in_cols[0], "dims [", p.first, ", ",
            uint64_t{p.first} + p.dims, ") of ", d_.in_cols[0]);
    matrix(0, "inverse frequencies", 1, p.dims / 2);
  }
  void attention() const {
    const auto& p = params<mh_attention_params>();
    no_weights_beyond(1);
    require(p.kv_desc, "kv_desc is NULL");
    const mh_kv_desc& kv = *p.kv_desc;
    check_size(kv, "mh_kv_desc");
    require(!with_data_ || p.kv, "kv is NULL");
    if (p.read_only > 1) unsupported("read_only", p.read_only, "0, 1");
    require(p.layer < kv.layers, "layer ", p.layer, " of a cache of ", kv.layers);
    require(kv.kv_heads > 0 && d_.in_groups % kv.kv_heads == 0, d_.in_groups, " heads over ", kv.kv_heads, " kv heads");
    require(d_.in_cols[0] == kv.k_cols && (d_.in_cols[1] == kv.k_cols || (p.read_only && d_.in_cols[1] == 0)), "q has ",
            d_.in_cols[0], " columns, k ", d_.in_cols[1], ", the cache ", kv.k_cols);
    require(d_.out_groups == d_.in_groups && d_.out_cols[0] == kv.v_cols, "the output is [", d_.out_groups, ", ",
            d_.out_cols[0], "], [", d_.in_groups, ", ", kv.v_cols, "] is expected");
    const bool no_v = kv.v_is_prefix_of_k || (p.read_only && d_.in_cols[2] == 0);
    require(d_.in_cols[2] == (no_v ? 0 : kv.v_cols), "v has ", d_.in_cols[2], " columns, the cache ", kv.v_cols);
    optional_vector(0, "sinks", d_.in_groups);
  }
  void route() const {
    const auto& p = params<mh_route_params>();
    const uint32_t experts = d_.in_cols[0];
    flat(), no_weights_beyond(1);
    if (p.score > MH_SCORE_IDENTITY) unsupported("score", p.score, "0 to 3");
    if (p.renormalise > 1 || p.softmax_chosen > 1)
      unsupported("switch", std::max(p.renormalise, p.softmax_chosen), "0, 1");
    if (p.reserved) unsupported("reserved", p.reserved, "0");
    require(d_.out_cols[0] == p.experts_per_token && d_.out_cols[1] == p.experts_per_token, "ids and weights have ",
            d_.out_cols[0], " and ", d_.out_cols[1], " columns, experts_per_token is ", p.experts_per_token);
    uint32_t eligible = experts;
    if (p.groups > 1) {
      require(experts % p.groups == 0, experts, " experts in ", p.groups, " groups");
      require(p.groups_kept > 0 && p.groups_kept <= p.groups, "groups_kept ", p.groups_kept, " of ", p.groups);
      require(p.group_top > 0 && p.group_top <= experts / p.groups, "group_top ", p.group_top, " of ",
              experts / p.groups);
      eligible = experts / p.groups * p.groups_kept;
    }
    require(p.experts_per_token <= eligible, p.experts_per_token, " experts a token of ", eligible);
    optional_vector(0, "correction bias", experts);
  }
  void experts() const {
    const auto& p = params<mh_experts_params>();
    flat(), same_shape();
    require(d_.in_cols[1] > 0 && d_.in_cols[1] == d_.in_cols[2], "ids and weights differ");
    require(p.slot_count > 0 && p.expert_ids, "no expert_ids");
    for (uint32_t s = 0; s < p.slot_count; ++s) {
      if (p.expert_ids[s] == -1) unsupported("spare slot", s, "none");
      require(p.expert_ids[s] >= 0 && static_cast<uint32_t>(p.expert_ids[s]) < p.experts, "expert id ", p.expert_ids[s],
              " of ", p.experts);
      require(s == 0 || p.expert_ids[s] > p.expert_ids[s - 1], "expert_ids do not ascend at slot ", s);
    }
    network(p, p.slot_count);
  }
  void network(const mh_experts_params& p, uint32_t slabs) const {
    activation(p.activation), no_weights_beyond(MH_DOWN_BIAS + 1);
    if (p.weigh_input > 1) unsupported("weigh_input", p.weigh_input, "0, 1");
    const mh_weight* up = weight(MH_UP);
    require(up, "weight 1 (up) is missing");
    const uint64_t expert_dim = up->rows;
    const uint32_t model_dim = d_.in_cols[0];
    matrix(MH_UP, "up", expert_dim, model_dim, slabs);
    if (weight(MH_GATE)) matrix(MH_GATE, "gate", expert_dim, model_dim, slabs);
    matrix(MH_DOWN, "down", model_dim, expert_dim, slabs);
    require(!weight(MH_GATE_BIAS) || weight(MH_GATE), "a gate bias without a gate");
    optional_vector(MH_GATE_BIAS, "gate bias", expert_dim, slabs);
    optional_vector(MH_UP_BIAS, "up bias", expert_dim, slabs);
    optional_vector(MH_DOWN_BIAS, "down bias", model_dim, slabs);
  }
  void activation(const mh_activation& a) const {
    check_size(a, "mh_activation");
    if (a.kind > MH_ACT_RELU_SQUARED) unsupported("activation", a.kind, "0 to 3");
  }

  const mh_op_desc& d_;
  const bool with_data_;
};

// with_data: slabs and the cache are there (op.load), or all pointers to data are NULL (op.cost, program_cost).
inline void check_op(const mh_op_desc& desc, bool with_data) { OpCheck(desc, with_data).run(); }

inline void check_kv(const mh_kv_desc& d) {
  check_size(d, "mh_kv_desc");
  if (d.kind > MH_KV_STATE) fail(MH_UNSUPPORTED, "unknown kv kind ", d.kind, ": 0 and 1 are known");
  if (d.reserved) fail(MH_UNSUPPORTED, "kv reserved ", d.reserved, ": 0 is known");
  if (d.layers == 0 || d.block_count == 0) fail(MH_INVALID, "kv: layers or block_count is 0");
  if (d.kind == MH_KV_STATE) return;
  if (d.kv_heads == 0 || d.k_cols == 0 || d.v_cols == 0 || d.block_tokens == 0)
    fail(MH_INVALID, "kv: a dimension is 0");
  if (d.v_is_prefix_of_k > 1) fail(MH_UNSUPPORTED, "kv v_is_prefix_of_k ", d.v_is_prefix_of_k, ": 0 and 1 are known");
  if (d.v_is_prefix_of_k && d.v_cols > d.k_cols)
    fail(MH_INVALID, "kv: v of ", d.v_cols, " columns is no prefix of k with ", d.k_cols);
  for (const auto& [format, cols] : {std::pair{d.k_format, d.k_cols}, std::pair{d.v_format, d.v_cols}}) {
    const FormatInfo* f = find_format(format);
    if (!f) fail(MH_UNSUPPORTED, "kv: unknown format ", format);
    if (cols % f->block_elements) fail(MH_INVALID, "kv: ", cols, " columns are no whole blocks of ", f->name);
  }
}

}  // namespace mh::detail
#pragma GCC visibility pop

// program.hpp - the objects behind the handles, and a program: checked, planned, ready to run. Part of device.hpp.
#pragma once
#include "check.hpp"

#pragma GCC visibility push(hidden)
struct mh_device {
  std::unique_ptr<mh::Backend> backend;
  bool staged;  // boundaries are copied in and out
};
struct mh_buffer {
  std::byte* host;
  uint64_t bytes;
};
struct mh_op {
  std::unique_ptr<mh::Op> op;
};
struct mh_kv {
  std::unique_ptr<mh::Kv> kv;
};

namespace mh::detail {

// Where a value lies while the work runs: at a fixed place, or in the queue's workspace.
struct Port {
  View shape;                  // base and rows are filled in for each run
  uint32_t rows = 0;           // MH_ROWS_*
  std::byte* fixed = nullptr;  // else: at
  uint64_t at = 0;             // bytes from the start of the workspace
  View view(std::byte* workspace, const mh_step& step) const {
    View v = shape;
    v.base = fixed ? fixed : workspace + at;
    v.rows = rows == MH_ROWS_TOKENS ? step.tokens : step.outputs;
    return v;
  }
};

// Bytes of the workspace that are in use from one item to another, both included.
struct Interval {
  uint64_t bytes;
  uint32_t first, last;
  uint64_t at = 0;
};

// Places intervals so that those that meet do not overlap: the largest first, each at the lowest free place. Returns
// the bytes needed. The same input gives the same plan, so program_cost and program_create agree.
inline uint64_t pack(std::vector<Interval>& intervals) {
  std::vector<Interval*> order, placed;
  for (Interval& i : intervals)
    if (i.bytes) order.push_back(&i);
  std::stable_sort(order.begin(), order.end(),
                   [](const Interval* a, const Interval* b) { return a->bytes > b->bytes; });
  uint64_t total = 0;
  for (Interval* i : order) {  // placed: by place
    i->bytes = align_up(i->bytes);
    for (const Interval* p : placed) {
      if (p->last < i->first || p->first > i->last || p->at + p->bytes <= i->at) continue;
      if (p->at >= checked_add(i->at, i->bytes)) break;
      i->at = p->at + p->bytes;
    }
    total = std::max(total, checked_add(i->at, i->bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [](const Interval* a, const Interval* b) { return a->at < b->at; }),
                  i);
  }
  return total;
}

// One item, with all that a run needs in place.
struct Item {
  uint32_t what = 0;
  uint64_t* fence = nullptr;
  const Op* op = nullptr;
  std::vector<Port> ports;  // inputs, then outputs
  uint32_t input_count = 0;
  std::vector<Port> copies;  // staging: pairs (from, to); the first copies_in pairs before the op, others after
  uint32_t copies_in = 0;
  uint64_t scratch_at = 0;
};

// Checks a description and lays it out. A description without buffers and ops (program_cost) takes the same path.
class Layout {
 public:
  Layout(const mh_program_desc& desc, Backend& backend, bool staged) : d_(desc), backend_(backend), staged_(staged) {
    check_size(d_, "mh_program_desc");
    if (d_.max_tokens == 0) fail(MH_INVALID, "program: max_tokens is 0");
    for (uint32_t v = 0; v < d_.value_count; ++v) check_value(v);
    bind();
    intervals_.assign(d_.value_count, Interval{0, UINT32_MAX, 0});
    for (uint32_t i = 0; i < d_.item_count; ++i) check_item(i);
    for (uint32_t v = 0; v < d_.value_count; ++v)
      if (lives_in_workspace(v)) intervals_[v].bytes = checked_mul(row_size(v), max_rows(d_.values[v].rows));
    workspace_bytes_ = pack(intervals_);
  }
  uint64_t workspace_bytes() const { return workspace_bytes_; }

  std::vector<Item> items() const {
    std::vector<Item> items(d_.item_count);
    std::vector<bool> staged_in(d_.value_count);
    uint32_t next_scratch = d_.value_count;
    for (uint32_t i = 0; i < d_.item_count; ++i) {
      const mh_item& from = d_.items[i];
      Item& to = items[i];
      to.what = from.what;
      if (from.what != MH_ITEM_OP) {
        to.fence = d_.fences[from.fence].counter;
        continue;
      }
      to.op = from.op->op.get();
      to.input_count = from.input_count;
      to.scratch_at = intervals_[next_scratch++].at;
      for (uint32_t k = 0; k < from.input_count; ++k) {
        const uint32_t root = d_.values[from.inputs[k]].root;
        to.ports.push_back(local(from.inputs[k]));
        if (!staged_ || !bound_[root] || !bound_[root]->is_input || staged_in[root]) continue;
        to.copies.push_back(boundary(root)), to.copies.push_back(local(root));
        staged_in[root] = true, ++to.copies_in;
      }
      for (uint32_t k = 0; k < from.output_count; ++k) {
        to.ports.push_back(local(from.outputs[k]));
        if (!staged_ || !bound_[d_.values[from.outputs[k]].root]) continue;
        to.copies.push_back(local(from.outputs[k])), to.copies.push_back(boundary(from.outputs[k]));
      }
    }
    return items;
  }

 private:
  uint64_t max_rows(uint32_t rows) const { return rows == MH_ROWS_TOKENS ? d_.max_tokens : d_.max_outputs; }
  // Elements from the start of a row of the root to the end of the value.
  static uint64_t extent(const mh_value& v) { return v.offset + uint64_t{v.groups - 1} * v.group_stride + v.cols; }
  uint64_t row_size(uint32_t root) const { return extent(d_.values[root]) * sizeof(float); }
  bool lives_in_workspace(uint32_t v) const { return d_.values[v].root == v && (staged_ || !bound_[v]); }

  void check_value(uint32_t index) const {
    const mh_value& v = d_.values[index];
    const auto require = [index](bool holds, const char* what) {
      if (!holds) fail(MH_INVALID, "value ", index, ": ", what);
    };
    require(v.root < d_.value_count && d_.values[v.root].root == v.root, "its root is no root");
    require(v.rows <= MH_ROWS_OUTPUTS && v.rows == d_.values[v.root].rows,
            "rows are neither tokens nor outputs, or not the root's");
    require(v.format == MH_FORMAT_F32 || v.format == MH_FORMAT_I32, "its format is neither F32 nor I32");
    require(v.groups > 0 && v.cols > 0, "it is empty");
    require(v.groups == 1 || v.group_stride >= v.cols, "its groups overlap");
    require(v.root != index || v.offset == 0, "a root begins at 0");
    require(v.root == index || extent(v) <= extent(d_.values[v.root]), "the window passes the end of its root");
    if (v.reserved) fail(MH_UNSUPPORTED, "value ", index, ": reserved is ", v.reserved, ": 0 is known");
  }
  void bind() {
    bound_.assign(d_.value_count, nullptr);
    for (uint32_t i = 0; i < d_.binding_count; ++i) {
      const mh_binding& b = d_.bindings[i];
      if (b.value >= d_.value_count || d_.values[b.value].root != b.value || bound_[b.value])
        fail(MH_INVALID, "binding ", i, ": value ", b.value, " is no root, or is bound twice");
      if (b.row_stride_bytes < row_size(b.value) || b.row_stride_bytes % sizeof(float) || b.offset % sizeof(float))
        fail(MH_INVALID, "binding ", i, ": a row stride of ", b.row_stride_bytes, " bytes, a row has ",
             row_size(b.value));
      const uint64_t rows = max_rows(d_.values[b.value].rows);
      const uint64_t last = rows ? checked_mul(rows - 1, b.row_stride_bytes) : 0;
      const uint64_t end = checked_add(b.offset, checked_add(last, row_size(b.value)));
      if (b.buffer && end > b.buffer->bytes)
        fail(MH_INVALID, "binding ", i, " ends at ", end, " of a buffer of ", b.buffer->bytes, " bytes");
      bound_[b.value] = &b;
    }
  }
  void check_item(uint32_t index) {
    const mh_item& item = d_.items[index];
    const auto require = [index](bool holds, const char* what) {
      if (!holds) fail(MH_INVALID, "item ", index, ": ", what);
    };
    if (item.what > MH_ITEM_SIGNAL) fail(MH_UNSUPPORTED, "item ", index, ": unknown item ", item.what);
    if (item.what != MH_ITEM_OP) return require(item.fence < d_.fence_count, "no such fence");
    require(item.desc, "an op without a description");
    require((item.inputs || !item.input_count) && (item.outputs || !item.output_count), "inputs or outputs are NULL");
    const mh_op_desc& desc = *item.desc;
    check_op(desc, false);
    check_counts(index, item, desc);
    if (item.op) {
      const mh_op_desc& loaded = item.op->op->desc();
      require(loaded.kind == desc.kind && loaded.flags == desc.flags && loaded.max_rows == desc.max_rows &&
                  !std::memcmp(&loaded.in_groups, &desc.in_groups,
                               offsetof(mh_op_desc, weight_count) - offsetof(mh_op_desc, in_groups)),
              "the op was loaded from another description");
    } else {
      backend_.cost(desc);  // refuses what it cannot run
    }
    for (uint32_t k = 0; k < item.input_count; ++k) use(item.inputs[k], index);
    for (uint32_t k = 0; k < item.output_count; ++k) use(item.outputs[k], index);
    intervals_.push_back({backend_.scratch_bytes(desc), index, index});
  }
  void use(uint32_t value, uint32_t index) {
    Interval& i = intervals_[d_.values[value].root];
    i.first = std::min(i.first, index), i.last = std::max(i.last, index);
  }
  // Values of an op item against its description.
  void check_counts(uint32_t index, const mh_item& item, const mh_op_desc& desc) const {
    const bool route = desc.kind == MH_OP_ROUTE, add = desc.kind == MH_OP_ADD;
    uint32_t inputs = 0;
    while (inputs < 4 && desc.in_cols[inputs]) ++inputs;
    if (desc.kind == MH_OP_EMBED) inputs = 0;
    if (add ? item.input_count == 0 : item.input_count != inputs)
      fail(MH_INVALID, "item ", index, " (", kind_name(desc.kind), ") has ", item.input_count,
           " inputs, its description ", inputs);
    if (item.output_count != (route ? 2U : 1U))
      fail(MH_INVALID, "item ", index, " has ", item.output_count, " outputs");
    const uint32_t out_rows = item.outputs[0] < d_.value_count ? d_.values[item.outputs[0]].rows : 0;
    const auto check = [&](uint32_t id, uint32_t groups, uint32_t cols, uint32_t format, uint32_t rows) {
      if (id >= d_.value_count) fail(MH_INVALID, "item ", index, ": no value ", id);
      const mh_value& v = d_.values[id];
      if (v.groups != groups || v.cols != cols || v.format != format || v.rows != rows ||
          (rows == out_rows && max_rows(rows) > desc.max_rows))
        fail(MH_INVALID, "item ", index, " (", kind_name(desc.kind), "): value ", id, " [", v.groups, ", ", v.cols,
             "] with up to ", max_rows(v.rows), " rows, the description says [", groups, ", ", cols, "] and ",
             desc.max_rows, " rows");
    };
    const uint32_t rows = desc.kind == MH_OP_TAKE_ROWS ? uint32_t{MH_ROWS_TOKENS} : out_rows;
    for (uint32_t k = 0; k < item.input_count; ++k) {
      const bool cache_side = desc.kind == MH_OP_ATTENTION && k > 0, ids = desc.kind == MH_OP_EXPERTS && k == 1;
      const uint32_t groups =
          cache_side ? static_cast<const mh_attention_params*>(desc.params)->kv_desc->kv_heads : desc.in_groups;
      check(item.inputs[k], groups, desc.in_cols[add ? 0 : k], ids ? MH_FORMAT_I32 : MH_FORMAT_F32, rows);
    }
    for (uint32_t k = 0; k < item.output_count; ++k)
      check(item.outputs[k], desc.out_groups, desc.out_cols[k], route && k == 0 ? MH_FORMAT_I32 : MH_FORMAT_F32,
            out_rows);
  }

  Port place(uint32_t value, std::byte* fixed, uint64_t at, uint64_t row_bytes) const {
    const mh_value& v = d_.values[value];
    const uint64_t offset = v.offset * sizeof(float);
    return {{nullptr, row_bytes, 0, v.groups, v.cols, v.group_stride},
            v.rows,
            fixed ? fixed + offset : nullptr,
            at + offset};
  }
  Port boundary(uint32_t value) const {
    const mh_binding& b = *bound_[d_.values[value].root];
    return place(value, b.buffer->host + b.offset, 0, b.row_stride_bytes);
  }
  Port local(uint32_t value) const {
    const uint32_t root = d_.values[value].root;
    return lives_in_workspace(root) ? place(value, nullptr, intervals_[root].at, row_size(root)) : boundary(value);
  }

  const mh_program_desc& d_;
  Backend& backend_;
  const bool staged_;
  std::vector<const mh_binding*> bound_;  // by value
  std::vector<Interval> intervals_;       // by value, then the scratch of each op
  uint64_t workspace_bytes_ = 0;
};

}  // namespace mh::detail
#pragma GCC visibility pop

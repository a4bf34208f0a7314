// Builds one program of a device and runs it. For the tests of the SDK.
#pragma once
#include "tests/sdk/host.h"

namespace sdk_test {

struct Limits {
  uint32_t tokens = 8, outputs = 8, sequences = 4;
};

class Program {
 public:
  Program(Device& device, Arena& arena, uint64_t step_at, Limits limits = {})
      : device_(device), api_(device.api), arena_(arena), limits_(limits), step_at_(step_at) {
    EXPECT_EQ(api_.buffer->import(device.raw, arena.at(0), Arena::kBytes, &buffer_, nullptr), MH_OK);
  }
  ~Program() {
    release();
    for (mh_op* op : ops_) api_.op->free(op);
    if (kv_) api_.kv->free(kv_);
    if (queue_ && !shared_queue_) api_.queue->free(queue_);
    api_.buffer->free(buffer_);
  }
  void release() {
    if (program_) api_.queue->program_free(program_);
    program_ = nullptr;
  }

  uint32_t value(uint32_t cols, uint32_t groups = 1, uint32_t rows = MH_ROWS_TOKENS, uint32_t format = MH_FORMAT_F32) {
    const auto id = static_cast<uint32_t>(values_.size());
    values_.push_back({id, rows, format, groups, cols, cols, 0, 0});
    return id;
  }
  // Of each of `groups` groups of the root, `stride` elements apart, the columns [offset, offset + cols).
  uint32_t window(uint32_t root, uint32_t groups, uint32_t cols, uint32_t stride, uint32_t offset) {
    values_.push_back({root, values_[root].rows, values_[root].format, groups, cols, stride, offset, 0});
    return static_cast<uint32_t>(values_.size() - 1);
  }
  // A boundary at a place in the arena; rows follow one another.
  uint32_t boundary(uint64_t at, bool input, uint32_t cols, uint32_t groups = 1, uint32_t rows = MH_ROWS_TOKENS,
                    uint32_t format = MH_FORMAT_F32) {
    const uint32_t id = value(cols, groups, rows, format);
    bindings_.push_back({id, input, buffer_, at, uint64_t{cols} * groups * 4});
    return id;
  }
  void wait(uint64_t fence_at) { item(MH_ITEM_WAIT, fence_at); }
  void signal(uint64_t fence_at) { item(MH_ITEM_SIGNAL, fence_at); }

  // Prices and loads the op, and appends its item. Returns load's code.
  int32_t op(uint32_t kind, void* params, std::vector<const mh_weight*> weights, std::vector<uint32_t> in,
             std::vector<uint32_t> out) {
    ids_.push_back(std::move(in)), ids_.push_back(std::move(out)), weights_.push_back(std::move(weights));
    const auto &inputs = ids_[ids_.size() - 2], &outputs = ids_.back();
    mh_op_desc d{};
    d.size = sizeof d, d.kind = kind, d.flags = MH_STRICT;
    d.max_rows = values_[outputs[0]].rows == MH_ROWS_TOKENS ? limits_.tokens : limits_.outputs;
    d.in_groups = inputs.empty() ? 1 : values_[inputs[0]].groups, d.out_groups = values_[outputs[0]].groups;
    const size_t described = kind == MH_OP_ADD ? 1 : inputs.size();
    for (size_t i = 0; i < described; ++i) d.in_cols[i] = values_[inputs[i]].cols;
    for (size_t i = 0; i < outputs.size(); ++i) d.out_cols[i] = values_[outputs[i]].cols;
    d.weight_count = static_cast<uint32_t>(weights_.back().size()), d.weights = weights_.back().data(),
    d.params = params;
    mh_op_cost cost{};
    cost.size = sizeof cost;
    error = fresh_error();
    if (const int32_t code = api_.op->cost(device_.raw, &d, &cost, &error)) return code;
    mh_op* loaded = nullptr;
    if (const int32_t code = api_.op->load(device_.raw, &d, &loaded, &error)) return code;
    promised_bytes += cost.resident_bytes;
    ops_.push_back(loaded), descs_.push_back(d);
    items_.push_back({MH_ITEM_OP, 0, &descs_.back(), loaded, inputs.data(), outputs.data(),
                      static_cast<uint32_t>(inputs.size()), static_cast<uint32_t>(outputs.size())});
    return MH_OK;
  }
  // A cache for attention ops that follow.
  int32_t cache(const mh_kv_desc& desc) {
    uint64_t bytes = 0;
    error = fresh_error();
    if (const int32_t code = api_.kv->cost(device_.raw, &desc, &bytes, &error)) return code;
    const int32_t code = api_.kv->create(device_.raw, &desc, &kv_, &error);
    if (code == MH_OK) promised_bytes += bytes;
    return code;
  }
  mh_kv* kv() const { return kv_; }

  // Prices and creates, on a queue of its own or on another program's.
  int32_t create(Program* share = nullptr) {
    mh_program_desc d{};
    d.size = sizeof d;
    d.max_tokens = limits_.tokens, d.max_outputs = limits_.outputs, d.max_sequences = limits_.sequences;
    d.value_count = static_cast<uint32_t>(values_.size()), d.values = values_.data();
    d.item_count = static_cast<uint32_t>(items_.size()), d.items = items_.data();
    d.fence_count = static_cast<uint32_t>(fences_.size()), d.fences = fences_.data();
    d.binding_count = static_cast<uint32_t>(bindings_.size()), d.bindings = bindings_.data();
    mh_program_cost cost{};
    cost.size = sizeof cost;
    error = fresh_error();
    if (const int32_t code = api_.queue->program_cost(device_.raw, &d, &cost, &error)) return code;
    workspace_bytes = cost.workspace_bytes;
    shared_queue_ = share != nullptr;
    if (share)
      queue_ = share->queue_;
    else if (!queue_)
      if (const int32_t code = api_.queue->create(device_.raw, &queue_, &error)) return code;
    d.step_buffer = buffer_, d.step_offset = step_at_;
    return api_.queue->program_create(queue_, &d, &program_, &error);
  }
  int32_t submit() { return api_.queue->submit(program_, &(error = fresh_error())); }
  int32_t finish(uint64_t timeout_ns = UINT64_C(20000000000)) {
    return api_.queue->wait(queue_, timeout_ns, &(error = fresh_error()));
  }
  int32_t abort() { return api_.queue->abort(queue_); }
  int32_t reset() { return api_.queue->reset(queue_, &(error = fresh_error())); }
  // Writes the step block, submits, waits for the end.
  int32_t run(const StepData& step) {
    step.write(arena_.at(step_at_), ++serial_);
    if (const int32_t code = submit()) return code;
    return finish();
  }

  mh_error error = fresh_error();
  uint64_t promised_bytes = 0, workspace_bytes = 0;

 private:
  void item(uint32_t what, uint64_t fence_at) {
    items_.push_back({what, static_cast<uint32_t>(fences_.size()), nullptr, nullptr, nullptr, nullptr, 0, 0});
    fences_.push_back({buffer_, fence_at, arena_.at<uint64_t>(fence_at)});
  }

  Device& device_;
  const mh_plugin& api_;
  Arena& arena_;
  const Limits limits_;
  const uint64_t step_at_;
  mh_buffer* buffer_ = nullptr;
  mh_queue* queue_ = nullptr;
  mh_program* program_ = nullptr;
  mh_kv* kv_ = nullptr;
  bool shared_queue_ = false;
  uint64_t serial_ = 0;
  std::vector<mh_value> values_;
  std::vector<mh_binding> bindings_;
  std::vector<mh_fence> fences_;
  std::vector<mh_item> items_;
  std::deque<std::vector<uint32_t>> ids_;
  std::deque<std::vector<const mh_weight*>> weights_;
  std::deque<mh_op_desc> descs_;
  std::vector<mh_op*> ops_;
};

}  // namespace sdk_test

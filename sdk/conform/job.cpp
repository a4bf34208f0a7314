// Building programs from ops, and running them natively or by relay.
#include "job.h"

#include <algorithm>

namespace conform {
namespace {

constexpr uint64_t kAnswerNs = UINT64_C(30000000000);  // to end a small step; a missing answer is a hang

}  // namespace

Job::Job(Session& session, mh_queue* queue, const Limits& limits, const StepBlock& step)
    : session_(session), queue_(queue), limits_(limits), step_offset_(step.offset()) {
  promised_.size = sizeof promised_;
}

uint32_t Job::value(const Shape& shape) {
  const auto index = static_cast<uint32_t>(values_.size());
  values_.push_back({index, shape.rows, shape.format, shape.groups, shape.cols, shape.cols, 0, 0});
  return index;
}

uint32_t Job::window(uint32_t root, const Shape& shape, uint32_t group_stride, uint32_t offset) {
  values_.push_back({root, shape.rows, shape.format, shape.groups, shape.cols, group_stride, offset, 0});
  return static_cast<uint32_t>(values_.size() - 1);
}

uint32_t Job::boundary(const Shape& shape, const Region& region, bool is_input) {
  const uint32_t root = value(shape);
  bindings_.push_back({root, is_input, session_.buffer, region.offset, region.row_stride_bytes});
  return root;
}

void Job::op(const LoadedOp& op, std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
  descs_.push_back(op.desc());
  const auto& in = indices_.emplace_back(std::move(inputs));
  const auto& out = indices_.emplace_back(std::move(outputs));
  items_.push_back({MH_ITEM_OP, 0, &descs_.back(), op.raw(), in.data(), out.data(), static_cast<uint32_t>(in.size()),
                    static_cast<uint32_t>(out.size())});
}

void Job::wait(const Fence& fence) {
  items_.push_back({MH_ITEM_WAIT, static_cast<uint32_t>(lines_.size()), nullptr, nullptr, nullptr, nullptr, 0, 0});
  lines_.push_back(fence);
  fences_.push_back({session_.buffer, fence.offset, fence.counter});
}

void Job::signal(const Fence& fence) {
  wait(fence);
  items_.back().what = MH_ITEM_SIGNAL;
}

mh_program_desc Job::describe(bool with_objects) {
  return describe_items(0, static_cast<uint32_t>(items_.size()), with_objects);
}

mh_program_desc Job::describe_items(uint32_t first, uint32_t count, bool with_objects) {
  bare_bindings_ = bindings_, bare_fences_ = fences_, bare_items_ = items_;
  for (auto& binding : bare_bindings_) binding.buffer = nullptr;
  for (auto& fence : bare_fences_) fence = {nullptr, fence.offset, nullptr};
  for (auto& item : bare_items_) item.op = nullptr;
  mh_program_desc desc{};
  desc.size = sizeof desc;
  desc.max_tokens = limits_.tokens, desc.max_outputs = limits_.outputs, desc.max_sequences = limits_.sequences;
  desc.value_count = static_cast<uint32_t>(values_.size()), desc.values = values_.data();
  desc.item_count = count, desc.items = (with_objects ? items_ : bare_items_).data() + first;
  desc.fence_count = static_cast<uint32_t>(fences_.size()),
  desc.fences = (with_objects ? fences_ : bare_fences_).data();
  desc.binding_count = static_cast<uint32_t>(bindings_.size());
  desc.bindings = (with_objects ? bindings_ : bare_bindings_).data();
  desc.step_buffer = with_objects ? session_.buffer : nullptr;
  desc.step_offset = step_offset_;
  return desc;
}

mh_program_cost Job::cost_of(const mh_program_desc& desc) {
  mh_program_cost cost{};
  cost.size = sizeof cost;
  Error error;
  check(session_.api.queue->program_cost(session_.device, &desc, &cost, &error), error, "queue.program_cost");
  return cost;
}

mh_program_cost Job::cost() { return cost_of(describe(false)); }

void Job::create_segment(uint32_t first, uint32_t count) {
  const mh_program_cost cost = cost_of(describe_items(first, count, false));
  promised_.workspace_bytes = std::max(promised_.workspace_bytes, cost.workspace_bytes);
  promised_.host_bytes = std::max(promised_.host_bytes, cost.host_bytes);
  const mh_program_desc desc = describe_items(first, count, true);
  mh_program* program = nullptr;
  Error error;
  check(session_.api.queue->program_create(queue_, &desc, &program, &error), error, "queue.program_create");
  require(program != nullptr, "queue.program_create: MH_OK without a program");
  programs_.push_back(program);
}

void Job::create() {
  const auto count = static_cast<uint32_t>(items_.size());
  if (!session_.relays()) return create_segment(0, count);
  for (uint32_t i = 0; i < count;) {
    if (items_[i].what != MH_ITEM_OP) {
      actions_.push_back({items_[i].what, lines_[items_[i].fence], nullptr});
      ++i;
      continue;
    }
    const uint32_t first = i;
    while (i < count && items_[i].what == MH_ITEM_OP) ++i;
    create_segment(first, i - first);
    actions_.push_back({MH_ITEM_OP, {}, programs_.back()});
  }
}

void Job::free() {
  join();
  for (mh_program* program : programs_) session_.api.queue->program_free(program);
  programs_.clear(), actions_.clear();
}

int32_t Job::try_submit(mh_error* error) { return session_.api.queue->submit(programs_.front(), error); }

void Job::submit(uint64_t serial) {
  join();
  if (session_.relays()) {
    relay_ = std::thread([this, serial] { relay(serial); });
    return;
  }
  Error error;
  check(try_submit(&error), error, "queue.submit");
}

void Job::join() {
  if (relay_.joinable()) relay_.join();
}

void Job::relay(uint64_t serial) {
  int32_t cause = MH_OK;
  for (const Action& action : actions_) {
    if (action.what == MH_ITEM_SIGNAL) {
      Host::signal(action.fence.counter, cause ? MH_FENCE_POISON | static_cast<uint32_t>(-cause) : serial);
    } else if (!cause && action.what == MH_ITEM_WAIT) {
      cause = Host::wait(action.fence.counter, serial, kAnswerNs);
    } else if (!cause) {
      cause = session_.api.queue->submit(action.program, nullptr);
      if (!cause) cause = session_.api.queue->wait(queue_, kAnswerNs, nullptr);
    }
  }
}

void Job::run(uint64_t serial, const Fence& last) {
  submit(serial);
  const int32_t code = Host::wait(last.counter, serial, kAnswerNs);
  if (code == MH_OK) return;
  require(code != MH_TIMEOUT, "the step did not end in ", kAnswerNs / 1000000000, " s: its last signal never came");
  Error error;
  const int32_t answer = session_.api.queue->wait(queue_, kAnswerNs, &error);
  fail("the step failed: its last fence carries ", code_name(code), ", queue.wait answers ", code_name(answer),
       ", item ", error.item, ": ", error.text);
}

OpJob::OpJob(Session& session, const LoadedOp& op, const Limits& limits, uint32_t slots, uint64_t padding_bytes)
    : session_(session),
      op_(op.op()),
      slots_(slots),
      instances_(op.op().repeatable() ? slots : 1),
      block_(session.arena, limits),
      job_(session, session.queue, limits, block_),
      go_(session.arena.place_fence()),
      done_(session.arena.place_fence()) {
  const auto bind = [&](const Shape& shape, bool is_input, std::vector<Region>& regions) {
    Shape root = shape;
    root.cols *= slots_;
    const uint32_t max_rows = shape.rows == MH_ROWS_OUTPUTS ? limits.outputs : limits.tokens;
    regions.push_back(session_.arena.place_rows(max_rows, root.width() * 4, padding_bytes));
    return job_.boundary(root, regions.back(), is_input);
  };
  std::vector<uint32_t> input_roots, output_roots;
  for (const Shape& shape : op_.inputs) input_roots.push_back(bind(shape, true, input_regions_));
  for (const Shape& shape : op_.outputs) output_roots.push_back(bind(shape, false, output_regions_));
  job_.wait(go_);
  for (uint32_t i = 0; i < instances_; ++i) {
    const auto values = [&](const std::vector<uint32_t>& roots, const std::vector<Shape>& shapes) {
      std::vector<uint32_t> out = roots;
      for (size_t k = 0; k < roots.size() && slots_ > 1; ++k)
        out[k] = job_.window(roots[k], shapes[k], shapes[k].cols * slots_, shapes[k].cols * slot(i));
      return out;
    };
    const auto in = values(input_roots, op_.inputs), out = values(output_roots, op_.outputs);
    job_.op(op, in, out);
  }
  job_.signal(done_);
  job_.create();
}

// The last writer stands between the others, so that what it writes beside its window is found.
uint32_t OpJob::slot(uint32_t instance) const {
  return slots_ == 1 ? 0 : instances_ == 1 ? slots_ / 2 : instance + 1 == instances_ ? 1 : 2 * instance;
}

OpJob::Place OpJob::place(const Region& region, const Shape& shape, uint32_t instance) const {
  return {region.offset + uint64_t{4} * shape.cols * slot(instance), region.row_stride_bytes, shape.cols * slots_};
}

void OpJob::put(const Step& step, uint32_t instance, const std::vector<Matrix>& inputs) {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Shape& shape = op_.inputs[k];
    const Place at = place(input_regions_[k], shape, instance);
    const void* source =
        shape.format == MH_FORMAT_I32 ? static_cast<const void*>(inputs[k].ids.data()) : inputs[k].reals.data();
    for (uint64_t r = 0; r < step.rows(shape.rows); ++r)
      for (uint64_t g = 0; g < shape.groups; ++g)
        std::memcpy(session_.arena.base() + at.offset + r * at.row_stride_bytes + g * at.group_stride * 4,
                    static_cast<const char*>(source) + (r * shape.groups + g) * shape.cols * 4,
                    uint64_t{4} * shape.cols);
  }
}

void OpJob::run(const Step& step) {
  const uint64_t serial = session_.next_serial();
  block_.write(step, serial);
  for (const Region& region : output_regions_) session_.arena.wipe(region);
  session_.arena.remember();
  Host::signal(go_.counter, serial);
  job_.run(serial, done_);
  std::vector<uint32_t> rows;
  for (const Shape& shape : op_.outputs) rows.push_back(step.rows(shape.rows));
  const std::string where = session_.arena.changed_outside(output_regions_, rows);
  require(where.empty(), op_.name, ", ", step.tokens(), " tokens: wrote outside its outputs: ", where);
}

std::vector<Matrix> OpJob::get(const Step& step, uint32_t instance) const {
  std::vector<Matrix> out(op_.outputs.size());
  for (size_t k = 0; k < out.size(); ++k) {
    const Shape& shape = op_.outputs[k];
    const Place at = place(output_regions_[k], shape, instance);
    const size_t count = uint64_t{step.rows(shape.rows)} * shape.width();
    out[k].reals.resize(count), out[k].ids.resize(count);
    for (size_t r = 0; r < step.rows(shape.rows); ++r)
      for (size_t g = 0; g < shape.groups; ++g) {
        const char* source = session_.arena.base() + at.offset + r * at.row_stride_bytes + g * at.group_stride * 4;
        const size_t to = (r * shape.groups + g) * shape.cols;
        std::memcpy(&out[k].reals[to], source, uint64_t{4} * shape.cols);
        std::memcpy(&out[k].ids[to], source, uint64_t{4} * shape.cols);
      }
  }
  return out;
}

}  // namespace conform

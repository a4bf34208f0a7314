// The executor: fills the step block, submits one program a device, waits for their last fences.
#include "core/engine/executor.h"

#include <algorithm>
#include <cstring>

#include "core/base/log.h"

namespace moehost {
namespace {

constexpr uint64_t kMillisecond = 1000000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kGraceNs = 10 * kSecond;  // for a queue to answer after abort
constexpr uint64_t kLine = 64;

uint64_t poison(int32_t code) { return MH_FENCE_POISON | static_cast<uint32_t>(-code); }

}  // namespace

// Members are destroyed from the last up: programs before their queue, the queue before the import.
struct Executor::Lane {
  Device* device = nullptr;
  BufferHandle arena;
  std::unique_ptr<Queue> queue;
  std::vector<ProgramHandle> programs;
  std::vector<const CutProgram*> parts;  // of programs
  std::unique_ptr<Relay> relay;          // null: the device waits and signals itself
};

// A thread that plays the hand-offs of one device: waits for fences, runs a segment to its end, signals.
struct Executor::Relay {
  Relay(Executor& owner, Lane& of) : executor(owner), lane(of), thread([this] { loop(); }) {}
  ~Relay() {
    stop = true;
    executor.registry_.fence_signal(&doorbell, poison(MH_ABORTED));
    thread.join();
  }
  void loop() {
    for (uint64_t serial = 1; !stop; ++serial) {
      int32_t rc;
      do rc = executor.registry_.fence_wait(&doorbell, serial, kSecond);
      while (rc == MH_TIMEOUT && !stop);
      if (rc != MH_OK) return;
      int32_t failed = MH_OK;
      for (size_t i = 0; i < lane.programs.size(); ++i) {
        if (failed == MH_OK) failed = run_segment(i, serial);
        for (const uint32_t f : lane.parts[i]->signals)
          executor.registry_.fence_signal(executor.fence(f), failed == MH_OK ? serial : poison(failed));
      }
      finished.store(serial, std::memory_order_release);
    }
  }
  int32_t run_segment(size_t index, uint64_t serial) {
    for (const uint32_t f : lane.parts[index]->waits) {
      int32_t rc;
      do rc = executor.registry_.fence_wait(executor.fence(f), serial, kMillisecond);
      while (rc == MH_TIMEOUT && !aborted);
      if (rc != MH_OK) return rc == MH_TIMEOUT ? MH_ABORTED : rc;
    }
    if (aborted) return MH_ABORTED;
    if (!lane.queue->submit(lane.programs[index].get()).ok()) return MH_INTERNAL;
    for (;;) {
      const QueueError e = lane.queue->wait(kMillisecond);
      if (e.mh_code != MH_TIMEOUT) return e.mh_code;
    }
  }
  Executor& executor;
  Lane& lane;
  std::atomic<bool> stop{false}, aborted{false};
  std::atomic<uint64_t> finished{0};
  alignas(kLine) uint64_t doorbell = 0;
  std::thread thread;
};

Executor::Executor(Placement& placement, Registry& registry, double step_timeout_s)
    : placement_(placement), registry_(registry), step_timeout_s_(step_timeout_s) {}

Executor::~Executor() {
  for (auto& lane : lanes_) lane->relay.reset();
}

Result<std::unique_ptr<Executor>> Executor::create(Placement& placement, Registry& registry, std::vector<OpHandle> ops,
                                                   std::vector<KvHandle> kvs, double step_timeout_s) {
  std::unique_ptr<Executor> out(new Executor(placement, registry, step_timeout_s));
  std::vector<mh_op*> raw;
  for (const OpHandle& op : ops) raw.push_back(op.get());
  out->ops_ = std::move(ops);
  out->kvs_ = std::move(kvs);
  MOEHOST_RETURN_IF_ERROR(out->set_up(std::move(raw)));
  return out;
}

Status Executor::set_up(std::vector<mh_op*> ops) {
  const CutResult& cut = placement_.cut;
  MOEHOST_ASSIGN(arena_, registry_.allocate(cut.arena_bytes));
  base_ = static_cast<char*>(arena_.get());
  for (const auto& device : placement_.program.devices) {
    auto lane = std::make_unique<Lane>();
    lane->device = device.get();
    MOEHOST_ASSIGN(lane->arena, device->import_buffer(base_, cut.arena_bytes));
    MOEHOST_ASSIGN(lane->queue, device->create_queue());
    lanes_.push_back(std::move(lane));
  }
  for (size_t i = 0; i < cut.programs.size(); ++i) {
    Lane& lane = *lanes_[cut.programs[i].device];
    const ProgramDescription description(placement_.program, cut, i, placement_.descriptions,
                                         {lane.arena.get(), base_, &ops});
    MOEHOST_ASSIGN(ProgramHandle program, lane.queue->create_program(description.get()));
    lane.programs.push_back(std::move(program));
    lane.parts.push_back(&cut.programs[i]);
  }
  for (size_t d = 0; d < lanes_.size(); ++d)
    if (cut.relayed[d]) lanes_[d]->relay = std::make_unique<Relay>(*this, *lanes_[d]);
  return {};
}

uint64_t* Executor::fence(uint32_t index) const { return reinterpret_cast<uint64_t*>(base_ + index * kLine); }

template <class T>
T* Executor::step_at(uint32_t offset) const {
  return reinterpret_cast<T*>(base_ + placement_.cut.step.offset + offset);
}

void Executor::fill_step(const StepInput& input) {
  const StepLayout& layout = placement_.cut.step;
  mh_step& step = *step_at<mh_step>(0);
  step = {};
  step.size = sizeof step;
  step.serial = serial_;
  step.sequences = static_cast<uint32_t>(input.sequences.size());
  step.outputs = static_cast<uint32_t>(input.outputs.size());
  step.token_ids = layout.token_ids, step.positions = layout.positions, step.output_rows = layout.output_rows;
  step.sequence_rows = layout.sequence_rows, step.sequence_lengths = layout.sequence_lengths;
  step.groups = layout.groups, step.group_count = static_cast<uint32_t>(layout.tables.size());
  for (uint32_t g = 0; g < step.group_count; ++g)
    step_at<mh_step_group>(layout.groups)[g] = {layout.tables[g], layout.table_stride, layout.copies[g], 0};

  uint32_t row = 0;
  for (uint32_t s = 0; s < step.sequences; ++s) {
    const StepSequence& sequence = input.sequences[s];
    const auto count = static_cast<uint32_t>(sequence.tokens.size());
    step_at<int32_t>(layout.sequence_rows)[s] = static_cast<int32_t>(row);
    step_at<int32_t>(layout.sequence_lengths)[s] = static_cast<int32_t>(sequence.first_position + count);
    step.decode_sequences += count == 1 && step.decode_sequences == s;
    for (uint32_t i = 0; i < count; ++i, ++row) {
      step_at<int32_t>(layout.token_ids)[row] = sequence.tokens[i];
      step_at<int32_t>(layout.positions)[row] = static_cast<int32_t>(sequence.first_position + i);
    }
    for (uint32_t g = 0; g < step.group_count; ++g) {
      int32_t* table = step_at<int32_t>(layout.tables[g]) + uint64_t{s} * layout.table_stride;
      std::fill(table, table + layout.table_stride, -1);
      std::copy(sequence.blocks.begin(), sequence.blocks.end(), table);
    }
  }
  step_at<int32_t>(layout.sequence_rows)[step.sequences] = static_cast<int32_t>(row);
  std::copy(input.outputs.begin(), input.outputs.end(), step_at<int32_t>(layout.output_rows));
  step.tokens = row;
}

Status Executor::submit() {
  for (auto& lane : lanes_) {
    if (lane->relay)
      registry_.fence_signal(&lane->relay->doorbell, serial_);
    else
      MOEHOST_RETURN_IF_ERROR(lane->queue->submit(lane->programs[0].get()));
  }
  return {};
}

// Waits for the last fence of every device.
Status Executor::finish() {
  for (uint32_t d = 0; d < lanes_.size(); ++d) {
    const int32_t rc = registry_.fence_wait(fence(placement_.cut.done_fence(d)), serial_,
                                            static_cast<uint64_t>(step_timeout_s_ * static_cast<double>(kSecond)));
    if (rc == MH_TIMEOUT)
      return fail(Code::kUnavailable, lanes_[d]->device->name(), " did not finish a step within ", step_timeout_s_,
                  " s");
    if (rc != MH_OK) return fail(Code::kUnavailable, lanes_[d]->device->name(), " failed in a step");
  }
  return {};
}

Result<std::span<float>> Executor::run(const StepInput& input) {
  if (!lost_.empty()) return fail(Code::kUnavailable, lost_);
  ++serial_;
  fill_step(input);
  Status status = submit();
  if (status.ok()) status = finish();
  if (!status.ok()) return recover(std::move(status));
  const PlacedProgram& p = placement_.program;
  const Boundary& logits =
      placement_.cut.boundaries[static_cast<size_t>(placement_.cut.boundary_of(p.values[p.logits].view.root))];
  return std::span<float>(reinterpret_cast<float*>(base_ + logits.offset),
                          input.outputs.size() * logits.row_stride_bytes / sizeof(float));
}

// Stops all queues, finds the first cause, resets: afterwards the next step may run. Returns what to tell the caller.
Status Executor::recover(Status cause) {
  const auto lose = [&](const Device& device, const std::string& why) {
    lost_ = cat(device.name(), " is lost (", why, "): restart moehost");
    log::error("engine", lost_);
  };
  for (auto& lane : lanes_) {
    if (lane->relay) lane->relay->aborted = true;
    if (const Status s = lane->queue->abort(); !s.ok()) log::warning("engine", s.message());
  }
  bool found = false;
  for (auto& lane : lanes_) {
    if (lane->relay) registry_.fence_signal(&lane->relay->doorbell, serial_);  // a step that was not begun ends too
    QueueError e = lane->queue->wait(kGraceNs);
    if (e.mh_code == MH_TIMEOUT) {
      lose(*lane->device, "no answer to abort");
      lane->device->abandon();
    } else if (e.mh_code != MH_OK && e.mh_code != MH_ABORTED && !found) {
      found = true;
      std::string where = lane->device->name();
      if (e.item >= 0 && !lane->relay && static_cast<size_t>(e.item) < lane->parts[0]->items.size()) {
        const CutItem& item = lane->parts[0]->items[static_cast<size_t>(e.item)];
        if (item.what == MH_ITEM_OP) where += cat(", ", placement_.program.ops[item.index].op.name);
      }
      cause = fail(e.status.code(), where, ": ", e.status.message());
    }
  }
  for (auto& lane : lanes_) {
    if (lane->relay) {
      while (lane->relay->finished.load(std::memory_order_acquire) < serial_) std::this_thread::yield();
      lane->relay->aborted = false;
    }
    if (!lost_.empty()) continue;
    if (const Status s = lane->queue->reset(); !s.ok()) lose(*lane->device, s.message());
  }
  for (uint32_t f = 0; f < placement_.cut.fence_count; ++f) __atomic_store_n(fence(f), serial_, __ATOMIC_RELEASE);
  return cause;
}

}  // namespace moehost

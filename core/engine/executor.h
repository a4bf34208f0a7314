// Runs steps of a placed program: exchange memory, queues, fences, relay and recovery. Floor 5.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/placement/placement.h"

namespace moehost {

// One sequence's part of a step: its new tokens follow `first_position` tokens in the cache.
struct StepSequence {
  std::span<const int32_t> tokens;
  uint32_t first_position = 0;
  std::span<const int32_t> blocks;  // block ids that hold positions 0 .. first_position + tokens - 1
};
// Sequences with one token come first. outputs: rows of the step (counted over all sequences) whose logits are wanted.
struct StepInput {
  std::vector<StepSequence> sequences;
  std::vector<int32_t> outputs;
};

class Executor {
 public:
  // placement outlives the executor. ops, kvs: loaded, by index of the placement. Takes them over.
  static Result<std::unique_ptr<Executor>> create(Placement& placement, Registry& registry, std::vector<OpHandle> ops,
                                                  std::vector<KvHandle> kvs, double step_timeout_s);
  ~Executor();

  // One step; returns logits [outputs, vocab], valid until the next call. One caller at a time. On failure
  // (kUnavailable with device, op and the plugin's text) the devices are reset and the next step may run; blocks that
  // the step wrote are undefined. After a device is lost every call fails.
  Result<std::span<float>> run(const StepInput& input);

 private:
  struct Lane;   // one device of the placement
  struct Relay;  // runs the segments of a device that cannot wait or signal
  Executor(Placement& placement, Registry& registry, double step_timeout_s);
  Status set_up(std::vector<mh_op*> ops);
  void fill_step(const StepInput& input);
  Status submit();
  Status finish();
  Status recover(Status cause);
  uint64_t* fence(uint32_t index) const;
  template <class T>
  T* step_at(uint32_t offset) const;

  Placement& placement_;
  Registry& registry_;
  double step_timeout_s_;
  std::shared_ptr<void> arena_;
  char* base_ = nullptr;
  std::vector<KvHandle> kvs_;
  std::vector<OpHandle> ops_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  uint64_t serial_ = 0;
  std::string lost_;  // why no step can run any more; empty while all is well
};

}  // namespace moehost

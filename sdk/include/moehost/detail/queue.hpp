// queue.hpp - one worker thread that runs the programs of a queue one after another. Part of device.hpp.
#pragma once
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "program.hpp"

#pragma GCC visibility push(hidden)
struct mh_program {
  mh_queue* queue;
  std::vector<mh::detail::Item> items;
  uint64_t workspace_bytes;
  const mh_step* step;
  uint32_t max_tokens, max_outputs, max_sequences;
  std::vector<mh::View> views;        // of the op that runs: as many as the largest op has
  std::atomic<uint64_t> last_run{0};  // number of its last submission
};

struct mh_queue {
 public:
  explicit mh_queue(mh_device& device) : device_(device), worker_([this] { work(); }) {}
  ~mh_queue() {
    stop_ = true;
    host().fence_signal(host().ctx, &doorbell_, MH_FENCE_POISON | uint32_t{-MH_ABORTED});
    { const std::lock_guard<std::mutex> lock(sleep_); }
    wake_.notify_one();
    worker_.join();
  }
  mh_device& device() { return device_; }

  // [control], no run in flight beyond its last signal. Grows the workspace; when that fails the old size is back.
  void reserve(uint64_t bytes) {
    finish(submitted_);
    if (bytes <= workspace_.bytes()) return;
    const uint64_t before = workspace_.bytes();
    workspace_ = mh::HostMemory();  // first, so that a plan that just fits can be reached in steps
    try {
      workspace_ = mh::HostMemory(device_.backend->memory(), bytes, MH_MEMORY_HUGE);
    } catch (...) {
      workspace_ = mh::HostMemory(device_.backend->memory(), before, MH_MEMORY_HUGE);
      throw;
    }
  }
  // [control] Until submission n has ended.
  void finish(uint64_t n) const {
    while (host().fence_wait(host().ctx, &done_, n, kSecondNs) == MH_TIMEOUT) {
    }
  }

  int32_t submit(mh_program& program, mh_error* error) {  // [hot]
    if (failed_ != MH_OK || aborted_) return mh::report(error, MH_ABORTED, -1, "the queue waits for a reset");
    const uint64_t n = submitted_ + 1;
    if (n - __atomic_load_n(&done_, __ATOMIC_ACQUIRE) > kRing)
      return mh::report(error, MH_BUSY, -1, "too many runs in flight");
    ring_[n % kRing] = &program;
    program.last_run = n;
    submitted_ = n;
    host().fence_signal(host().ctx, &doorbell_, n);
    if (asleep_) {  // both sequentially consistent: the worker has seen n, or we see that it sleeps
      { const std::lock_guard<std::mutex> lock(sleep_); }
      wake_.notify_one();
    }
    return MH_OK;
  }
  int32_t wait(uint64_t timeout_ns, mh_error* error) {  // [any]
    const int32_t code = host().fence_wait(host().ctx, &done_, submitted_, timeout_ns);
    if (code != MH_OK) return mh::report(error, code, -1, "the queue has not finished in time");
    const std::lock_guard<std::mutex> lock(failure_);
    return failed_ == MH_OK ? MH_OK : mh::report(error, failed_, failed_item_, failed_text_);
  }
  void abort() { aborted_ = true; }
  void reset() {  // [control]
    if (__atomic_load_n(&done_, __ATOMIC_ACQUIRE) != submitted_) mh::fail(MH_BUSY, "reset: the queue still runs");
    device_.backend->reset();
    const std::lock_guard<std::mutex> lock(failure_);
    aborted_ = false, failed_ = MH_OK;
  }

 private:
  static constexpr uint64_t kRing = 256, kSecondNs = 1'000'000'000;
  static constexpr uint64_t kLookForAbortNs = 1'000'000, kDozeNs = 2'000'000;
  static const mh_host& host() { return *mh::g_host; }

  // The worker waits as the host says for a while, then sleeps without looking up: an idle queue takes no time.
  bool next(uint64_t n) {
    for (;;) {
      const int32_t code = host().fence_wait(host().ctx, &doorbell_, n, kDozeNs);
      if (stop_) return false;
      if (code == MH_OK) return true;
      std::unique_lock<std::mutex> lock(sleep_);
      asleep_ = true;
      wake_.wait(lock, [&] { return submitted_ >= n || stop_; });
      asleep_ = false;
    }
  }
  void work() {
    for (uint64_t n = 1; next(n); ++n) {
      mh_program& p = *ring_[n % kRing];
      check_step(p);
      for (size_t i = 0; i < p.items.size(); ++i) run_item(p, static_cast<int32_t>(i));
      host().fence_signal(host().ctx, &done_, n);
    }
  }
  void check_step(const mh_program& p) {
    const mh_step& s = *p.step;
    if (s.size < sizeof s || s.tokens > p.max_tokens || s.outputs > p.max_outputs || s.sequences > p.max_sequences)
      fail(MH_INVALID, MH_INVALID, -1, "the step passes the program's maxima");
    else if (workspace_.bytes() < p.workspace_bytes)
      fail(MH_NO_MEMORY, MH_NO_MEMORY, -1, "the workspace was lost when another program asked for more than there was");
  }
  // code: of this queue. origin: what its fences are poisoned with. The first failure stays.
  void fail(int32_t code, int32_t origin, int32_t item, const char* text) {
    if (failed_ != MH_OK) return;
    const std::lock_guard<std::mutex> lock(failure_);
    failed_item_ = item, origin_ = origin;
    std::snprintf(failed_text_, sizeof failed_text_, "%s", text);
    failed_ = code;
  }
  void run_item(mh_program& p, int32_t index) {
    mh::detail::Item& item = p.items[static_cast<size_t>(index)];
    if (aborted_) fail(MH_ABORTED, MH_ABORTED, index, "aborted");
    if (item.what == MH_ITEM_SIGNAL) {
      const uint64_t poison = MH_FENCE_POISON | static_cast<uint32_t>(-origin_);
      host().fence_signal(host().ctx, item.fence, failed_ == MH_OK ? p.step->serial : poison);
    } else if (failed_ != MH_OK) {
      return;  // waits end at once, ops do no work
    } else if (item.what == MH_ITEM_WAIT) {
      wait_for(*item.fence, p.step->serial, index);
    } else {
      mh_error error{};
      error.size = sizeof error;
      const int32_t code = mh::guard(&error, [&] { run_op(p, item); });
      if (code != MH_OK) fail(code, code, index, error.text);
    }
  }
  void wait_for(const uint64_t& fence, uint64_t serial, int32_t index) {
    int32_t code;
    do code = host().fence_wait(host().ctx, &fence, serial, kLookForAbortNs);
    while (code == MH_TIMEOUT && !aborted_);
    if (code == MH_TIMEOUT)
      fail(MH_ABORTED, MH_ABORTED, index, "aborted while waiting");
    else if (code != MH_OK)
      fail(MH_ABORTED, code, index, "waited on a poisoned fence");
  }
  void run_op(mh_program& p, mh::detail::Item& item) {
    std::byte* workspace = workspace_.data();
    const mh_step& raw = *p.step;
    const mh::Step step(raw);
    for (size_t i = 0; i < item.ports.size(); ++i) p.views[i] = item.ports[i].view(workspace, raw);
    for (uint32_t i = 0; i < item.copies_in; ++i) copy(item, i, workspace, raw);
    if (item.op->kind() == MH_OP_ATTENTION) copy_blocks(*item.op, step);
    const mh::View* views = p.views.data();
    const auto outputs = static_cast<uint32_t>(item.ports.size()) - item.input_count;
    device_.backend->run(*item.op, {views, views + item.input_count, item.input_count, outputs, step,
                                    workspace + item.scratch_at, aborted_});
    for (size_t i = item.copies_in; i < item.copies.size() / 2; ++i) copy(item, i, workspace, raw);
  }
  static void copy(const mh::detail::Item& item, size_t pair, std::byte* workspace, const mh_step& step) {
    const mh::View from = item.copies[2 * pair].view(workspace, step),
                   to = item.copies[2 * pair + 1].view(workspace, step);
    for (uint32_t r = 0; r < from.rows; ++r)
      for (uint32_t g = 0; g < from.groups; ++g) std::memcpy(to.row(r, g), from.row(r, g), from.cols * sizeof(float));
  }
  static void copy_blocks(const mh::Op& op, const mh::Step& step) {
    const auto& params = op.params<mh_attention_params>();
    const mh_kv_desc& kv = op.kv()->desc();
    if (kv.group >= step.raw().group_count) mh::fail(MH_INVALID, "the step has no kv group ", kv.group);
    if (params.read_only) return;
    const int32_t* pairs = step.copies(kv.group);
    for (uint32_t i = 0; i < step.group(kv.group).copy_count; ++i) {
      const auto from = static_cast<uint32_t>(pairs[2 * i]), to = static_cast<uint32_t>(pairs[2 * i + 1]);
      if (from >= kv.block_count || to >= kv.block_count)
        mh::fail(MH_INVALID, "copy pair ", pairs[2 * i], ", ", pairs[2 * i + 1]);
      op.kv()->copy_block(params.layer, from, to);
    }
  }

  mh_device& device_;
  mh::HostMemory workspace_;
  std::array<mh_program*, kRing> ring_{};
  std::atomic<uint64_t> submitted_{0};
  alignas(64) uint64_t doorbell_ = 0;  // raised by submit, waited on by the worker
  alignas(64) uint64_t done_ = 0;      // submissions that have ended
  alignas(64) std::atomic<bool> aborted_{false};
  std::atomic<bool> stop_{false}, asleep_{false};
  std::mutex sleep_;
  std::condition_variable wake_;
  std::mutex failure_;                  // guards the three below against a reader of wait
  std::atomic<int32_t> failed_{MH_OK};  // first error since the last reset
  int32_t failed_item_ = -1, origin_ = MH_OK;
  char failed_text_[sizeof(mh_error::text)] = {};
  std::thread worker_;  // last: starts when all else is there
};
#pragma GCC visibility pop

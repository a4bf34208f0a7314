// The threads of one CPU device. Work is a list of phases, each a number of pieces that threads take one by one: a
// thread that loses its processor holds up one piece, not a share. One hand-off wakes the workers for all phases.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace mh_cpu {

// Runs one piece: its number, and the number of the thread (0 .. threads - 1), for scratch memory of its own. Refers to
// a callable that outlives it and must not throw: nothing is copied, nothing allocated.
class PieceFn {
 public:
  template <class Fn, class = std::enable_if_t<!std::is_same_v<std::decay_t<Fn>, PieceFn>>>
  PieceFn(const Fn& fn)  // NOLINT: implicit, as any reference
      : object_(&fn), call_([](const void* object, uint32_t piece, uint32_t thread) {
          (*static_cast<const Fn*>(object))(piece, thread);
        }) {}
  void operator()(uint32_t piece, uint32_t thread) const { call_(object_, piece, thread); }

 private:
  const void* object_;
  void (*call_)(const void*, uint32_t, uint32_t);
};
// A phase begins when the one before has ended. pieces may be 0.
struct Phase {
  uint32_t pieces;
  PieceFn run;
};

// Processors that this process may use, by number; of a list ("0-3,8") where it is not empty. Throws mh::Error
// (MH_INVALID) for a list that is malformed or names a processor that may not be used.
std::vector<int> usable_cpus(const std::string& list);

class ThreadPool {
 public:
  // One thread a processor of cpus, pinned to it. Thread 0 is the caller of run, which stays where it is: cpus[0] is
  // left to it. spin_ns: how long a waiting thread may spin before it parks, asked every time.
  ThreadPool(const std::vector<int>& cpus, std::function<uint64_t()> spin_ns);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }
  // Returns when all phases (kMaxPhases at most) have ended. Callers on several threads take turns. [any]
  void run(std::initializer_list<Phase> phases);
  void run(uint32_t pieces, PieceFn piece) { run({{pieces, piece}}); }

  static constexpr size_t kMaxPhases = 4;

 private:
  struct alignas(64) Counter {
    std::atomic<uint32_t> value{0};
  };

  void work(uint32_t thread);
  void take_pieces(uint32_t thread);
  uint64_t wait_for_job(uint64_t seen);

  const std::function<uint64_t()> spin_ns_;
  std::mutex callers_;
  const Phase* phases_ = nullptr;  // of the job in progress
  size_t phase_count_ = 0;
  Counter next_[kMaxPhases], left_[kMaxPhases];  // by phase: next piece, pieces not yet ended
  // The door to the job: upper half its number, bit 31 open, below it the workers inside. A worker that comes late
  // finds it closed and is not waited for.
  alignas(64) std::atomic<uint64_t> door_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> sleepers_{0};
  std::mutex sleep_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace mh_cpu

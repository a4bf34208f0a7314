// The thread pool: one atomic word lets workers in and out of a job, counters hand out its pieces.
#include "plugins/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "moehost/support.hpp"

namespace mh_cpu {
namespace {

constexpr uint64_t kOpen = UINT64_C(1) << 31, kInside = kOpen - 1;
constexpr uint64_t job_number(uint64_t door) { return door >> 32; }

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

// Spins until done() holds, for at most the time allowed. False: time is up.
template <class Done>
bool spin_until(uint64_t allowed_ns, Done done) {
  if (done()) return true;
  const uint64_t end_ns = now_ns() + allowed_ns;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
  } while (now_ns() < end_ns);
  return done();
}

[[noreturn]] void bad_list(const std::string& list) {
  mh::fail(MH_INVALID, "option cpus is '", list, "': processors and ranges such as 0-3,8 are expected");
}

}  // namespace

std::vector<int> usable_cpus(const std::string& list) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) mh::fail(MH_INTERNAL, "sched_getaffinity failed");
  std::vector<int> cpus;
  if (list.empty()) {
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &allowed)) cpus.push_back(c);
    return cpus;
  }
  const char *p = list.data(), *end = p + list.size();
  const auto number = [&] {
    int value = -1;
    const auto [rest, error] = std::from_chars(p, end, value);
    if (error != std::errc() || value < 0 || value >= CPU_SETSIZE) bad_list(list);
    p = rest;
    return value;
  };
  for (;;) {
    const int first = number();
    const int last = p < end && *p == '-' ? (++p, number()) : first;
    if (last < first) bad_list(list);
    for (int c = first; c <= last; ++c) {
      if (!CPU_ISSET(c, &allowed))
        mh::fail(MH_INVALID, "option cpus: processor ", c, " is not one that this process may use");
      if (std::find(cpus.begin(), cpus.end(), c) == cpus.end()) cpus.push_back(c);
    }
    if (p == end) return cpus;
    if (*p++ != ',') bad_list(list);
  }
}

ThreadPool::ThreadPool(const std::vector<int>& cpus, std::function<uint64_t()> spin_ns) : spin_ns_(std::move(spin_ns)) {
  for (uint32_t t = 1; t < cpus.size(); ++t) {
    workers_.emplace_back([this, t] { work(t); });
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[t], &one);
    // Not pinned is slower, not wrong: a container may forbid it.
    (void)pthread_setaffinity_np(workers_.back().native_handle(), sizeof one, &one);
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  door_ += kOpen << 1;  // a job that is never opened
  {
    std::lock_guard lock(sleep_);
    wake_.notify_all();
  }
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::run(std::initializer_list<Phase> phases) {
  std::lock_guard lock(callers_);
  phases_ = phases.begin(), phase_count_ = phases.size();
  for (size_t i = 0; i < phase_count_; ++i) {
    next_[i].value.store(0, std::memory_order_relaxed);
    left_[i].value.store(phases_[i].pieces, std::memory_order_relaxed);
  }
  const uint64_t job = (job_number(door_.load()) + 1) << 32;
  if (!workers_.empty()) {
    door_.store(job | kOpen);  // seq_cst, as is sleepers_: either we see the sleeper or it sees the job
    if (sleepers_.load() > 0) {
      std::lock_guard sleeping(sleep_);
      wake_.notify_all();
    }
  }
  take_pieces(0);
  if (workers_.empty()) return;
  door_.fetch_and(~kOpen);
  while (!spin_until(spin_ns_(), [&] { return (door_.load() & kInside) == 0; })) sched_yield();
}

// Whoever comes takes pieces of the phase that is not yet ended; at its end all wait for the last.
void ThreadPool::take_pieces(uint32_t thread) {
  for (size_t i = 0; i < phase_count_; ++i) {
    const uint32_t pieces = phases_[i].pieces;
    std::atomic<uint32_t>& left = left_[i].value;
    uint32_t piece;
    while ((piece = next_[i].value.fetch_add(1, std::memory_order_relaxed)) < pieces) {
      phases_[i].run(piece, thread);
      left.fetch_sub(1, std::memory_order_acq_rel);
    }
    while (!spin_until(spin_ns_(), [&] { return left.load(std::memory_order_acquire) == 0; })) sched_yield();
  }
}

// The door as it is when another job than `seen` is there.
uint64_t ThreadPool::wait_for_job(uint64_t seen) {
  const auto changed = [&] { return job_number(door_.load()) != seen; };
  if (!spin_until(spin_ns_(), changed)) {
    std::unique_lock lock(sleep_);
    ++sleepers_;
    wake_.wait(lock, changed);
    --sleepers_;
  }
  return door_.load();
}

void ThreadPool::work(uint32_t thread) {
  uint64_t seen = 0;
  for (;;) {
    uint64_t door = wait_for_job(seen);
    if (stopping_) return;
    seen = job_number(door);
    while ((door & kOpen) && job_number(door) == seen && !door_.compare_exchange_weak(door, door + 1)) {
    }
    if (!(door & kOpen) || job_number(door) != seen) continue;
    take_pieces(thread);
    door_.fetch_sub(1);
  }
}

}  // namespace mh_cpu

// Spin-then-park on a 64-bit counter: a futex on its low half, and a count of parked threads by address, so that a
// signal that nobody sleeps on is one store.
#include "core/backend/fence.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>

#include "core/backend/answer.h"
#include "moehost/types.h"

namespace moehost {
namespace {

// A wake-up costs about 15 us, a spinning hand-off 0.5: spin for a few wake-ups, and hardly at all when processors
// lack.
constexpr uint64_t kSpinNs = 100'000, kCrowdedSpinNs = 2'000;
constexpr uint64_t kLookAgainNs = 50'000;  // from the ABI: types.h, fence_wait
constexpr int kLooksPerClockRead = 16;     // reading the clock costs about as much as that many looks

std::atomic<uint32_t> spinning_threads = 0;

struct alignas(64) Bucket {
  std::atomic<uint32_t> parked_threads = 0;
};
Bucket buckets[64];

Bucket& bucket_of(const uint64_t* counter) { return buckets[(reinterpret_cast<uintptr_t>(counter) >> 6) % 64]; }

uint32_t processors() {
  static const uint32_t count = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  }();
  return count;
}

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The low half, which the kernel compares. Little-endian, as the ABI.
const uint32_t* futex_word(const uint64_t* counter) { return reinterpret_cast<const uint32_t*>(counter); }

// Sleeps until a signal, or for at most ns, unless the counter is no longer what was seen.
void park(const uint64_t* counter, uint64_t seen, uint64_t ns) {
  // The kernel rounds sleeps of ordinary threads up by 50 us, which would double the time between looks.
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  (void)precise;
  const timespec limit{0, static_cast<long>(std::min(ns, kLookAgainNs))};
  std::atomic<uint32_t>& parked = bucket_of(counter).parked_threads;
  // Sequentially consistent, here and in fence_signal: either the signaller sees this thread, or it sees the new value.
  parked.fetch_add(1);
  if (__atomic_load_n(counter, __ATOMIC_SEQ_CST) == seen) {
    syscall(SYS_futex, futex_word(counter), FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(seen), &limit, nullptr, 0);
  }
  parked.fetch_sub(1);
}

// What a counter says about value: a final answer, or MH_TIMEOUT for "not yet".
int32_t look(uint64_t seen, uint64_t value) {
  if (seen & MH_FENCE_POISON) return known_cause(seen);
  return static_cast<int64_t>(seen) >= static_cast<int64_t>(value) ? MH_OK : MH_TIMEOUT;
}

}  // namespace

uint64_t spin_ns() {
  return spinning_threads.load(std::memory_order_relaxed) < processors() ? kSpinNs : kCrowdedSpinNs;
}

int32_t fence_wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns) {
  uint64_t seen = __atomic_load_n(counter, __ATOMIC_ACQUIRE);
  const auto open = [&] { return !(seen & MH_FENCE_POISON) && look(seen, value) == MH_TIMEOUT; };
  const auto look_again = [&] { seen = __atomic_load_n(counter, __ATOMIC_ACQUIRE); };
  if (!open() || timeout_ns == 0) return look(seen, value);

  const uint64_t start = now_ns();
  uint64_t waited_ns = 0;
  const uint64_t budget_ns = std::min(spin_ns(), timeout_ns);
  spinning_threads.fetch_add(1, std::memory_order_relaxed);
  while (open() && waited_ns < budget_ns) {
    for (int i = 0; i < kLooksPerClockRead && open(); ++i) relax(), look_again();
    waited_ns = now_ns() - start;
  }
  spinning_threads.fetch_sub(1, std::memory_order_relaxed);
  while (open() && waited_ns < timeout_ns) {
    park(counter, seen, timeout_ns - waited_ns);
    look_again();
    waited_ns = now_ns() - start;
  }
  return look(seen, value);
}

void fence_signal(uint64_t* counter, uint64_t value) {
  uint64_t old = __atomic_load_n(counter, __ATOMIC_RELAXED);
  do {
    if (old & MH_FENCE_POISON) return;
  } while (!__atomic_compare_exchange_n(counter, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  if (bucket_of(counter).parked_threads.load() > 0) {
    syscall(SYS_futex, futex_word(counter), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

}  // namespace moehost

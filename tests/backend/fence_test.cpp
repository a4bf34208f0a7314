// Fences: waiting, time-outs, poison, and that a signal wakes who sleeps.
#include "core/backend/fence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "moehost/types.h"

namespace moehost {
namespace {

constexpr uint64_t kForever = UINT64_MAX;
constexpr uint64_t kMillisecondNs = 1'000'000;

struct alignas(64) Counter {
  uint64_t value = 0;
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Fence, IsReachedAtOrAboveTheValue) {
  Counter counter{5};
  EXPECT_EQ(fence_wait(&counter.value, 4, 0), MH_OK);
  EXPECT_EQ(fence_wait(&counter.value, 5, kForever), MH_OK);
  EXPECT_EQ(fence_wait(&counter.value, 6, 0), MH_TIMEOUT);
}

TEST(Fence, TimesOutNeitherBeforeNorWithoutTheTimeGiven) {
  Counter counter;
  for (const uint64_t timeout_ns : {UINT64_C(1), UINT64_C(30'000), 3 * kMillisecondNs}) {  // spinning, and parked
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(fence_wait(&counter.value, 1, timeout_ns), MH_TIMEOUT);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::nanoseconds(timeout_ns));
  }
  EXPECT_EQ(counter.value, 0u);
}

TEST(Fence, GivesTheCauseOfAPoisonAndMakesUpNone) {
  const auto poisoned = [](uint64_t cause) {
    const Counter counter{MH_FENCE_POISON | cause};
    return fence_wait(&counter.value, 1, kForever);
  };
  EXPECT_EQ(poisoned(7), MH_ABORTED);
  EXPECT_EQ(poisoned(3), MH_NO_MEMORY);
  EXPECT_EQ(poisoned(5), MH_TIMEOUT);  // of the origin; the wait itself has ended
  EXPECT_EQ(poisoned(0), MH_INTERNAL);
  EXPECT_EQ(poisoned(99), MH_INTERNAL);
  EXPECT_EQ(poisoned(0xffffffff), MH_INTERNAL);
}

TEST(Fence, APoisonInPlaceStays) {
  Counter counter;
  fence_signal(&counter.value, MH_FENCE_POISON | 8);
  fence_signal(&counter.value, 3);
  fence_signal(&counter.value, MH_FENCE_POISON | 7);
  EXPECT_EQ(counter.value, MH_FENCE_POISON | 8);
}

TEST(Fence, WhatWasWrittenBeforeTheSignalIsSeenAfterTheWait) {
  Counter there, back;
  uint64_t question = 0, answer = 0;  // plain data: ThreadSanitizer watches
  constexpr uint64_t kSteps = 2000;
  std::thread worker([&] {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      ASSERT_EQ(fence_wait(&there.value, step, kForever), MH_OK);
      answer = question + 1;
      fence_signal(&back.value, step);
    }
  });
  for (uint64_t step = 1; step <= kSteps; ++step) {
    question = 10 * step;
    fence_signal(&there.value, step);
    ASSERT_EQ(fence_wait(&back.value, step, kForever), MH_OK);
    ASSERT_EQ(answer, 10 * step + 1);
  }
  worker.join();
}

// Waiters are asleep by then (they spin for a tenth of a millisecond), on counters that share buckets and on one alike.
TEST(Fence, ASignalWakesEveryParkedWaiter) {
  constexpr int kWaiters = 8;
  std::vector<Counter> counters(kWaiters / 2);
  std::vector<int32_t> answers(kWaiters, MH_INTERNAL);
  std::vector<std::thread> threads;
  for (int i = 0; i < kWaiters; ++i) {
    threads.emplace_back([&, i] { answers[i] = fence_wait(&counters[i / 2].value, 1, kForever); });
  }
  sleep_ms(20);
  for (Counter& counter : counters) fence_signal(&counter.value, 1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers, std::vector<int32_t>(kWaiters, MH_OK));
}

TEST(Fence, APoisonWakesAParkedWaiter) {
  Counter counter{8};  // the poison below has the same low half
  int32_t answer = MH_OK;
  std::thread thread([&] { answer = fence_wait(&counter.value, 9, kForever); });
  sleep_ms(10);
  fence_signal(&counter.value, MH_FENCE_POISON | 8);
  thread.join();
  EXPECT_EQ(answer, MH_INTERNAL);
}

TEST(Fence, AParkedWaiterSeesACounterThatIsRaisedWithoutASignal) {
  Counter counter;
  int32_t answer = MH_INTERNAL;
  std::thread thread([&] { answer = fence_wait(&counter.value, 1, kForever); });
  sleep_ms(10);
  __atomic_store_n(&counter.value, 1, __ATOMIC_RELEASE);  // as a GPU does
  thread.join();
  EXPECT_EQ(answer, MH_OK);
}

TEST(Fence, TheSpinBudgetFallsWhileThreadsCrowd) {
  const uint64_t alone_ns = spin_ns();
  std::vector<Counter> counters(64);
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (Counter& counter : counters) {
    threads.emplace_back([&] {
      for (uint64_t value = 1; !stop; ++value) fence_wait(&counter.value, value, 50'000);
    });
  }
  uint64_t lowest_ns = alone_ns;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (lowest_ns == alone_ns && std::chrono::steady_clock::now() < end) lowest_ns = std::min(lowest_ns, spin_ns());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(lowest_ns, alone_ns);
  EXPECT_EQ(spin_ns(), alone_ns);  // every spinner was counted out again
}

}  // namespace
}  // namespace moehost

// The thread pool: every piece once, phases in order, callers in turn.
#include "plugins/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

#include "moehost/support.hpp"

namespace mh_cpu {
namespace {

// More threads than processors where there are few: several may share one.
ThreadPool make_pool(uint32_t threads, uint64_t spin_ns = 20000) {
  const auto cpus = usable_cpus("");
  std::vector<int> chosen;
  for (uint32_t t = 0; t < threads; ++t) chosen.push_back(cpus[t % cpus.size()]);
  return ThreadPool(chosen, [spin_ns] { return spin_ns; });
}

TEST(ThreadPool, RunsEveryPieceOnceWithThreadsInRange) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    ThreadPool pool = make_pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (uint32_t round = 0; round < 300; ++round) {
      std::vector<std::atomic<uint32_t>> seen(round % 40);
      pool.run(static_cast<uint32_t>(seen.size()), [&](uint32_t piece, uint32_t thread) {
        EXPECT_LT(thread, threads);
        ++seen[piece];
      });
      for (const auto& count : seen) ASSERT_EQ(count, 1u);
    }
  }
}

TEST(ThreadPool, APhaseBeginsWhenTheOneBeforeHasEnded) {
  ThreadPool pool = make_pool(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<uint32_t> first(17), second(9);
    const auto fill = [&](uint32_t piece, uint32_t) { first[piece] = piece; };
    const auto sum = [&](uint32_t piece, uint32_t) { second[piece] = std::accumulate(first.begin(), first.end(), 0u); };
    pool.run({{17, fill}, {0, fill}, {9, sum}});
    for (const uint32_t s : second) ASSERT_EQ(s, 136u);
  }
}

TEST(ThreadPool, CallersOnSeveralThreadsTakeTurns) {
  ThreadPool pool = make_pool(2);
  std::atomic<int> inside{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 200; ++round) {
        const auto enter = [&](uint32_t, uint32_t) {
          EXPECT_TRUE(inside == 0 || inside == c + 1);
          inside = c + 1;
        };
        const auto leave = [&](uint32_t, uint32_t) { inside = 0; };
        pool.run({{4, enter}, {1, leave}});
      }
    });
  for (std::thread& t : callers) t.join();
}

TEST(ThreadPool, ParkedWorkersWakeAndEnd) {
  ThreadPool pool = make_pool(4, 0);
  std::atomic<uint32_t> sum{0};
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    pool.run(8, [&](uint32_t, uint32_t) { ++sum; });
  }
  EXPECT_EQ(sum, 400u);
}

TEST(UsableCpus, TakesListsOfWhatThisProcessMayUse) {
  const auto all = usable_cpus("");
  ASSERT_FALSE(all.empty());
  const std::string first = std::to_string(all[0]);
  EXPECT_EQ(usable_cpus(first), std::vector<int>{all[0]});
  EXPECT_EQ(usable_cpus(first + "-" + first + "," + first), std::vector<int>{all[0]});
}

TEST(UsableCpus, RefusesListsThatAreMalformedOrNameForeignProcessors) {
  for (const char* list : {"a", "-1", "0-", "0,", ",0", "0 1", "3-1", "1023", "99999999999"})
    EXPECT_THROW(usable_cpus(list), mh::Error) << list;
}

}  // namespace
}  // namespace mh_cpu

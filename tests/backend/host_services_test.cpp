// mh_host: memory is counted and limited to the byte, and misuse is refused.
#include "core/backend/host_services.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "core/backend/answer.h"
#include "tests/backend/plugin_folder.h"

namespace moehost {
namespace {

class HostServicesTest : public testing::Test {
 protected:
  static constexpr uint64_t kLimit = 10 << 20, kHugePageBytes = 2 << 20;
  int32_t alloc(uint64_t bytes, uint32_t flags = MH_MEMORY_ZERO, int32_t node = -1) {
    error_ = fresh_error();
    return table_.memory_alloc(table_.ctx, bytes, node, flags, &memory_, &error_);
  }
  void free(uint64_t bytes) { table_.memory_free(table_.ctx, memory_, bytes); }

  HostServices host_{kLimit, {}};
  const mh_host& table_ = host_.table();
  void* memory_ = nullptr;
  mh_error error_ = fresh_error();
};

TEST_F(HostServicesTest, TheTableIsComplete) {
  EXPECT_EQ(table_.size, sizeof(mh_host));
  EXPECT_EQ(table_.minor, MH_ABI_MINOR);
  EXPECT_TRUE(table_.log && table_.memory_alloc && table_.memory_free && table_.spin_ns && table_.fence_wait);
  EXPECT_TRUE(table_.fence_signal && table_.device_acquire && table_.device_release && table_.extension);
  EXPECT_EQ(table_.extension(table_.ctx, "mh.nothing/1"), nullptr);
  EXPECT_GT(table_.spin_ns(table_.ctx), 0u);
  table_.log(table_.ctx, 99, nullptr, nullptr);  // nonsense is logged, not fatal
}

TEST_F(HostServicesTest, MemoryIsZeroedAtAPageAndCountedAsAskedFor) {
  for (const uint64_t bytes : {UINT64_C(1), UINT64_C(4097), UINT64_C(5) << 20}) {
    for (const uint32_t flags : {0u, uint32_t{MH_MEMORY_HUGE}, uint32_t{MH_MEMORY_HUGE | MH_MEMORY_ZERO}}) {
      ASSERT_EQ(alloc(bytes, flags, 0), MH_OK);
      const bool huge = (flags & MH_MEMORY_HUGE) && bytes >= kHugePageBytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory_) % (huge ? kHugePageBytes : 4096), 0u);
      auto* const data = static_cast<unsigned char*>(memory_);
      EXPECT_EQ(data[0] | data[bytes / 2] | data[bytes - 1], 0);
      data[0] = data[bytes - 1] = 1;
      EXPECT_EQ(host_.bytes_in_use(), bytes);
      free(bytes);
      EXPECT_EQ(host_.bytes_in_use(), 0u);
    }
  }
}

TEST_F(HostServicesTest, TheLimitHoldsToTheByteAndTheRefusalHasTheNumbers) {
  ASSERT_EQ(alloc(kLimit), MH_OK);
  void* const whole = memory_;
  EXPECT_EQ(alloc(1), MH_NO_MEMORY);
  EXPECT_STREQ(error_.text, "host memory: 1 B (1 bytes) asked for, 0 B free of the limit of 10.0 MiB");
  EXPECT_EQ(memory_, whole);  // outputs are untouched
  free(kLimit);
  EXPECT_EQ(alloc(kLimit + 1), MH_NO_MEMORY);
  EXPECT_EQ(alloc(UINT64_MAX), MH_NO_MEMORY);
  EXPECT_EQ(table_.memory_alloc(table_.ctx, UINT64_MAX, -1, 0, &memory_, nullptr), MH_NO_MEMORY);
  EXPECT_EQ(host_.bytes_in_use(), 0u);
}

TEST_F(HostServicesTest, AWrongFreeChangesNothing) {
  ASSERT_EQ(alloc(100), MH_OK);
  free(99);
  EXPECT_EQ(host_.bytes_in_use(), 100u);
  int local = 0;
  table_.memory_free(table_.ctx, &local, sizeof local);
  table_.memory_free(table_.ctx, nullptr, 100);
  EXPECT_EQ(host_.bytes_in_use(), 100u);
  free(100);
  free(100);  // twice
  EXPECT_EQ(host_.bytes_in_use(), 0u);
}

TEST_F(HostServicesTest, UnknownFlagsAndMissingOutputsAreInvalid) {
  EXPECT_EQ(alloc(1, 4), MH_INVALID);
  EXPECT_EQ(table_.memory_alloc(table_.ctx, 1, -1, 0, nullptr, nullptr), MH_INVALID);
  EXPECT_EQ(table_.device_acquire(table_.ctx, "toy:0", nullptr, &error_), MH_INVALID);
  mh_member unsized{};
  EXPECT_EQ(table_.device_acquire(table_.ctx, "toy:0", &unsized, &error_), MH_INVALID);
}

TEST_F(HostServicesTest, ManyThreadsLeaveTheAccountExact) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t bytes = 1; bytes < 200; ++bytes) {
        void* memory = nullptr;
        ASSERT_EQ(table_.memory_alloc(table_.ctx, bytes, -1, 0, &memory, nullptr), MH_OK);
        table_.memory_free(table_.ctx, memory, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(host_.bytes_in_use(), 0u);
}

TEST(AvailableMemory, IsThereAndBelowAnExbibyte) {
  EXPECT_GT(available_memory_bytes(), UINT64_C(1) << 20);
  EXPECT_LT(available_memory_bytes(), UINT64_C(1) << 60);
}

TEST(RegistryMemory, IsOfTheSameAccountAndOutlivesTheRegistry) {
  PluginFolder folder;
  auto registry = folder.registry({.host_memory_limit_bytes = 1 << 20});
  auto memory = registry->allocate(1000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(registry->host_bytes_in_use(), 1000u);
  EXPECT_EQ(registry->allocate(1 << 20).status().code(), Code::kNoResource);
  auto second = registry->allocate(24);
  second = Status(Code::kUsage, "dropped");
  EXPECT_EQ(registry->host_bytes_in_use(), 1000u);
  registry.reset();
  static_cast<char*>(memory->get())[999] = 1;
}

}  // namespace
}  // namespace moehost

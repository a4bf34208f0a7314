// The least host that can run plugins: services that count and can fail, plugins by dlopen, and a builder of programs.
// For the tests of the SDK; core has its own.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "moehost/device.h"

namespace sdk_test {

inline mh_error fresh_error() {
  mh_error e{};
  e.size = sizeof e, e.item = -1;
  return e;
}

// Host services of this process. One, because a plugin is initialised once.
struct Services {
  static Services& get() {
    static Services services;
    return services;
  }
  std::atomic<uint64_t> bytes{0};                                           // allocated now
  std::atomic<int64_t> until_failure{std::numeric_limits<int64_t>::max()};  // allocations that still succeed
  std::atomic<bool> keep_failing{false};                                    // after the first that failed
  mh_host table{};

 private:
  Services() {
    table.size = sizeof table, table.ctx = this;
    table.log = [](void*, int32_t, const char*, const char*) {};
    table.memory_alloc = [](void* ctx, uint64_t size, int32_t, uint32_t flags, void** out, mh_error*) {
      auto& self = *static_cast<Services*>(ctx);
      const int64_t left = self.until_failure--;
      if (left == 0 || (left < 0 && self.keep_failing)) return int32_t{MH_NO_MEMORY};
      void* memory = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
      std::memset(memory, flags & MH_MEMORY_ZERO ? 0 : 0x7f, size);  // large floats: what nobody wrote is seen
      self.bytes += size;
      return *out = memory, int32_t{MH_OK};
    };
    table.memory_free = [](void* ctx, void* memory, uint64_t size) {
      static_cast<Services*>(ctx)->bytes -= size;
      std::free(memory);
    };
    table.spin_ns = [](void*) { return uint64_t{1000}; };
    table.fence_wait = fence_wait;
    table.fence_signal = [](void*, uint64_t* counter, uint64_t value) {
      uint64_t old = __atomic_load_n(counter, __ATOMIC_RELAXED);
      while (!(old & MH_FENCE_POISON) &&
             !__atomic_compare_exchange_n(counter, &old, value, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
      }
    };
    table.extension = [](void*, const char*) -> const void* { return nullptr; };
  }
  static int32_t fence_wait(void*, const uint64_t* counter, uint64_t value, uint64_t timeout_ns) {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const uint64_t v = __atomic_load_n(counter, __ATOMIC_ACQUIRE);
      if (v & MH_FENCE_POISON) return -static_cast<int32_t>(v & 0xffffffff);
      if (v >= value) return MH_OK;
      const auto spent = static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count());
      if (spent >= timeout_ns) return MH_TIMEOUT;
      if (spent > 1000) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

inline const mh_plugin& plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<moehost_plugin_v1_fn>(dlsym(library, "moehost_plugin_v1"));
  const mh_plugin* api = entry(0, MH_ABI_MINOR);
  EXPECT_EQ(api->init(&Services::get().table, nullptr), MH_OK);
  return *api;
}
inline const mh_plugin& reference() {
  static const mh_plugin& api = plugin(MOEHOST_PLUGIN_DIR "/backend_reference.so");
  return api;
}
inline const mh_plugin& fake() {
  static const mh_plugin& api = plugin(MOEHOST_BINARY_DIR "/lib/moehost-test/backend_fake.so");
  return api;
}

// An open device; options as key, value pairs.
class Device {
 public:
  explicit Device(const mh_plugin& plugin, std::vector<mh_option> options = {}, uint32_t index = 0) : api(plugin) {
    mh_device_spec spec{};
    spec.size = sizeof spec, spec.index = index;
    spec.options = options.data(), spec.option_count = static_cast<uint32_t>(options.size());
    mh_error e = fresh_error();
    EXPECT_EQ(api.device->open(&spec, &raw, &e), MH_OK) << e.text;
  }
  ~Device() { api.device->close(raw); }
  uint64_t used_bytes() const {
    mh_device_memory memory{};
    memory.size = sizeof memory;
    EXPECT_EQ(api.device->memory(raw, &memory, nullptr), MH_OK);
    return memory.used_bytes;
  }
  const mh_plugin& api;
  mh_device* raw = nullptr;
};

// Host memory that devices import: step block, boundaries, fences.
class Arena {
 public:
  static constexpr uint64_t kBytes = 1 << 20;
  Arena() : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)), &std::free) {
    std::memset(memory_.get(), 0, kBytes);
  }
  uint64_t place(uint64_t bytes) {
    const uint64_t at = end_;
    end_ += (bytes + 63) / 64 * 64;
    EXPECT_LE(end_, kBytes);
    return at;
  }
  template <class T = std::byte>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  uint64_t end_ = 0;
};

// The step block, at the start of an arena, with one kv group. Vectors become its arrays.
struct StepData {
  std::vector<int32_t> token_ids, positions, output_rows, sequence_rows{0}, sequence_lengths, table, copies;
  uint32_t table_stride = 0;
  static constexpr uint64_t kBytes = 8192;
  void write(std::byte* at, uint64_t serial) const {
    mh_step step{};
    step.size = sizeof step, step.serial = serial;
    step.tokens = static_cast<uint32_t>(positions.size()), step.outputs = static_cast<uint32_t>(output_rows.size());
    step.sequences = static_cast<uint32_t>(sequence_lengths.size());
    uint32_t end = sizeof step;
    const auto put = [&](const void* from, size_t bytes) {
      const uint32_t offset = end;
      if (bytes) std::memcpy(at + offset, from, bytes);
      end += static_cast<uint32_t>(bytes);
      EXPECT_LE(end, kBytes);
      return offset;
    };
    const auto array = [&](const std::vector<int32_t>& v) { return put(v.data(), v.size() * sizeof(int32_t)); };
    step.token_ids = array(token_ids), step.positions = array(positions), step.output_rows = array(output_rows);
    step.sequence_rows = array(sequence_rows), step.sequence_lengths = array(sequence_lengths);
    mh_step_group group{};
    group.table = array(table), group.table_stride = table_stride;
    group.copies = array(copies), group.copy_count = static_cast<uint32_t>(copies.size() / 2);
    step.group_count = 1, step.groups = put(&group, sizeof group);
    std::memcpy(at, &step, sizeof step);
  }
};

// A weight of f32 matrices, one after another in `values`.
class Weight {
 public:
  Weight(uint64_t rows, uint64_t cols, std::vector<float> values) : values_(std::move(values)) {
    w_.size = sizeof w_, w_.format = MH_FORMAT_F32, w_.rows = rows, w_.cols = cols, w_.row_stride_bytes = cols * 4;
    w_.slab_count = static_cast<uint32_t>(values_.size() / (rows * cols));
    for (uint32_t i = 0; i < w_.slab_count; ++i) slabs_.push_back(values_.data() + i * rows * cols);
    w_.slabs = slabs_.data();
  }
  Weight(const Weight&) = delete;
  mh_weight* get() { return &w_; }

 private:
  std::vector<float> values_;
  std::vector<const void*> slabs_;
  mh_weight w_{};
};

}  // namespace sdk_test

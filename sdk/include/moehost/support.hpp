// support.hpp - what every C++ plugin needs before it has a device: the host, errors, counted memory, options.
// Header-only C++17; part of device.hpp. Everything here throws mh::Error; the helper turns it into a code.
#pragma once
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "device.h"

// Hidden, so that two plugins in one process never share the helper's static data: inline and template statics are
// GNU_UNIQUE symbols, which the loader merges even under RTLD_LOCAL.
#pragma GCC visibility push(hidden)
namespace mh {

// Core's services, from init until shutdown.
inline const mh_host* g_host = nullptr;

// A failure on its way to the caller: one of the MH_ codes, and a text that names the thing, the value seen, what is
// allowed. Any other exception becomes MH_INTERNAL, std::bad_alloc becomes MH_NO_MEMORY.
struct Error : std::runtime_error {
  Error(int32_t error_code, const std::string& text) : std::runtime_error(text), code(error_code) {}
  int32_t code;
};

inline std::string to_text(const char* text) { return text; }
inline std::string to_text(const std::string& text) { return text; }
template <class N>
std::string to_text(N number) {
  return std::to_string(number);
}
// Throws Error(code, the parts one after another).
template <class... Parts>
[[noreturn]] void fail(int32_t code, const Parts&... parts) {
  throw Error(code, (to_text(parts) + ...));
}

// Copies text to the caller's message, cut to fit. Returns code.
inline int32_t report(mh_error* error, int32_t code, int32_t item, const char* text) noexcept {
  if (error && MH_HAS(error, mh_error, text)) {
    error->item = item;
    std::snprintf(error->text, sizeof error->text, "%s", text);
  }
  return code;
}

// Runs f; no exception leaves. f assigns outputs last, so that they stay untouched on failure.
template <class F>
int32_t guard(mh_error* error, F&& f) noexcept {
  try {
    f();
    return MH_OK;
  } catch (const Error& e) {
    return report(error, e.code, -1, e.what());
  } catch (const std::bad_alloc&) {
    return report(error, MH_NO_MEMORY, -1, "out of host memory for bookkeeping");
  } catch (const std::exception& e) {
    return report(error, MH_INTERNAL, -1, e.what());
  } catch (...) {
    return report(error, MH_INTERNAL, -1, "an exception without a text");
  }
}

inline void log(int32_t level, const char* component, const std::string& text) {
  g_host->log(g_host->ctx, level, component, text.c_str());
}

inline uint64_t checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(MH_INVALID, "a size passes 2^64: ", a, " + ", b);
  return sum;
}
inline uint64_t checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail(MH_INVALID, "a size passes 2^64: ", a, " * ", b);
  return product;
}
// Places within one allocation start on cache lines.
inline uint64_t align_up(uint64_t bytes, uint64_t alignment = 64) {
  return checked_add(bytes, alignment - 1) / alignment * alignment;
}

// The value of an option, or null.
inline const char* find_option(const mh_device_spec& spec, const char* key) {
  for (uint32_t i = 0; i < spec.option_count; ++i)
    if (!std::strcmp(spec.options[i].key, key)) return spec.options[i].value;
  return nullptr;
}
// A whole number, or fallback where the option is absent. Throws MH_INVALID for anything else.
inline uint64_t number_option(const mh_device_spec& spec, const char* key, uint64_t fallback) {
  const char* text = find_option(spec, key);
  if (!text) return fallback;
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != 0 || errno != 0)
    fail(MH_INVALID, "option ", key, " is '", text, "': a whole number is expected");
  return value;
}

// The memory of one device handle: what its ops, kvs and queues have taken, and the limit ("memory_limit"). [any]
class MemoryAccount {
 public:
  explicit MemoryAccount(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }
  // Throws MH_NO_MEMORY, with the numbers, beyond the limit.
  void take(uint64_t bytes) {
    uint64_t used = used_bytes_;
    do {
      const uint64_t left = limit_bytes_ - std::min(limit_bytes_, used);
      if (bytes > left) fail(MH_NO_MEMORY, "device memory: ", bytes, " bytes asked, ", left, " free of ", limit_bytes_);
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  }
  void give_back(uint64_t bytes) { used_bytes_ -= bytes; }

 private:
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
};

// Bytes that the machine could still give: free, or held by caches that can be dropped. 0 where the kernel does not
// say.
inline uint64_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  for (uint64_t kib = 0; meminfo >> key >> kib; std::getline(meminfo, unit))
    if (key == "MemAvailable:") return kib * 1024;
  return 0;
}

// Page-aligned host memory that core counts and may refuse, charged to a device. Contents are undefined unless flags
// has MH_MEMORY_ZERO; MH_MEMORY_HUGE asks for huge pages. Moves only.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(MemoryAccount& account, uint64_t bytes, uint32_t flags = 0, int32_t numa_node = -1) : account_(&account) {
    if (bytes == 0) return;
    account.take(bytes);
    mh_error error{};
    error.size = sizeof error;
    void* memory = nullptr;
    const int32_t code = g_host->memory_alloc(g_host->ctx, bytes, numa_node, flags, &memory, &error);
    if (code != MH_OK) {
      account.give_back(bytes);
      fail(code, "host memory: ", bytes, " bytes refused: ", error.text);
    }
    data_ = static_cast<std::byte*>(memory), bytes_ = bytes;
  }
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(account_, other.account_), std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostMemory() {
    if (!data_) return;
    g_host->memory_free(g_host->ctx, data_, bytes_);
    account_->give_back(bytes_);
  }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  MemoryAccount* account_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace mh
#pragma GCC visibility pop

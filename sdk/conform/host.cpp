// Host services: memory with guard pages, fences that spin and then sleep.
#include "host.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "case.h"

namespace conform {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSpinNs = 20000;  // little: the machines that run this are shared
constexpr int kGarbage = 0xa5;

uint64_t page_end(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Host::Host(bool verbose) : verbose_(verbose) {
  table_.size = sizeof table_;
  table_.minor = MH_ABI_MINOR;
  table_.ctx = this;
  table_.log = [](void* ctx, int32_t level, const char* component, const char* text) {
    if (static_cast<Host*>(ctx)->verbose_) std::fprintf(stderr, "[%d] %s: %s\n", level, component, text);
  };
  table_.memory_alloc = [](void* ctx, uint64_t bytes, int32_t, uint32_t flags, void** out, mh_error* error) {
    return static_cast<Host*>(ctx)->allocate(bytes, flags, out, error);
  };
  table_.memory_free = [](void* ctx, void* memory, uint64_t bytes) { static_cast<Host*>(ctx)->release(memory, bytes); };
  table_.spin_ns = [](void*) { return kSpinNs; };
  table_.fence_wait = [](void*, const uint64_t* counter, uint64_t value, uint64_t timeout_ns) {
    return wait(counter, value, timeout_ns);
  };
  table_.fence_signal = [](void*, uint64_t* counter, uint64_t value) { signal(counter, value); };
  table_.device_acquire = [](void*, const char* name, mh_member*, mh_error* error) {
    if (error) std::snprintf(error->text, sizeof error->text, "moehost-conform has no device \"%s\" to lend", name);
    return int32_t{MH_INVALID};
  };
  table_.device_release = [](void*, const mh_member*) {};
  table_.extension = [](void*, const char*) -> const void* { return nullptr; };
}

int32_t Host::allocate(uint64_t bytes, uint32_t flags, void** out, mh_error* error) {
  const uint64_t call = ++allocations_;
  if (call == fail_at_) {
    if (error)
      std::snprintf(error->text, sizeof error->text, "host memory: %llu bytes asked, none free (injected)",
                    static_cast<unsigned long long>(bytes));
    return MH_NO_MEMORY;
  }
  const uint64_t mapped = page_end(bytes ? bytes : 1);
  void* memory = mmap(nullptr, mapped + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(static_cast<char*>(memory) + mapped, kPage, PROT_NONE) != 0) return MH_NO_MEMORY;
  if (!(flags & MH_MEMORY_ZERO)) std::memset(memory, kGarbage, bytes);
  std::memset(static_cast<char*>(memory) + bytes, kGarbage, mapped - bytes);
  {
    const std::lock_guard lock(mutex_);
    blocks_[memory] = bytes;
  }
  const uint64_t now = bytes_ += bytes;
  for (uint64_t peak = peak_bytes_; peak < now && !peak_bytes_.compare_exchange_weak(peak, now);) {
  }
  *out = memory;
  return MH_OK;
}

void Host::release(void* memory, uint64_t bytes) {
  if (!memory) return;
  {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(memory);
    require(block != blocks_.end(), "memory_free of an address that memory_alloc did not give");
    require(block->second == bytes, "memory_free says ", bytes, " bytes of a block of ", block->second);
    blocks_.erase(block);
  }
  const uint64_t mapped = page_end(bytes ? bytes : 1);
  for (uint64_t at = bytes; at < mapped; ++at)
    require(static_cast<unsigned char*>(memory)[at] == kGarbage, "wrote past a block of memory_alloc of ", bytes,
            " bytes, at offset ", at);
  munmap(memory, mapped + kPage);
  bytes_ -= bytes;
}

int32_t Host::wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    const uint64_t now = __atomic_load_n(counter, __ATOMIC_ACQUIRE);
    if (now & MH_FENCE_POISON) return -static_cast<int32_t>(now & 0xffffffff);
    if (now >= value) return MH_OK;
    const auto spent = static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
    if (spent >= timeout_ns) return MH_TIMEOUT;
    if (spent > kSpinNs) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Host::signal(uint64_t* counter, uint64_t value) {
  uint64_t seen = __atomic_load_n(counter, __ATOMIC_RELAXED);
  while (!(seen & MH_FENCE_POISON) &&
         !__atomic_compare_exchange_n(counter, &seen, value, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

}  // namespace conform

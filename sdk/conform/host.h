// The host services that the suite gives a plugin: counted, limited, guarded.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "moehost/device.h"

namespace conform {

// One a case. Memory that a plugin takes is counted, filled with garbage unless it asked for zeros, and ends in a page
// that must not be touched. All functions may be called from any thread.
class Host {
 public:
  explicit Host(bool verbose);
  Host(const Host&) = delete;
  const mh_host* table() const { return &table_; }

  uint64_t bytes() const { return bytes_; }  // held by the plugin now
  uint64_t peak_bytes() const { return peak_bytes_; }
  void reset_peak() { peak_bytes_ = bytes_.load(); }
  uint64_t allocations() const { return allocations_; }  // asked for, ever
  // The count-th memory_alloc from now answers MH_NO_MEMORY; 0: none does.
  void fail_allocation(uint64_t count) { fail_at_ = count ? allocations_ + count : 0; }
  bool failed_an_allocation() const { return fail_at_ && allocations_ >= fail_at_; }

  static int32_t wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns);
  static void signal(uint64_t* counter, uint64_t value);

 private:
  int32_t allocate(uint64_t bytes, uint32_t flags, void** out, mh_error* error);
  void release(void* memory, uint64_t bytes);

  mh_host table_{};
  bool verbose_;
  std::atomic<uint64_t> bytes_ = 0, peak_bytes_ = 0, allocations_ = 0, fail_at_ = 0;
  std::mutex mutex_;
  std::map<void*, uint64_t> blocks_;  // bytes as asked for
};

}  // namespace conform

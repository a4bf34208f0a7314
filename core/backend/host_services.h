// What core gives plugins (mh_host): counted memory, fences, logging, member devices. Floor 3, internal to
// core/backend.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/base/status.h"
#include "moehost/types.h"

namespace moehost {

// Memory this process can still take: the machine's available memory, or what its cgroup leaves if that is less.
uint64_t available_memory_bytes();

// All functions are thread-safe. The table is valid as long as this object.
class HostServices {
 public:
  // How a composite gets its members; given by the registry.
  struct Lender {
    std::function<Status(const char* name, mh_member* out)> acquire;
    std::function<void(const mh_member& member)> release;
  };
  // limit_bytes: 0 is 95 % of available_memory_bytes().
  HostServices(uint64_t limit_bytes, Lender lender);
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;

  const mh_host& table() const { return table_; }
  // Zeroed memory at a page boundary, huge pages preferred where asked. kNoResource: bytes asked, in use, limit.
  Result<void*> allocate(uint64_t bytes, bool huge);
  // bytes: as asked for. What was not allocated here, or with other bytes, is logged and stays as it is.
  void free(void* memory, uint64_t bytes);
  uint64_t bytes_in_use() const;

 private:
  static int32_t memory_alloc(void* ctx, uint64_t bytes, int32_t numa_node, uint32_t flags, void** out,
                              mh_error* error);
  static int32_t device_acquire(void* ctx, const char* name, mh_member* out, mh_error* error);

  mh_host table_;
  const uint64_t limit_bytes_;
  const Lender lender_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, uint64_t> allocations_;  // -> bytes as asked for
  uint64_t in_use_bytes_ = 0;                        // the sum of allocations_
};

}  // namespace moehost

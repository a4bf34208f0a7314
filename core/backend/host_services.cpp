// mh_host: the table, and the memory behind it.
#include "core/backend/host_services.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "core/backend/answer.h"
#include "core/backend/fence.h"
#include "core/base/checked.h"
#include "core/base/log.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

constexpr uint64_t kHugePageBytes = UINT64_C(2) << 20;  // x86-64 and arm64 with 4 KiB pages

std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// What the memory controller of this process's own cgroup (version 2) leaves; nothing where there is no limit.
std::optional<uint64_t> cgroup_free_bytes() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const auto limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
    if (limit && used) return *limit - std::min(*limit, *used);
  }
  return std::nullopt;
}

// Anonymous memory of a multiple of the page size, at a multiple of align (a power of two above the page size) or, with
// align 0, of the page size; null when the machine refuses.
std::byte* map_pages(uint64_t bytes, uint64_t align) {
  const auto whole = checked_add(bytes, align);
  if (!whole) return nullptr;
  void* raw = ::mmap(nullptr, *whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(raw);
  if (align == 0) return begin;
  const uint64_t head = -reinterpret_cast<uintptr_t>(raw) & (align - 1);
  if (head > 0) ::munmap(begin, head);
  if (head < align) ::munmap(begin + head + bytes, align - head);
  return begin + head;
}

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

HostServices& self(void* ctx) { return *static_cast<HostServices*>(ctx); }

void log_for_plugin(void*, int32_t level, const char* component, const char* text) {
  log::write(static_cast<log::Level>(std::clamp(level, 0, 3)), component ? component : "plugin", text ? text : "");
}

int32_t code_for_plugin(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return MH_OK;
    case Code::kNoResource:
      return MH_NO_MEMORY;
    case Code::kUsage:
    case Code::kBadConfig:
      return MH_INVALID;
    default:
      return MH_INTERNAL;
  }
}

}  // namespace

uint64_t available_memory_bytes() {
  uint64_t machine_bytes = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) machine_bytes = std::stoull(line.substr(13)) << 10;  // in KiB
  }
  const auto cgroup_bytes = cgroup_free_bytes();
  return cgroup_bytes ? std::min(machine_bytes, *cgroup_bytes) : machine_bytes;
}

HostServices::HostServices(uint64_t limit_bytes, Lender lender)
    : limit_bytes_(limit_bytes ? limit_bytes : available_memory_bytes() / 100 * 95), lender_(std::move(lender)) {
  table_ = {.size = sizeof table_, .minor = MH_ABI_MINOR, .ctx = this};
  table_.log = log_for_plugin;
  table_.memory_alloc = memory_alloc;
  table_.memory_free = [](void* ctx, void* memory, uint64_t bytes) { self(ctx).free(memory, bytes); };
  table_.spin_ns = [](void*) { return moehost::spin_ns(); };
  table_.fence_wait = [](void*, const uint64_t* counter, uint64_t value, uint64_t timeout_ns) {
    return moehost::fence_wait(counter, value, timeout_ns);
  };
  table_.fence_signal = [](void*, uint64_t* counter, uint64_t value) { moehost::fence_signal(counter, value); };
  table_.device_acquire = device_acquire;
  table_.device_release = [](void* ctx, const mh_member* member) {
    if (member) self(ctx).lender_.release(*member);
  };
  table_.extension = [](void*, const char*) -> const void* { return nullptr; };
}

Result<void*> HostServices::allocate(uint64_t bytes, bool huge) {
  const auto mapped_bytes = checked_align(std::max<uint64_t>(bytes, 1), page_bytes());
  std::unique_lock lock(mutex_);
  if (!mapped_bytes || bytes > limit_bytes_ - in_use_bytes_) {
    return fail(Code::kNoResource, "host memory: ", format_bytes(bytes), " (", bytes, " bytes) asked for, ",
                format_bytes(limit_bytes_ - in_use_bytes_), " free of the limit of ", format_bytes(limit_bytes_));
  }
  in_use_bytes_ += bytes;
  lock.unlock();

  huge = huge && bytes >= kHugePageBytes;
  std::byte* const memory = map_pages(*mapped_bytes, huge ? kHugePageBytes : 0);
  if (memory && huge) ::madvise(memory, *mapped_bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
  lock.lock();
  if (!memory) {
    in_use_bytes_ -= bytes;
    return fail(Code::kNoResource, "host memory: the machine refused ", format_bytes(bytes), " (", bytes, " bytes)");
  }
  allocations_.emplace(memory, bytes);
  return static_cast<void*>(memory);
}

void HostServices::free(void* memory, uint64_t bytes) {
  if (!memory) return;
  {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(memory);
    if (it == allocations_.end() || it->second != bytes) {
      log::error("host", "memory_free of ", bytes, " bytes at ", memory, ": ",
                 it == allocations_.end() ? std::string("not allocated here, or freed before")
                                          : cat("allocated with ", it->second, " bytes"));
      return;
    }
    allocations_.erase(it);
    in_use_bytes_ -= bytes;
  }
  ::munmap(memory, *checked_align(std::max<uint64_t>(bytes, 1), page_bytes()));
}

uint64_t HostServices::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_bytes_;
}

int32_t HostServices::memory_alloc(void* ctx, uint64_t bytes, int32_t numa_node, uint32_t flags, void** out,
                                   mh_error* error) {
  if (!out || (flags & ~uint32_t{MH_MEMORY_HUGE | MH_MEMORY_ZERO})) {
    explain(error, out ? cat("memory_alloc: unknown flags ", flags) : "memory_alloc: out is NULL");
    return MH_INVALID;
  }
  if (numa_node >= 0) log::debug("host", "memory on NUMA node ", numa_node, ": placed by the system's own policy");
  auto memory = self(ctx).allocate(bytes, flags & MH_MEMORY_HUGE);  // fresh pages are zero: nothing to do for ZERO
  if (!memory.ok()) {
    explain(error, memory.status().message());
    return code_for_plugin(memory.status());
  }
  *out = *memory;
  return MH_OK;
}

int32_t HostServices::device_acquire(void* ctx, const char* name, mh_member* out, mh_error* error) {
  if (!name || !out || !MH_HAS(out, mh_member, device)) {
    explain(error, "device_acquire: needs a name, and a member whose size is set");
    return MH_INVALID;
  }
  const Status status = self(ctx).lender_.acquire(name, out);
  if (!status.ok()) explain(error, status.message());
  return code_for_plugin(status);
}

}  // namespace moehost

// The malloc family, counted. A plugin's calls come here, because the executable's symbols are looked up first; under a
// sanitizer, which has its own, through that one's hooks.
#include "process.h"

#include <dirent.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace conform {
namespace {

thread_local uint64_t t_allocations = 0;
std::atomic<int64_t> g_bytes{0};

void count_allocation(size_t bytes) {
  ++t_allocations;
  g_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}
size_t entries(const char* folder) {
  size_t count = 0;
  DIR* dir = opendir(folder);
  while (dir && readdir(dir)) ++count;
  if (dir) closedir(dir);
  return count;
}

void count_free(size_t bytes) { g_bytes.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed); }

}  // namespace

uint64_t thread_allocations() { return t_allocations; }
size_t thread_count() { return entries("/proc/self/task"); }
size_t open_files() { return entries("/proc/self/fd"); }
int64_t heap_bytes() { return g_bytes.load(std::memory_order_relaxed); }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
}  // namespace conform

extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t), void (*)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void*);
}

namespace conform {
namespace {

const int kInstalled = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t bytes) { count_allocation(bytes); },
    [](const volatile void* memory) { count_free(__sanitizer_get_allocated_size(memory)); });

}  // namespace
}  // namespace conform

#else

namespace {

void* counted(void* memory) {
  if (memory) count_allocation(malloc_usable_size(memory));
  return memory;
}

}  // namespace
}  // namespace conform

#pragma GCC visibility push(default)  // plugins have to find them
extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) { return conform::counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return conform::counted(__libc_calloc(count, bytes)); }
void* realloc(void* memory, size_t bytes) {
  const size_t before = memory ? malloc_usable_size(memory) : 0;
  void* moved = __libc_realloc(memory, bytes);
  if (moved || bytes == 0) conform::count_free(before);
  return conform::counted(moved);
}
void* memalign(size_t alignment, size_t bytes) { return conform::counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* memory = memalign(alignment, bytes);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}
void free(void* memory) {
  if (memory) conform::count_free(malloc_usable_size(memory));
  __libc_free(memory);
}

}  // extern "C"
#pragma GCC visibility pop
#endif

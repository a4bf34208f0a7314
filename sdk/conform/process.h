// What the whole process holds, plugin included: heap, threads, files.
#pragma once
#include <cstddef>
#include <cstdint>

namespace conform {

// Calls of malloc and its kin by this thread, ever.
uint64_t thread_allocations();
// Bytes of the heap that are allocated now, by all threads.
int64_t heap_bytes();
size_t thread_count();
size_t open_files();

}  // namespace conform

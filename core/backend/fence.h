// Fences on the CPU: wait by spinning, then parked; signal wakes who is parked. Floor 3, internal to core/backend.
//
// A parked thread looks again every 50 microseconds, because a GPU raises a counter without waking anyone.
#pragma once
#include <cstdint>

namespace moehost {

// Nanoseconds a thread may spin now before it parks: less while more threads spin than there are processors. [any]
uint64_t spin_ns();
// Until *counter >= value, as mh_host.fence_wait: MH_OK, MH_TIMEOUT, or the cause of a poison. timeout_ns 0 looks once,
// UINT64_MAX waits for ever. [any]
int32_t fence_wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns);
// Release-stores value, or a poison, and wakes parked waiters; a poison in place stays. [any]
void fence_signal(uint64_t* counter, uint64_t value);

}  // namespace moehost

// Hot path: submit allocates nothing, returns at once, and thousands of steps leave the heap as it was.
#include <time.h>

#include <algorithm>

#include "case.h"
#include "process.h"
#include "workload.h"

namespace conform {
namespace {

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

void submit(const Context& context) {
  Workload workload(context, "hot");
  Session& session = workload.session();
  constexpr uint32_t kWarmUp = 100;
  const uint32_t steps = context.repeats(10000, 1000);
  std::vector<uint64_t> times;
  times.reserve(steps);
  std::vector<Step> kinds;
  for (uint32_t tokens = 1; tokens <= Workload::kTokens; ++tokens) kinds.push_back(workload.step(tokens));
  uint64_t allocations = 0, host_allocations = 0;
  int64_t heap = 0;
  for (uint32_t i = 0; i < kWarmUp + steps; ++i) {
    if (i == kWarmUp) heap = heap_bytes(), host_allocations = session.host.allocations();
    const uint64_t serial = session.next_serial();
    workload.block().write(kinds[i % kinds.size()], serial);
    Host::signal(workload.go().counter, serial);
    Error error;
    const uint64_t before = thread_allocations(), start = now_ns();
    const int32_t code = workload.job().try_submit(&error);
    const uint64_t end = now_ns();
    allocations += thread_allocations() - before;
    check(code, error, "queue.submit");
    if (i >= kWarmUp) times.push_back(end - start);
    check(session.api.queue->wait(session.queue, UINT64_C(30000000000), &error), error, "queue.wait");
  }
  const int64_t grown = heap_bytes() - heap;
  require(allocations == 0, "submit allocates: ", allocations, " heap allocations in ", kWarmUp + steps,
          " calls; the hot path allocates nothing");
  require(session.host.allocations() == host_allocations,
          "running steps takes memory from the host: ", session.host.allocations() - host_allocations,
          " calls of memory_alloc in ", steps, " steps");
  require(grown < 4096, "the heap grew by ", grown, " bytes in ", steps, " steps");
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return static_cast<double>(times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))]) / 1000;
  };
  note("submit takes ", at(0.5), " us, p99 ", at(0.99), " us",
       at(0.99) > 5 ? ": WARNING, above 5 us (or the machine is shared)" : "");
  workload.end();
}

}  // namespace

std::vector<Case> hot_cases() { return {{"hot", "submit", submit}}; }

}  // namespace conform

// Life: a device opened and closed a thousand times leaves nothing; threads park when idle; shutdown joins them.
#include <time.h>

#include <fstream>
#include <thread>

#include "case.h"
#include "process.h"
#include "workload.h"

namespace conform {
namespace {

// What a process holds that a plugin could leave behind.
struct Holdings {
  size_t threads, files;
  int64_t heap;
  uint64_t resident_kib;
  Holdings() : threads(settled_threads()), files(open_files()), heap(heap_bytes()), resident_kib(read_resident()) {}

 private:
  // A joined thread's entry may stay for a moment; a sanitizer's own thread comes with the first other one.
  static size_t settled_threads() {
    std::thread([] {}).join();
    size_t count = thread_count();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      count = std::min(count, thread_count());
    }
    return count;
  }
  static uint64_t read_resident() {
    std::ifstream status("/proc/self/status");
    std::string word;
    uint64_t kib = 0;
    while (status >> word)
      if (word == "VmRSS:") status >> kib;
    return kib;
  }
};

void check_same(const Holdings& before, const Holdings& after, const std::string& what) {
  require(after.threads <= before.threads, what, ": ", after.threads - before.threads, " threads more than before");
  require(after.files <= before.files, what, ": ", after.files - before.files, " open files more than before");
  require(after.heap - before.heap < 16 << 10, what, ": leaks, the heap grew by ", after.heap - before.heap, " bytes");
  require(after.resident_kib < before.resident_kib + (32 << 10), what, ": leaks, the process grew by ",
          after.resident_kib - before.resident_kib, " KiB");
}

void open_close(const Context& context) {
  const mh_plugin& api = load_plugin(context.plugin_path);
  Host host(context.verbose);
  Error error;
  check(api.init(host.table(), &error), error, "init");
  const auto once = [&] {
    mh_device* device = open_device(api, context, {});
    mh_queue* queue = nullptr;
    check(api.queue->create(device, &queue, &error), error, "queue.create");
    api.queue->free(queue);
    api.device->close(device);
  };
  for (int i = 0; i < 5; ++i) once();
  const Holdings before;
  const uint32_t rounds = context.repeats(1000, 50);
  for (uint32_t i = 0; i < rounds; ++i) once();
  check_same(before, Holdings(), cat(rounds, " opens and closes"));
  require(host.bytes() == 0, "leaked host memory: ", host.bytes(), " bytes of memory_alloc after ", rounds, " closes");
  api.shutdown();
}

// One whole life with work in it. A second init after shutdown is not promised, so that there is one in a process.
void shutdown_joins(const Context& context) {
  const Holdings before;
  Workload workload(context, "life");
  workload.op_job().run(workload.step(4));
  workload.check_output(workload.op_job().get(workload.step(4), 0), 4, "a life");
  workload.end();
  const Holdings after;
  require(after.threads <= before.threads, "shutdown leaves ", after.threads - before.threads,
          " threads: it must join them");
}

void parks_when_idle(const Context& context) {
  Workload workload(context, "idle");
  workload.op_job().run(workload.step(4));
  constexpr auto kSettle = std::chrono::milliseconds(50), kIdle = std::chrono::milliseconds(400);
  std::this_thread::sleep_for(kSettle);
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(kIdle);
  const double share = (cpu_seconds() - before) / 0.4;
  require(share < 0.5, "threads do not park: ", share, " processors busy while nothing is to do");
  note("idle: ", share * 100, " % of a processor");
  workload.end();
}

}  // namespace

std::vector<Case> life_cases() {
  return {
      {"life", "open_close", open_close},
      {"life", "shutdown_joins", shutdown_joins},
      {"life", "parks_when_idle", parks_when_idle},
  };
}

}  // namespace conform

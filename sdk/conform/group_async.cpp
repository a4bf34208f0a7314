// Asynchrony: fences in any order, poison, abort, reset, thousands of replays, frees right after the last signal.
#include <algorithm>
#include <cstring>
#include <thread>

#include "case.h"
#include "workload.h"

namespace conform {
namespace {

constexpr uint64_t kAnswerNs = UINT64_C(10000000000), kMsNs = 1000000;

// A program of several stages on a queue: [wait] op [signal] each, all with the workload's rows as input and an output
// of their own.
class StagedJob {
 public:
  StagedJob(Workload& workload, mh_queue* queue, const std::vector<Fence>& waits, const std::vector<Fence>& signals)
      : workload_(workload),
        block_(workload.session().arena, workload.limits()),
        job_(workload.session(), queue, workload.limits(), block_) {
    std::vector<uint32_t> inputs;
    for (size_t k = 0; k < workload.op().inputs.size(); ++k) inputs.push_back(bind_input(k));
    for (size_t stage = 0; stage < waits.size(); ++stage) {
      std::vector<uint32_t> outputs;
      for (const Shape& shape : workload.op().outputs) {
        regions_.push_back(workload.session().arena.place_rows(Workload::kTokens, shape.width() * 4, 0));
        outputs.push_back(job_.boundary(shape, regions_.back(), false));
      }
      job_.wait(waits[stage]);
      job_.op(workload.loaded(), inputs, outputs);
      job_.signal(signals[stage]);
    }
    job_.create();
  }
  void start(uint32_t tokens, uint64_t serial) {
    tokens_ = tokens;
    block_.write(workload_.step(tokens), serial);
    for (const Region& region : regions_) workload_.session().arena.wipe(region);
    job_.submit(serial);
  }
  void check_stage(size_t stage, const std::string& where) const {
    const size_t per_stage = workload_.op().outputs.size();
    std::vector<Matrix> got(per_stage);
    for (size_t k = 0; k < per_stage; ++k) {
      const Region& region = regions_[stage * per_stage + k];
      const size_t count = tokens_ * region.width_bytes / 4;
      got[k].reals.resize(count), got[k].ids.resize(count);
      std::memcpy(got[k].reals.data(), workload_.session().arena.base() + region.offset, count * 4);
      std::memcpy(got[k].ids.data(), workload_.session().arena.base() + region.offset, count * 4);
    }
    workload_.check_output(got, tokens_, cat(where, ", stage ", stage));
  }
  // No element of the stage's outputs was written since start.
  bool untouched(size_t stage) const {
    const size_t per_stage = workload_.op().outputs.size();
    for (size_t k = stage * per_stage; k < (stage + 1) * per_stage; ++k) {
      const auto* first = workload_.session().arena.at<uint32_t>(regions_[k].offset);
      const size_t count = regions_[k].max_rows * regions_[k].row_stride_bytes / 4;
      if (std::any_of(first, first + count, [](uint32_t v) { return v != Arena::kPattern; })) return false;
    }
    return true;
  }
  Job& job() { return job_; }
  StepBlock& block() { return block_; }

 private:
  uint32_t bind_input(size_t k) {
    const Shape& shape = workload_.op().inputs[k];
    const Region region = workload_.session().arena.place_rows(Workload::kTokens, shape.width() * 4, 0);
    const Matrix& in = workload_.inputs()[k];
    const void* from = shape.format == MH_FORMAT_I32 ? static_cast<const void*>(in.ids.data()) : in.reals.data();
    std::memcpy(workload_.session().arena.base() + region.offset, from, Workload::kTokens * region.width_bytes);
    return job_.boundary(shape, region, true);
  }
  Workload& workload_;
  StepBlock block_;
  Job job_;
  std::vector<Region> regions_;  // stage by stage
  uint32_t tokens_ = 0;
};

std::vector<Fence> place_fences(Workload& workload, size_t count) {
  std::vector<Fence> fences(count);
  for (Fence& fence : fences) fence = workload.session().arena.place_fence();
  return fences;
}

uint64_t value_of(const Fence& fence) { return __atomic_load_n(fence.counter, __ATOMIC_ACQUIRE); }
uint64_t poison(int32_t code) { return MH_FENCE_POISON | static_cast<uint32_t>(-code); }

// The fence must come to carry `code`: MH_OK for the serial, else the poison of that origin.
void expect_fence(const Fence& fence, uint64_t serial, int32_t code, const std::string& which) {
  const int32_t seen = Host::wait(fence.counter, serial, kAnswerNs);
  require(seen != MH_TIMEOUT || code == MH_TIMEOUT, which, ": no answer in ", kAnswerNs / 1000000000, " s (hang)");
  if (code == MH_OK)
    require(seen == MH_OK, which, " is poisoned with ", code_name(seen));
  else
    require(seen != MH_OK, which, " is not poisoned: the poison is lost");
  require(seen == code, which, " carries ", code_name(seen), ", its origin was ", code_name(code));
}

// Only after an error: queue.wait tells, submit refuses.
void expect_failed_queue(Workload& workload, mh_queue* queue, Job& job) {
  Session& session = workload.session();
  if (session.relays()) return;  // the relay has kept the trouble from the device
  Error error;
  const int32_t code = session.api.queue->wait(queue, kAnswerNs, &error);
  require(code != MH_TIMEOUT, "queue.wait gives no answer in ", kAnswerNs / 1000000000, " s after an error (hang)");
  require(code != MH_OK, "queue.wait says MH_OK after an error");
  require(error.text[0] != 0, "queue.wait says ", code_name(code), " without a text");
  Error submit_error;
  check_refused(job.try_submit(&submit_error), MH_ABORTED, submit_error, "queue.submit before the reset");
}

// Two programs with edges in both directions; the host signals what is not signalled by either, in random order.
void random_order(const Context& context) {
  Workload workload(context, "random_order");
  Session& session = workload.session();
  if (session.info.max_queues < 2) skip("max_queues is 1");
  mh_queue* second = session.new_queue();
  // Which signal releases the wait of a stage: of the other program, or the host's (kHost).
  constexpr int kHost = -1;
  constexpr int kWaitsA[] = {kHost, 0, kHost, 2}, kWaitsB[] = {kHost, 0, 1, kHost};
  constexpr size_t kStages = std::size(kWaitsA);
  const auto signals_a = place_fences(workload, kStages), signals_b = place_fences(workload, kStages);
  std::vector<Fence> hosts, waits_a, waits_b;
  const auto waits_of = [&](const int* sources, const std::vector<Fence>& other, std::vector<Fence>& waits) {
    for (size_t i = 0; i < kStages; ++i) {
      if (sources[i] == kHost) hosts.push_back(session.arena.place_fence());
      waits.push_back(sources[i] == kHost ? hosts.back() : other[static_cast<size_t>(sources[i])]);
    }
  };
  waits_of(kWaitsA, signals_b, waits_a), waits_of(kWaitsB, signals_a, waits_b);
  StagedJob a(workload, session.queue, waits_a, signals_a), b(workload, second, waits_b, signals_b);
  for (uint32_t round = 0; round < context.repeats(200, 40); ++round) {
    const uint64_t serial = session.next_serial();
    const uint32_t tokens = 1 + workload.random().below(Workload::kTokens);
    std::vector<size_t> order;
    for (size_t h = 0; h < hosts.size(); ++h) order.push_back(h);
    workload.random().shuffle(order);
    a.start(tokens, serial), b.start(tokens, serial);
    for (const size_t h : order) {
      if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(workload.random().below(300)));
      // What lies behind an edge that is not released must not have happened.
      for (size_t i = 0; i < kStages; ++i) {
        const bool held_a = waits_a[i].counter == hosts[h].counter, held_b = waits_b[i].counter == hosts[h].counter;
        require(!held_a || value_of(signals_a[i]) < serial, "round ", round,
                ": a signal came before its wait was released");
        require(!held_b || value_of(signals_b[i]) < serial, "round ", round,
                ": a signal came before its wait was released");
      }
      Host::signal(hosts[h].counter, serial);
    }
    expect_fence(signals_a.back(), serial, MH_OK, "the last signal");
    expect_fence(signals_b.back(), serial, MH_OK, "the last signal");
    for (size_t i = 0; i < kStages; ++i) {
      a.check_stage(i, cat("round ", round));
      b.check_stage(i, cat("round ", round));
    }
  }
  a.job().free(), b.job().free();
  session.api.queue->free(second);
  workload.end();
}

void poisoned_wait(const Context& context) {
  Workload workload(context, "poison");
  Session& session = workload.session();
  const auto waits = place_fences(workload, 2), signals = place_fences(workload, 2);
  StagedJob job(workload, session.queue, waits, signals);
  for (const int32_t origin : {MH_INTERNAL, MH_NO_MEMORY, MH_ABORTED})
    for (const size_t poisoned : {size_t{0}, size_t{1}}) {
      const uint64_t serial = session.next_serial();
      job.start(5, serial);
      for (size_t i = 0; i < waits.size(); ++i) Host::signal(waits[i].counter, i == poisoned ? poison(origin) : serial);
      for (size_t i = 0; i < signals.size(); ++i) {
        expect_fence(signals[i], serial, i < poisoned ? MH_OK : origin,
                     cat("signal ", i, " after a poisoned wait ", poisoned));
        if (i < poisoned)
          job.check_stage(i, "before the poison");
        else
          require(job.untouched(i), "an op behind a poisoned wait did its work");
      }
      expect_failed_queue(workload, session.queue, job.job());
      job.job().join();
      session.recover({session.queue});
      const uint64_t next = session.next_serial();
      job.start(3, next);
      for (const Fence& fence : waits) Host::signal(fence.counter, next);
      expect_fence(signals[1], next, MH_OK, "the last signal of the step after the reset");
      job.check_stage(0, "after the reset"), job.check_stage(1, "after the reset");
    }
  job.job().free();
  workload.end();
}

void skip_if_relayed(Session& session) {
  if (session.relays())
    skip("the device neither waits nor signals inside programs: core's relay waits, and is not tested here");
}

// The queue waits for what never comes; another thread waits for the queue; abort ends both.
void abort_waiting(const Context& context) {
  Workload workload(context, "abort");
  Session& session = workload.session();
  skip_if_relayed(session);
  const auto waits = place_fences(workload, 2), signals = place_fences(workload, 2);
  StagedJob first(workload, session.queue, {waits[0]}, {signals[0]}),
      second(workload, session.queue, {waits[1]}, {signals[1]});
  for (uint32_t round = 0; round < context.repeats(50, 10); ++round) {
    const uint64_t serial = session.next_serial();
    first.start(4, serial), second.start(2, serial);
    int32_t answer = MH_OK;
    std::thread waiter([&] { answer = session.api.queue->wait(session.queue, kAnswerNs, nullptr); });
    if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    require(session.api.queue->abort(session.queue) == MH_OK, "queue.abort fails");
    expect_fence(signals[0], serial, MH_ABORTED, "after abort, the signal of the program that waits");
    expect_fence(signals[1], serial, MH_ABORTED, "after abort, the signal of the program behind it");
    waiter.join();
    require(answer != MH_TIMEOUT, "queue.wait does not end after abort (hang)");
    require(answer != MH_OK, "queue.wait says MH_OK after abort");
    require(first.untouched(0) && second.untouched(0), "an op was run after abort");
    expect_failed_queue(workload, session.queue, first.job());
    session.recover({session.queue});
    const uint64_t next = session.next_serial();
    first.start(8, next), second.start(1, next);
    for (const Fence& fence : waits) Host::signal(fence.counter, next);
    expect_fence(signals[1], next, MH_OK, "the last signal of the step after the reset");
    first.check_stage(0, "after the reset"), second.check_stage(0, "after the reset");
  }
  first.job().free(), second.job().free();
  workload.end();
}

void abort_idle(const Context& context) {
  Workload workload(context, "abort_idle");
  Session& session = workload.session();
  for (int round = 0; round < 5; ++round) {
    require(session.api.queue->abort(session.queue) == MH_OK, "queue.abort of an idle queue fails");
    session.recover({session.queue});
    workload.op_job().put(workload.step(Workload::kTokens), 0, workload.inputs());
    Host::signal(workload.go().counter, session.serial() + 1);
    workload.op_job().run(workload.step(3));
    workload.check_output(workload.op_job().get(workload.step(3), 0), 3, "after an abort of the idle queue");
  }
  workload.end();
}

void wait_times_out(const Context& context) {
  Workload workload(context, "timeout");
  Session& session = workload.session();
  skip_if_relayed(session);
  const auto fences = place_fences(workload, 2);
  StagedJob job(workload, session.queue, {fences[0]}, {fences[1]});
  for (int round = 0; round < 5; ++round) {
    const uint64_t serial = session.next_serial();
    job.start(6, serial);
    for (const uint64_t timeout_ns : {uint64_t{0}, kMsNs}) {
      const int32_t code = session.api.queue->wait(session.queue, timeout_ns, nullptr);
      require(code == MH_TIMEOUT, "queue.wait for ", timeout_ns, " ns answers ", code_name(code),
              " while the queue is held by a fence");
    }
    require(value_of(fences[1]) < serial, "a signal came before its wait was released");
    Host::signal(fences[0].counter, serial);
    Error error;
    check(session.api.queue->wait(session.queue, kAnswerNs, &error), error, "queue.wait after a time-out");
    expect_fence(fences[1], serial, MH_OK, "the signal after queue.wait");
    job.check_stage(0, "after a time-out");
  }
  job.job().free();
  workload.end();
}

// The step block and the boundaries are core's again at the last signal: they are rewritten at once.
void replays(const Context& context) {
  Workload workload(context, "replays");
  Session& session = workload.session();
  const uint32_t steps = context.repeats(10000, 1000);
  for (uint32_t i = 0; i < steps; ++i) {
    const uint32_t tokens = 1 + workload.random().below(Workload::kTokens);
    const Step step = workload.step(tokens);
    const uint64_t serial = session.next_serial();
    workload.block().write(step, serial);
    Host::signal(workload.go().counter, serial);
    workload.job().run(serial, workload.done());
    if (i % 16 == 0) workload.check_output(workload.op_job().get(step, 0), tokens, cat("replay ", i));
    for (const Region& region : workload.op_job().outputs()) session.arena.wipe(region);
  }
  workload.end();
}

// The host waits for the last signal, frees the program at once, and uses the memory for something else.
void free_after_signal(const Context& context) {
  Workload workload(context, "free_after_signal");
  Session& session = workload.session();
  const auto fences = place_fences(workload, 2);
  StagedJob job(workload, session.queue, {fences[0]}, {fences[1]});
  for (uint32_t round = 0; round < context.repeats(500, 100); ++round) {
    const uint64_t serial = session.next_serial();
    job.start(1 + round % Workload::kTokens, serial);
    Host::signal(fences[0].counter, serial);
    expect_fence(fences[1], serial, MH_OK, "the last signal");
    job.check_stage(0, cat("round ", round));
    session.arena.remember();
    job.job().free();
    require(session.arena.changed_outside({}, {}).empty(), "the device writes to its boundaries after its last signal");
    job.job().create();
  }
  job.job().free();
  workload.end();
}

// What the first program writes, the second one reads: programs of a queue run in order.
void two_programs(const Context& context) {
  Workload workload(context, "two_programs");
  Session& session = workload.session();
  const auto fences = place_fences(workload, 3);
  StagedJob first(workload, session.queue, {fences[0]}, {fences[1]}),
      second(workload, session.queue, {fences[1]}, {fences[2]});
  for (uint32_t round = 0; round < context.repeats(500, 100); ++round) {
    const uint64_t serial = session.next_serial();
    first.start(Workload::kTokens, serial);
    if (!session.relays()) second.start(3, serial);
    Host::signal(fences[0].counter, serial);
    if (session.relays()) first.job().join(), second.start(3, serial);
    expect_fence(fences[2], serial, MH_OK, "the signal of the second program");
    require(value_of(fences[1]) == serial, "the second program ended before the first");
    first.check_stage(0, cat("round ", round)), second.check_stage(0, cat("round ", round));
  }
  first.job().free(), second.job().free();
  workload.end();
}

}  // namespace

std::vector<Case> async_cases() {
  return {
      {"async", "random_order", random_order},           {"async", "poisoned_wait", poisoned_wait},
      {"async", "abort_waiting", abort_waiting},         {"async", "abort_idle", abort_idle},
      {"async", "wait_times_out", wait_times_out},       {"async", "replays", replays},
      {"async", "free_after_signal", free_after_signal}, {"async", "two_programs", two_programs},
  };
}

}  // namespace conform

// Memory: allocated is what was promised, everything comes back, and every allocation may fail.
#include <algorithm>

#include "case.h"
#include "job.h"
#include "process.h"

namespace conform {
namespace {

const Limits kLimits{64, 64, 4};
// Small bookkeeping may be on the heap; weights, caches and workspaces may not.
constexpr int64_t kBookkeepingBytes = 64 << 10;

// What is allocated now, by the three accounts that must agree.
struct Account {
  uint64_t used, host;
  int64_t heap;
  explicit Account(const Session& session)
      : used(session.used_bytes()), host(session.host.bytes()), heap(heap_bytes()) {}
};

// Since `before`, exactly `promised` bytes more were allocated.
void check_growth(const Session& session, const Account& before, uint64_t promised, const std::string& what) {
  const Account now(session);
  require(now.used - before.used == promised, what, ": promised ", promised, " bytes, device.memory shows ",
          now.used - before.used);
  if (!(session.info.features & MH_DEVICE_HOST_MEMORY)) return;
  require(now.host - before.host == promised, what, ": promised ", promised, " bytes, took ", now.host - before.host,
          " from memory_alloc");
  require(now.heap - before.heap <= kBookkeepingBytes, what, ": keeps ", now.heap - before.heap,
          " bytes on the heap; large memory comes from memory_alloc, where core can count it");
}

// Frees of everything made since `before` have given all of it back.
void check_returned(const Session& session, const Account& before, const std::string& what) {
  const Account now(session);
  require(now.used == before.used, what, ": ", now.used - before.used, " bytes in use after the free");
  require(now.host == before.host, what, ": leaked host memory, ", now.host - before.host,
          " bytes of memory_alloc after the free");
}

// The ops of the catalogue that the device takes.
std::vector<std::unique_ptr<Op>> supported_ops(Session& session, Random& random) {
  std::vector<std::unique_ptr<Op>> ops;
  for (const OpVariant& variant : all_ops()) {
    auto op = variant.make(random, false);
    if (supports(session, *op, kLimits)) ops.push_back(std::move(op));
  }
  if (ops.empty()) skip("no op is supported");
  return ops;
}

void ops(const Context& context) {
  Session session(context);
  Random random(context.seed, "memory");
  for (const auto& op : supported_ops(session, random)) {
    const Account start(session);
    mh_kv* kv = nullptr;
    if (op->kv_desc()) {
      Error error;
      check(session.api.kv->create(session.device, op->kv_desc(), &kv, &error), error, "kv.create");
    }
    const Account before(session);
    session.host.reset_peak();
    LoadedOp loaded(session, *op, kLimits, kv);
    const uint64_t promised = loaded.cost().resident_bytes;
    check_growth(session, before, promised, "op.load of " + op->name);
    const uint64_t peak = session.host.peak_bytes() - before.host;
    if (session.info.features & MH_DEVICE_HOST_MEMORY)
      require(peak <= promised + loaded.cost().peak_bytes, "op.load of ", op->name, ": took ", peak,
              " bytes while loading, ", promised, " resident and ", loaded.cost().peak_bytes, " more were promised");
    loaded.free();
    check_returned(session, before, "op.free of " + op->name);
    if (kv) session.api.kv->free(kv);
    check_returned(session, start, "kv.free");
  }
  session.end();
}

void caches(const Context& context) {
  Session session(context);
  if (!session.api.kv) skip("the plugin has no kv table");
  Random random(context.seed, "caches");
  size_t count = 0;
  for (const OpVariant& variant : attention_ops()) {
    const auto op = variant.make(random, false);
    uint64_t promised = 0;
    Error error;
    const int32_t code = session.api.kv->cost(session.device, op->kv_desc(), &promised, &error);
    if (code == MH_UNSUPPORTED && error.text[0]) continue;
    check(code, error, "kv.cost for " + op->name);
    const Account before(session);
    mh_kv* kv = nullptr;
    check(session.api.kv->create(session.device, op->kv_desc(), &kv, &error), error, "kv.create for " + op->name);
    check_growth(session, before, promised, "kv.create for " + op->name);
    session.api.kv->free(kv);
    check_returned(session, before, "kv.free");
    ++count;
  }
  if (count == 0) skip("no cache is supported");
  session.end();
}

// Programs of a queue share its workspace: it holds the largest.
void programs(const Context& context) {
  Session session(context);
  Random random(context.seed, "programs");
  const auto op = std::move(supported_ops(session, random).front());
  const Account empty(session);
  LoadedOp loaded(session, *op, kLimits);
  const Account before(session);
  uint64_t largest = 0, largest_host = 0;
  std::vector<std::unique_ptr<OpJob>> jobs;
  const uint64_t host_before = session.memory().host_bytes;
  for (const uint32_t tokens : {8U, 64U, 16U}) {
    jobs.push_back(std::make_unique<OpJob>(session, loaded, Limits{tokens, tokens, 4}, 1, 0));
    largest = std::max(largest, jobs.back()->job().promised().workspace_bytes);
    largest_host = std::max(largest_host, jobs.back()->job().promised().host_bytes);
    check_growth(session, before, largest, cat("program_create for ", tokens, " tokens"));
    const uint64_t host = session.memory().host_bytes - host_before;
    require(host == largest_host, "program_create: promised ", largest_host,
            " bytes of pinned memory, device.memory shows ", host);
  }
  for (auto& job : jobs) job->job().free();
  check_growth(session, before, largest, "the queue's workspace after program_free");
  session.api.queue->free(session.queue);
  check_returned(session, before, "queue.free");
  session.queue = session.new_queue();
  loaded.free();
  check_returned(session, empty, "op.free");
  session.end();
}

// Everything that a plugin's life makes, tried again and again with one allocation failing: the n-th of a call, for
// n = 1, 2, ... until the call needs fewer.
class Exhaustion {
 public:
  explicit Exhaustion(Session& session) : session_(session) {}
  uint64_t refused() const { return refused_; }
  // make: returns the code of a call. It must answer MH_NO_MEMORY, and nothing may be left behind; then succeed.
  template <class Make>
  void run(const std::string& what, Make make) {
    for (uint64_t n = 1;; ++n) {
      const Account before(session_);
      session_.host.fail_allocation(n);
      Error error;
      const int32_t code = make(error);
      const bool failed = session_.host.failed_an_allocation();
      session_.host.fail_allocation(0);
      if (!failed) return check(code, error, what);
      check_refused(code, MH_NO_MEMORY, error, cat(what, " with allocation ", n, " failing"));
      check_returned(session_, before, cat(what, " with allocation ", n, " failing"));
      ++refused_;
    }
  }

 private:
  Session& session_;
  uint64_t refused_ = 0;
};

void out_of_memory(const Context& context) {
  Session session(context);
  Random random(context.seed, "out_of_memory");
  Exhaustion exhaustion(session);
  const mh_plugin& api = session.api;
  for (const auto& op : supported_ops(session, random)) {
    mh_kv* kv = nullptr;
    if (op->kv_desc())
      exhaustion.run("kv.create for " + op->name,
                     [&](Error& error) { return api.kv->create(session.device, op->kv_desc(), &kv, &error); });
    op->set_kv(kv);
    const mh_op_desc desc = op->describe(true, kLimits);
    mh_op* raw = nullptr;
    exhaustion.run("op.load of " + op->name,
                   [&](Error& error) { return api.op->load(session.device, &desc, &raw, &error); });
    api.op->free(raw);
    if (kv) api.kv->free(kv);
  }
  const auto op = std::move(supported_ops(session, random).front());
  mh_queue* queue = nullptr;
  exhaustion.run("queue.create", [&](Error& error) { return api.queue->create(session.device, &queue, &error); });
  api.queue->free(queue);
  LoadedOp loaded(session, *op, kLimits);
  // A workspace larger than the one that the queue has, and one that it has already.
  for (const uint32_t tokens : {8U, 64U, 64U}) {
    OpJob job(session, loaded, Limits{tokens, tokens, 4}, 1, 0);
    job.job().free();
    mh_program_desc desc = job.job().describe(true);
    std::vector<mh_item> items(desc.items, desc.items + desc.item_count);
    std::erase_if(items, [](const mh_item& item) { return item.what != MH_ITEM_OP; });
    desc.items = items.data(), desc.item_count = static_cast<uint32_t>(items.size());
    mh_queue* fresh = session.new_queue();
    mh_program* program = nullptr;
    const Account before(session);
    exhaustion.run("queue.program_create",
                   [&](Error& error) { return api.queue->program_create(fresh, &desc, &program, &error); });
    api.queue->program_free(program);
    api.queue->free(fresh);
    check_returned(session, before, "queue.free");
  }
  // It all works after the failures.
  OpJob job(session, loaded, kLimits, 1, 0);
  const Step step = op->next_step(random, 9);
  job.put(step, 0, op->fill(random, step));
  job.run(step);
  if (exhaustion.refused() == 0) skip("the plugin takes no memory from the host: nothing to refuse");
  note(exhaustion.refused(), " allocations refused");
  job.job().free();
  loaded.free();
  session.end();
}

void memory_limit(const Context& context) {
  SessionOptions options;
  options.device_options = {{"memory_limit", "65536"}};
  Session session(context, options);
  Random random(context.seed, "memory_limit");
  for (const auto& op : supported_ops(session, random)) {
    mh_op_cost cost{};
    cost.size = sizeof cost;
    const mh_op_desc described = op->describe(false, kLimits);
    Error error;
    check(session.api.op->cost(session.device, &described, &cost, &error), error, "op.cost of " + op->name);
    if (cost.resident_bytes <= 65536) continue;
    const Account before(session);
    const mh_op_desc desc = op->describe(true, kLimits);
    mh_op* raw = nullptr;
    Error load_error;
    check_refused(session.api.op->load(session.device, &desc, &raw, &load_error), MH_NO_MEMORY, load_error,
                  cat("op.load of ", op->name, " with ", cost.resident_bytes, " bytes under memory_limit 65536"));
    check_returned(session, before, "op.load beyond the limit");
    return session.end();
  }
  skip("no supported op of the suite keeps more than 65536 bytes");
}

// Bytes that core gave back may not be needed: the same load, a hundred times, takes no more than once.
void repeated_loads(const Context& context) {
  Session session(context);
  Random random(context.seed, "repeated_loads");
  const auto all = supported_ops(session, random);
  const uint32_t rounds = context.repeats(100, 20);
  const auto round = [&] {
    for (const auto& op : all) {
      if (op->kv_desc()) continue;
      LoadedOp loaded(session, *op, kLimits);
      loaded.free();
    }
  };
  round();
  const Account before(session);
  for (uint32_t i = 0; i < rounds; ++i) round();
  check_returned(session, before, "loads and frees");
  const int64_t grown = heap_bytes() - before.heap;
  require(grown < kBookkeepingBytes, "leaks: the heap grew by ", grown, " bytes in ", rounds,
          " rounds of loads and frees");
  session.end();
}

}  // namespace

std::vector<Case> memory_cases() {
  return {
      {"memory", "ops", ops},
      {"memory", "caches", caches},
      {"memory", "programs", programs},
      {"memory", "out_of_memory", out_of_memory},
      {"memory", "memory_limit", memory_limit},
      {"memory", "repeated_loads", repeated_loads},
  };
}

}  // namespace conform

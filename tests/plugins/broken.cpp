// A small good plugin (linear in f32), compiled once for every FAULT of the list: moehost-conform has to find each.
//
// Some faults are in the backend itself; the others are put over the good tables and host services, from outside.
#include <unistd.h>

#include <csignal>
#include <thread>

#include "moehost/stored_op.hpp"

namespace {

enum Fault {
  kWrongSum = 1,           // the last product of a sum is missing
  kWritesPastRows,         // one row more than the step has
  kDependsOnBatch,         // strict, yet rounds otherwise in a large batch
  kReadsSourceLater,       // keeps the pointer to the weights instead of a copy
  kCrashes,                // on a step of seven tokens
  kAllocatesWhileRunning,  // memory of the host that no cost has promised
  kLiesAboutBytes,         // promises half of what it takes
  kLeaksHostMemory,        // op.free gives nothing back
  kIgnoresTail,            // takes a longer struct of a later minor as if it asked for nothing new
  kAcceptsAnyOption,       // device.open
  kTouchesOutputs,         // op.cost fills its result and then fails
  kAllocatesInSubmit,      // on the heap, on the hot path
  kLosesPoison,            // signals success where poison was to be passed on
  kHangsOnAbort,           // abort does nothing
  kIgnoresWaits,           // goes on without its fences
  kLeavesThreads,          // one a device, joined by nobody
  kExportsTwoSymbols,      // the version script lets a second one out
};
constexpr int kFault = FAULT;

class Linear final : public mh::StoredOp {
 public:
  Linear(const mh_op_desc& desc, mh::MemoryAccount& account)
      : StoredOp(desc, account), source_(static_cast<const float*>(desc.weights[0]->slabs[0])) {}
  const float* row(uint64_t r) const {
    return kFault == kReadsSourceLater ? source_ + r * weight(0).cols : weight(0).floats(0, r);
  }

 private:
  const float* source_;
};

class Broken : public mh::Backend {
 public:
  static constexpr const char* kId = PLUGIN_ID;
  explicit Broken(const mh_device_spec& spec) : mh::Backend(spec) {
    if (kFault == kLeavesThreads) std::thread([] { pause(); }).detach();
  }

  mh_op_cost cost(const mh_op_desc& desc) override {
    if (desc.kind != MH_OP_LINEAR || desc.weights[0]->format != MH_FORMAT_F32 ||
        (desc.weight_count > 1 && desc.weights[1]))
      mh::fail(MH_UNSUPPORTED, "op kind ", desc.kind, ": only linear (3) in F32 without a bias");
    mh_op_cost cost{};
    cost.resident_bytes = mh::StoredOp::resident_bytes(desc);
    cost.slice_align = 1;
    if (kFault == kLiesAboutBytes) cost.resident_bytes /= 2;
    return cost;
  }
  std::unique_ptr<mh::Op> load(const mh_op_desc& desc) override { return std::make_unique<Linear>(desc, memory()); }

  void run(const mh::Op& op, const mh::Call& call) override {
    const auto& linear = static_cast<const Linear&>(op);
    const mh::View &x = call.in[0], &y = call.out[0];
    if (kFault == kCrashes && x.rows == 7) std::raise(SIGSEGV);
    if (kFault == kAllocatesWhileRunning) mh::HostMemory(memory(), 4096);
    const uint32_t terms = kFault == kWrongSum ? x.cols - 1 : x.cols;
    const bool in_f32 = kFault == kDependsOnBatch && x.rows > 8;
    for (uint32_t r = 0; r < x.rows; ++r)
      for (uint32_t o = 0; o < y.cols; ++o) {
        double sum = 0;
        for (uint32_t i = 0; i < terms; ++i) {
          sum += double{linear.row(o)[i]} * x.row(r)[i];
          if (in_f32) sum = static_cast<float>(sum);
        }
        y.row(r)[o] = static_cast<float>(sum);
      }
    if (kFault == kWritesPastRows) y.row(x.rows)[0] = 0;
  }
};

}  // namespace

#define moehost_plugin_v1 good_plugin_v1
MH_PLUGIN(Broken)
#undef moehost_plugin_v1

namespace {

const mh_plugin& good() { return *good_plugin_v1(0, MH_ABI_MINOR); }

mh_host g_twisted_host;  // the host, with services that this plugin twists
const mh_host* g_real_host;

int32_t init(const mh_host* host, mh_error* error) {
  g_real_host = host;
  g_twisted_host = *host;
  g_twisted_host.size = sizeof g_twisted_host;
  if (kFault == kLosesPoison)
    g_twisted_host.fence_signal = [](void* ctx, uint64_t* counter, uint64_t value) {
      g_real_host->fence_signal(ctx, counter, value & MH_FENCE_POISON ? MH_FENCE_POISON - 1 : value);
    };
  if (kFault == kLeaksHostMemory) g_twisted_host.memory_free = [](void*, void*, uint64_t) {};
  return good().init(&g_twisted_host, error);
}

int32_t open_device(const mh_device_spec* spec, mh_device** out, mh_error* error) {
  mh_device_spec without = *spec;
  if (kFault == kAcceptsAnyOption) without.option_count = 0;
  return good().device->open(&without, out, error);
}

int32_t op_cost(mh_device* device, const mh_op_desc* desc, mh_op_cost* out, mh_error* error) {
  mh_op_desc known = *desc;
  if (kFault == kIgnoresTail) known.size = std::min<uint32_t>(known.size, sizeof known);
  if (kFault == kTouchesOutputs) out->resident_bytes = 0;
  return good().op->cost(device, &known, out, error);
}

int32_t program_create(mh_queue* queue, const mh_program_desc* desc, mh_program** out, mh_error* error) {
  mh_program_desc changed = *desc;
  std::vector<mh_item> items;
  for (uint32_t i = 0; i < desc->item_count; ++i)
    if (kFault != kIgnoresWaits || desc->items[i].what != MH_ITEM_WAIT) items.push_back(desc->items[i]);
  changed.item_count = static_cast<uint32_t>(items.size()), changed.items = items.data();
  return good().queue->program_create(queue, &changed, out, error);
}

int32_t submit(mh_program* program, mh_error* error) {
  if (kFault == kAllocatesInSubmit) {
    void* volatile memory = std::malloc(100);  // volatile: or the compiler leaves both calls out
    std::free(memory);
  }
  return good().queue->submit(program, error);
}

int32_t abort_queue(mh_queue* queue) { return kFault == kHangsOnAbort ? int32_t{MH_OK} : good().queue->abort(queue); }

}  // namespace

// For the version script of kExportsTwoSymbols; in the others it stays inside.
extern "C" __attribute__((visibility("default"))) int broken_second_symbol() { return 2; }

extern "C" const mh_plugin* moehost_plugin_v1(uint32_t minor_lo, uint32_t minor_hi) {
  if (!good_plugin_v1(minor_lo, minor_hi)) return nullptr;
  static mh_device_table device = *good().device;
  static mh_op_table op = *good().op;
  static mh_queue_table queue = *good().queue;
  static mh_plugin plugin = good();
  device.open = open_device;
  // Only where it is the fault: the wrappers see no more than the struct that this file knows.
  if (kFault == kIgnoresTail || kFault == kTouchesOutputs) op.cost = op_cost;
  queue.program_create = program_create, queue.submit = submit, queue.abort = abort_queue;
  plugin.init = init, plugin.device = &device, plugin.op = &op, plugin.queue = &queue;
  return &plugin;
}

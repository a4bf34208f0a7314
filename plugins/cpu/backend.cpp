// The table of ops, what they cost, and the choice of kernels when a device is opened.
#include "plugins/cpu/backend.h"

#include <cpuid.h>

#include <algorithm>
#include <numeric>

#include "plugins/cpu/dense.h"

namespace mh_cpu {
namespace {

uint64_t no_scratch(const Cpu&, const mh_op_desc&) { return 0; }

struct OpEntry {
  void (*run)(const Cpu& cpu, const PackedOp& op, const Call& call);
  uint64_t (*scratch)(const Cpu& cpu, const mh_op_desc& desc);
};
constexpr OpEntry kOps[] = {
    {},                              // no kind 0
    {nullptr, no_scratch},           // MH_OP_EMBED: another class of op
    {rms_norm, no_scratch},          // MH_OP_RMS_NORM
    {linear, linear_scratch},        // MH_OP_LINEAR
    {head_linear, linear_scratch},   // MH_OP_HEAD_LINEAR
    {rope, rope_scratch},            // MH_OP_ROPE
    {attention, attention_scratch},  // MH_OP_ATTENTION
    {route, route_scratch},          // MH_OP_ROUTE
    {experts, network_scratch},      // MH_OP_EXPERTS
    {ffn, network_scratch},          // MH_OP_FFN
    {activate, no_scratch},          // MH_OP_ACTIVATE
    {gate, no_scratch},              // MH_OP_GATE
    {add, no_scratch},               // MH_OP_ADD
    {scale, no_scratch},             // MH_OP_SCALE
    {take_rows, no_scratch},         // MH_OP_TAKE_ROWS
};
static_assert(std::size(kOps) == MH_OP_TAKE_ROWS + 1);

std::vector<int> chosen_cpus(const mh_device_spec& spec, const char* id) {
  const char* list = mh::find_option(spec, "cpus");
  std::vector<int> cpus = usable_cpus(list ? list : "");
  const uint64_t threads = mh::number_option(spec, "threads", cpus.size());
  if (threads == 0) mh::fail(MH_INVALID, "option threads is 0: at least 1");
  if (threads > cpus.size())
    mh::log(1, id,
            "threads: " + std::to_string(threads) + " asked, " + std::to_string(cpus.size()) +
                " taken: one for each processor that may be used");
  cpus.resize(std::min<size_t>(threads, cpus.size()));
  return cpus;
}

const KernelTable& choose(std::span<const Variant> variants) {
  const auto best = std::find_if(variants.begin(), variants.end() - 1, [](const Variant& v) { return v.runs_here(); });
  return *best->table();
}

uint32_t batch_size(const mh_device_spec& spec, const char* id) {
  constexpr uint64_t kDefault = 512, kMost = 1 << 20;
  const uint64_t value = mh::number_option(spec, (std::string(id) + "." + Backend::kBatchSize).c_str(), kDefault);
  if (value == 0 || value > kMost)
    mh::fail(MH_INVALID, "option ", id, ".", Backend::kBatchSize, " is ", value, ": 1 to ", kMost);
  return static_cast<uint32_t>(value);
}

}  // namespace

Backend::Backend(const mh_device_spec& spec, const char* id, std::span<const Variant> variants)
    : mh::Backend(spec),
      pool_(chosen_cpus(spec, id), [] { return mh::g_host->spin_ns(mh::g_host->ctx); }),
      cpu_{choose(variants), pool_, batch_size(spec, id)} {
  mh::log(2, id,
          std::string("kernels ") + cpu_.kernels.name + " (the best of " + std::to_string(variants.size()) +
              " that this processor runs), " + std::to_string(pool_.threads()) +
              " threads; F32, F16 and BF16 matrices times many tokens: " + dense_library());
}

mh_op_cost Backend::cost(const mh_op_desc& desc) {
  mh_op_cost cost{};
  cost.verdict = MH_NATIVE;
  if (desc.kind == MH_OP_EMBED) {
    const mh_weight& table = *desc.weights[0];
    if (table.scales || table.zeros || !mh::can_decode(table.format))
      mh::fail(MH_UNSUPPORTED, "embed: the table is ", mh::find_format(table.format)->name, ": known are ",
               mh::kDecodedFormats);
    cost.resident_bytes = mh::StoredOp::resident_bytes(desc);
    return cost;
  }
  PackedOp::check(desc);
  if (desc.kind == MH_OP_ATTENTION) kv_bytes(*static_cast<const mh_attention_params*>(desc.params)->kv_desc);
  cost.resident_bytes = PackedOp::resident_bytes(desc);
  if (desc.kind == MH_OP_LINEAR) cost.slice_align = kGroupRows;
  if (desc.kind == MH_OP_EXPERTS || desc.kind == MH_OP_FFN)  // a cut of F is a cut of down's columns
    cost.slice_align = std::lcm<uint32_t>(kGroupRows, mh::find_format(desc.weights[MH_DOWN]->format)->block_elements);
  return cost;
}

std::unique_ptr<mh::Op> Backend::load(const mh_op_desc& desc) {
  if (desc.kind == MH_OP_EMBED) return std::make_unique<mh::StoredOp>(desc, memory());
  return std::make_unique<PackedOp>(desc, memory(), pool_);
}

uint64_t Backend::scratch_bytes(const mh_op_desc& desc) { return kOps[desc.kind].scratch(cpu_, desc); }

void Backend::run(const mh::Op& op, const mh::Call& call) {
  if (op.kind() == MH_OP_EMBED) return embed(cpu_, static_cast<const mh::StoredOp&>(op), call);
  kOps[op.kind()].run(cpu_, static_cast<const PackedOp&>(op), call);
}

void describe_cpu(mh_device_info& out) {
  uint32_t name[12] = {};
  if (__get_cpuid_max(0x80000000, nullptr) >= 0x80000004)
    for (uint32_t leaf = 0; leaf < 3; ++leaf)
      __get_cpuid(0x80000002 + leaf, name + 4 * leaf, name + 4 * leaf + 1, name + 4 * leaf + 2, name + 4 * leaf + 3);
  std::snprintf(out.name, sizeof out.name, "%.*s", static_cast<int>(sizeof name), reinterpret_cast<const char*>(name));
}

}  // namespace mh_cpu

// Opens devices, places, prices: exact bytes by device, and whether they fit.
#include "core/placement/placement.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "core/base/text_format.h"

namespace moehost {
namespace {

constexpr uint32_t kDefaultContext = 8192;
// Rows of logits that one step can return: one a sequence while generating, and this many when all are asked for.
constexpr uint32_t kMaxOutputRows = 32;

uint64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    uint64_t kib = 0;
    if (!(file >> kib)) break;
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return 0;
}

StepLimits make_limits(const Program& program, const Config& config) {
  StepLimits l;
  l.context_tokens = config.context.max_tokens.value_or(std::min(program.context_length, kDefaultContext));
  l.max_tokens = std::min(config.context.prefill_chunk, l.context_tokens);
  l.max_sequences = config.context.max_sequences;
  l.max_outputs = std::max(l.max_sequences, std::min(l.max_tokens, kMaxOutputRows));
  l.block_tokens = config.context.block_tokens;
  return l;
}

// "0-3, 7" of a sorted set.
std::string ranges(const std::set<int32_t>& ids) {
  std::string out;
  for (auto it = ids.begin(); it != ids.end();) {
    const int32_t first = *it;
    int32_t last = first;
    while (++it != ids.end() && *it == last + 1) last = *it;
    out += cat(out.empty() ? "" : ", ", first);
    if (last > first) out += cat("-", last);
  }
  return out;
}

class DeviceOpener {
 public:
  DeviceOpener(const Config& config, Registry& registry) : config_(config), registry_(registry) {}

  Status list() {
    MOEHOST_ASSIGN(listings_, registry_.devices());
    return {};
  }
  // The best device that is not host memory, else the CPU.
  DeviceName default_dense() const {
    for (const DeviceListing& d : listings_)
      if (!(d.info.features & MH_DEVICE_HOST_MEMORY))
        if (auto name = parse_device(d.name); name.ok()) return *name;
    return *parse_device("cpu");
  }
  Result<std::shared_ptr<Device>> open(const DeviceName& name) {
    DeviceSpec spec;
    spec.name = name.text(), spec.kind = name.kind, spec.index = name.index;
    for (const DeviceName::Member& m : name.members) spec.members.push_back({cat(m.kind, ":", m.index), m.weight});
    for (const DeviceListing& d : listings_)
      if (d.name == spec.name && name.kind == "cpu") {  // cpu_moe_options speak of whichever plugin is the CPU
        spec.options.emplace_back(d.plugin + ".batch_size", cat(config_.cpu_moe_options.batch_size));
        if (config_.cpu_moe_options.num_threads)
          spec.options.emplace_back("threads", cat(*config_.cpu_moe_options.num_threads));
      }
    if (const auto it = config_.device_options.find(spec.name); it != config_.device_options.end())
      for (const auto& [key, value] : it->second) spec.options.emplace_back(key, value);
    return registry_.open(spec);
  }

 private:
  const Config& config_;
  Registry& registry_;
  std::vector<DeviceListing> listings_;
};

// Prices a placement: fills plan.devices, notes and problems.
class Accountant {
 public:
  explicit Accountant(Placement& placement) : placement_(placement), p_(placement.program) {}

  Status run() {
    for (const auto& device : p_.devices) {
      DevicePlan plan;
      plan.name = device->name(), plan.plugin = device->plugin().id;
      plan.overhead_bytes = device->info().overhead_bytes;
      plan.host_memory = device->has(MH_DEVICE_HOST_MEMORY);
      MOEHOST_ASSIGN(const MemoryInfo memory, device->memory());
      plan.free_bytes = memory.free_bytes;
      plans().push_back(std::move(plan));
    }
    MOEHOST_RETURN_IF_ERROR(price_ops());
    for (const PlacedKv& kv : p_.kvs) {
      MOEHOST_ASSIGN(const uint64_t bytes, p_.devices[kv.device]->kv_cost(kv.desc));
      plans()[kv.device].kv_bytes += bytes;
    }
    MOEHOST_RETURN_IF_ERROR(price_programs());
    judge();
    return {};
  }

 private:
  std::vector<DevicePlan>& plans() { return placement_.plan.devices; }

  Status price_ops() {
    std::vector<std::set<int32_t>> layers(p_.devices.size()), experts(p_.devices.size());
    std::vector<std::string> slow(p_.devices.size());
    for (size_t i = 0; i < p_.ops.size(); ++i) {
      const PlacedOp& placed = p_.ops[i];
      Device& device = *p_.devices[placed.device];
      const auto cost = device.op_cost(placement_.descriptions[i].describe(false));
      if (!cost.ok())
        return Status(cost.status().code(), cat(placed.op.name, ": ", cost.status().message(),
                                                "; give this part to another device in device_map"));
      plans()[placed.device].weight_bytes += cost->resident_bytes;
      if (cost->verdict == MH_SLOW && slow[placed.device].empty()) slow[placed.device] = placed.op.name;
      if (placed.op.part == Part::kExperts)
        experts[placed.device].insert(placed.op.layer);
      else if (placed.op.layer >= 0 && placed.op.kind == MH_OP_ATTENTION)
        layers[placed.device].insert(placed.op.layer);
    }
    for (size_t d = 0; d < p_.devices.size(); ++d) {
      plans()[d].layers = ranges(layers[d]);
      plans()[d].experts = ranges(experts[d]);
      if (!slow[d].empty())
        placement_.plan.notes.push_back(
            cat(plans()[d].name, " has no native kernel for ", slow[d], " and others like it: slow"));
    }
    return {};
  }

  Status price_programs() {
    for (size_t i = 0; i < placement_.cut.programs.size(); ++i) {
      const uint32_t d = placement_.cut.programs[i].device;
      const ProgramDescription description(p_, placement_.cut, i, placement_.descriptions, {});
      MOEHOST_ASSIGN(const ProgramCost cost, p_.devices[d]->program_cost(description.get()));
      plans()[d].workspace_bytes =
          std::max(plans()[d].workspace_bytes, cost.workspace_bytes);  // a queue's programs share it
      plans()[d].host_bytes = std::max(plans()[d].host_bytes, cost.host_bytes);
    }
    return {};
  }

  void judge() {
    Plan& plan = placement_.plan;
    plan.exchange_bytes = placement_.cut.arena_bytes;
    plan.host_free_bytes = available_host_bytes();
    uint64_t host = plan.exchange_bytes;
    for (DevicePlan& d : plan.devices) {
      const uint64_t wanted = d.weight_bytes + d.kv_bytes + d.workspace_bytes + d.overhead_bytes;
      host += d.host_bytes + (d.host_memory ? wanted : 0);
      d.fits = wanted <= d.free_bytes;
      if (!d.fits)
        plan.problems.push_back(cat(d.name, " needs ", format_bytes(wanted), " (weights ", format_bytes(d.weight_bytes),
                                    ", KV ", format_bytes(d.kv_bytes), ", workspace ", format_bytes(d.workspace_bytes),
                                    "), free: ", format_bytes(d.free_bytes),
                                    ": give it fewer layers or experts, or lower context.max_tokens"));
    }
    if (plan.host_free_bytes && host > plan.host_free_bytes)
      plan.problems.push_back(
          cat("host memory: needs ", format_bytes(host), ", free: ", format_bytes(plan.host_free_bytes),
              ": move experts to another device, take a smaller quantisation, or lower context.max_tokens"));
    plan.fits = plan.problems.empty();
  }

  Placement& placement_;
  const PlacedProgram& p_;
};

}  // namespace

Result<Placement> make_placement(const Program& program, const Config& config, Registry& registry,
                                 const std::vector<ValueId>& captured) {
  Placement out;
  DeviceOpener opener(config, registry);
  MOEHOST_RETURN_IF_ERROR(opener.list());
  MOEHOST_ASSIGN(ResolvedMap map, resolve_device_map(config.device_map, program, opener.default_dense()));
  out.plan.notes = map.notes;
  const StepLimits limits = make_limits(program, config);
  if (limits.context_tokens > program.context_length)
    out.plan.notes.push_back(cat("context.max_tokens ", limits.context_tokens, " is more than the ",
                                 program.context_length, " tokens the model was trained for"));
  MOEHOST_ASSIGN(out.program, place_program(
                                  program, map, limits, config.context.kv_dtype,
                                  [&](const DeviceName& name) { return opener.open(name); }, &out.plan.notes));
  for (const PlacedOp& op : out.program.ops) out.descriptions.emplace_back(out.program, op);
  out.cut = cut_program(out.program, captured);
  out.plan.max_tokens = limits.context_tokens;
  out.plan.prefill_chunk = limits.max_tokens;
  constexpr const char* kDtypes[] = {"f32", "f16", "bf16"};
  out.plan.kv_dtype = kDtypes[static_cast<int>(config.context.kv_dtype)];
  out.plan.model = cat(
      program.name.empty() ? "unnamed" : program.name, ": ", program.architecture, ", ", program.layers, " layers",
      program.experts ? cat(", ", program.experts, " experts, ", program.experts_per_token, " per token") : ", dense",
      ", model_dim ", program.model_dim, ", vocabulary ", program.vocab_size);
  MOEHOST_RETURN_IF_ERROR(Accountant(out).run());
  return out;
}

}  // namespace moehost

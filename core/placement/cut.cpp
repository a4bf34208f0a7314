// Fences, segments and exchange memory of a placed program.
#include "core/placement/cut.h"

#include <algorithm>
#include <map>

namespace moehost {
namespace {

constexpr uint64_t kLine = 64;  // a fence is alone on its line
constexpr int64_t kNever = -1, kHost = INT64_MAX;

uint64_t align_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// For every device the last op that is known to have run: how "happens before" is decided. Knowledge travels only
// through fences, because a device may reorder what lies between them.
using Clock = std::vector<int64_t>;
void join(Clock& into, const Clock& from) {
  for (size_t d = 0; d < into.size(); ++d) into[d] = std::max(into[d], from[d]);
}

class Cutter {
 public:
  Cutter(const PlacedProgram& program, const std::vector<ValueId>& captured) : p_(program), captured_(captured) {
    const size_t devices = p_.devices.size();
    for (const auto& device : p_.devices)
      out_.relayed.push_back(!device->has(MH_DEVICE_WAITS) || !device->has(MH_DEVICE_SIGNALS));
    current_.resize(devices);
    knowledge_.assign(devices, Clock(devices, kNever));
    for (uint32_t d = 0; d < devices; ++d) open_segment(d);
  }

  CutResult run() {
    find_edges();
    for (uint32_t i = 0; i < p_.ops.size(); ++i) emit(i);
    for (uint32_t d = 0; d < p_.devices.size(); ++d) signal(d, fences_++);
    std::stable_sort(out_.programs.begin(), out_.programs.end(),
                     [](const CutProgram& a, const CutProgram& b) { return a.device < b.device; });
    out_.fence_count = fences_;
    out_.arena_bytes = fences_ * kLine;
    lay_out_step();
    lay_out_boundaries();
    return std::move(out_);
  }

 private:
  ValueId root(ValueId id) const { return p_.values[id].view.root; }

  // Which ops hand something to another device: those get a fence, the last writer a device for each reader.
  void find_edges() {
    std::map<ValueId, std::vector<uint32_t>> writers;
    needs_.resize(p_.ops.size());
    fence_of_.assign(p_.ops.size(), UINT32_MAX);
    std::vector<Clock> seen(p_.devices.size(), Clock(p_.devices.size(), kNever));
    for (uint32_t i = 0; i < p_.ops.size(); ++i) {
      const PlacedOp& op = p_.ops[i];
      for (const ValueId input : op.op.inputs) {
        for (const uint32_t w : writers[root(input)]) {
          const uint32_t from = p_.ops[w].device;
          if (from != op.device && seen[op.device][from] < w) needs_[i].push_back(w);
        }
      }
      // An op's fence also covers what its device wrote before: the latest writer of each device is enough.
      std::sort(needs_[i].begin(), needs_[i].end(), [&](uint32_t a, uint32_t b) {
        return std::pair(p_.ops[a].device, b) < std::pair(p_.ops[b].device, a);
      });
      needs_[i].erase(std::unique(needs_[i].begin(), needs_[i].end(),
                                  [&](uint32_t a, uint32_t b) { return p_.ops[a].device == p_.ops[b].device; }),
                      needs_[i].end());
      for (const uint32_t w : needs_[i]) {
        seen[op.device][p_.ops[w].device] = w;
        if (fence_of_[w] == UINT32_MAX) fence_of_[w] = fences_++;
      }
      for (const ValueId output : op.op.outputs) writers[root(output)].push_back(i);
    }
  }

  void emit(uint32_t i) {
    const uint32_t d = p_.ops[i].device;
    for (const uint32_t w : needs_[i]) wait(d, fence_of_[w], w);
    if (out_.relayed[d] && !program(d).signals.empty()) open_segment(d);
    program(d).items.push_back({MH_ITEM_OP, i});
    known_before_.push_back(knowledge_[d]);
    program_of_.push_back(current_[d]);
    if (fence_of_[i] == UINT32_MAX) return;
    Clock& sent = sent_[i] = knowledge_[d];
    sent[d] = i;
    signal(d, fence_of_[i]);
  }

  void wait(uint32_t d, uint32_t fence, uint32_t writer) {
    if (out_.relayed[d]) {
      if (!program(d).items.empty()) open_segment(d);
      program(d).waits.push_back(fence);
    } else {
      program(d).items.push_back({MH_ITEM_WAIT, fence});
    }
    join(knowledge_[d], sent_[writer]);
  }
  void signal(uint32_t d, uint32_t fence) {
    if (out_.relayed[d])
      program(d).signals.push_back(fence);
    else
      program(d).items.push_back({MH_ITEM_SIGNAL, fence});
  }
  CutProgram& program(uint32_t d) { return out_.programs[current_[d]]; }
  void open_segment(uint32_t d) {
    // Core itself waits for the end of a segment before the next: everything in it has happened.
    if (!known_before_.empty() && out_.relayed[d]) knowledge_[d][d] = static_cast<int64_t>(known_before_.size()) - 1;
    current_[d] = static_cast<uint32_t>(out_.programs.size());
    out_.programs.push_back({d, {}, {}, {}});
  }

  void lay_out_step() {
    StepLayout& s = out_.step;
    const StepLimits& l = p_.limits;
    uint32_t groups = 0;
    for (const PlacedKv& kv : p_.kvs) groups = std::max(groups, kv.desc.group + 1);
    uint64_t at = sizeof(mh_step);
    const auto place = [&](uint64_t bytes) {
      const uint64_t start = align_up(at, kLine);
      at = start + bytes;
      return static_cast<uint32_t>(start);
    };
    s.token_ids = place(l.max_tokens * 4u);
    s.positions = place(l.max_tokens * 4u);
    s.output_rows = place(l.max_outputs * 4u);
    s.sequence_rows = place((l.max_sequences + 1) * 4u);
    s.sequence_lengths = place(l.max_sequences * 4u);
    s.groups = place(groups * sizeof(mh_step_group));
    s.table_stride = l.blocks_per_sequence();
    for (uint32_t g = 0; g < groups; ++g) {
      s.tables.push_back(place(uint64_t{s.table_stride} * l.max_sequences * 4));
      s.copies.push_back(place(uint64_t{l.max_sequences} * 8));  // at most one copy on write a sequence and step
    }
    s.offset = align_up(out_.arena_bytes, kLine);
    s.bytes = at;
    out_.arena_bytes = s.offset + at;
  }

  struct Use {
    std::vector<uint32_t> ops;  // that touch the root, in order
    std::vector<uint32_t> writers;
    bool host = false;
  };
  // A piece of the arena, and the last op a device that touches what lies in it.
  struct Region {
    uint64_t offset, bytes;
    Clock last;
  };

  // Boundaries in order of first use; one takes the place of another that is known to be done with before.
  void lay_out_boundaries() {
    std::map<ValueId, Use> uses;
    for (uint32_t i = 0; i < p_.ops.size(); ++i) {
      for (const ValueId id : p_.ops[i].op.inputs) uses[root(id)].ops.push_back(i);
      for (const ValueId id : p_.ops[i].op.outputs)
        uses[root(id)].ops.push_back(i), uses[root(id)].writers.push_back(i);
    }
    uses[root(p_.logits)].host = true;
    for (const ValueId id : captured_) uses[root(id)].host = true;
    std::vector<std::pair<uint32_t, ValueId>> order;
    for (const auto& [id, use] : uses) {
      const uint32_t first = program_of_[use.ops.front()];
      const bool crosses =
          std::any_of(use.ops.begin(), use.ops.end(), [&](uint32_t i) { return program_of_[i] != first; });
      if (crosses || use.host) order.emplace_back(use.ops.front(), id);
    }
    std::sort(order.begin(), order.end());
    std::vector<Region> regions;
    for (const auto& [first, id] : order) place_boundary(id, uses[id], known_before_[first], regions);
  }

  void place_boundary(ValueId id, const Use& use, const Clock& known, std::vector<Region>& regions) {
    const mh_value& v = p_.values[id].view;
    Boundary b;
    b.root = id;
    b.row_stride_bytes = (uint64_t{v.groups - 1} * v.group_stride + v.cols) * 4;
    b.written_by.resize(out_.programs.size());
    const uint64_t bytes = align_up(b.row_stride_bytes * p_.max_rows(id), kLine);
    Region* best = nullptr;
    for (Region& r : regions) {
      bool done = r.bytes >= bytes;
      for (size_t d = 0; d < known.size(); ++d) done = done && r.last[d] <= known[d];
      if (done && (!best || r.bytes < best->bytes)) best = &r;
    }
    if (!best) {
      regions.push_back({align_up(out_.arena_bytes, kLine), bytes, {}});
      best = &regions.back();
      out_.arena_bytes = best->offset + bytes;
    }
    best->last.assign(known.size(), use.host ? kHost : kNever);
    for (const uint32_t i : use.ops) best->last[p_.ops[i].device] = std::max(best->last[p_.ops[i].device], int64_t{i});
    b.offset = best->offset;
    for (size_t prog = 0; prog < out_.programs.size(); ++prog)
      for (const CutItem& item : out_.programs[prog].items)
        if (item.what == MH_ITEM_OP &&
            std::find(use.writers.begin(), use.writers.end(), item.index) != use.writers.end())
          b.written_by[prog] = true;
    out_.boundaries.push_back(std::move(b));
  }

  const PlacedProgram& p_;
  const std::vector<ValueId>& captured_;
  CutResult out_;
  uint32_t fences_ = 0;
  std::vector<std::vector<uint32_t>> needs_;  // by op: writers on other devices to wait for
  std::vector<uint32_t> fence_of_;            // by op: the fence raised after it
  std::vector<uint32_t> current_;             // by device: its open program
  std::vector<Clock> knowledge_;              // by device
  std::map<uint32_t, Clock> sent_;            // by op with a fence: what a waiter learns
  std::vector<Clock> known_before_;           // by op
  std::vector<uint32_t> program_of_;          // by op
};

}  // namespace

int32_t CutResult::boundary_of(ValueId root) const {
  for (size_t i = 0; i < boundaries.size(); ++i)
    if (boundaries[i].root == root) return static_cast<int32_t>(i);
  return -1;
}

CutResult cut_program(const PlacedProgram& program, const std::vector<ValueId>& captured) {
  return Cutter(program, captured).run();
}

ProgramDescription::ProgramDescription(const PlacedProgram& program, const CutResult& cut, size_t index,
                                       std::vector<OpDescription>& descriptions, const ProgramBinding& binding) {
  const CutProgram& part = cut.programs[index];
  std::map<ValueId, uint32_t> local;  // global value -> its number here
  const auto number = [&](ValueId id, const auto& self) -> uint32_t {
    if (const auto it = local.find(id); it != local.end()) return it->second;
    const ValueId root = program.values[id].view.root;
    const uint32_t local_root = root == id ? static_cast<uint32_t>(values_.size()) : self(root, self);
    const auto at = static_cast<uint32_t>(values_.size());
    mh_value v = program.values[id].view;
    v.root = local_root;
    values_.push_back(v);
    if (root == id) {
      if (const int32_t b = cut.boundary_of(root); b >= 0) {
        const Boundary& boundary = cut.boundaries[static_cast<size_t>(b)];
        bindings_.push_back(
            {at, !boundary.written_by[index], binding.arena, boundary.offset, boundary.row_stride_bytes});
      }
    }
    return local[id] = at;
  };
  const auto numbers = [&](const std::vector<ValueId>& ids) {
    ids_.emplace_back();
    for (const ValueId id : ids) ids_.back().push_back(number(id, number));
  };
  ids_.reserve(part.items.size() * 2);  // items point into it
  std::map<uint32_t, uint32_t> fences;
  for (const CutItem& item : part.items) {
    mh_item to{};
    to.what = item.what;
    if (item.what == MH_ITEM_OP) {
      const PlacedOp& placed = program.ops[item.index];
      numbers(placed.op.inputs), numbers(placed.op.outputs);
      const std::vector<uint32_t>&in = ids_[ids_.size() - 2], &out = ids_.back();
      to.desc = &descriptions[item.index].describe(false);
      to.op = binding.ops ? (*binding.ops)[item.index] : nullptr;
      to.inputs = in.data(), to.input_count = static_cast<uint32_t>(in.size());
      to.outputs = out.data(), to.output_count = static_cast<uint32_t>(out.size());
    } else {
      const auto [it, fresh] = fences.emplace(item.index, static_cast<uint32_t>(fences_.size()));
      to.fence = it->second;
      if (fresh) {
        const uint64_t offset = item.index * kLine;
        fences_.push_back({binding.arena, offset,
                           binding.arena_host ? reinterpret_cast<uint64_t*>(binding.arena_host + offset) : nullptr});
      }
    }
    items_.push_back(to);
  }
  const auto count = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
  desc_.size = sizeof desc_;
  desc_.max_tokens = program.limits.max_tokens, desc_.max_outputs = program.limits.max_outputs;
  desc_.max_sequences = program.limits.max_sequences;
  desc_.value_count = count(values_), desc_.values = values_.data();
  desc_.item_count = count(items_), desc_.items = items_.data();
  desc_.fence_count = count(fences_), desc_.fences = fences_.data();
  desc_.binding_count = count(bindings_), desc_.bindings = bindings_.data();
  desc_.step_buffer = binding.arena, desc_.step_offset = cut.step.offset;
}

}  // namespace moehost

// Puts every op on a device: slices weights, makes caches, sums partial results.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/format/dtype.h"
#include "core/placement/placed.h"

namespace moehost {
namespace {

class Placer {
 public:
  Placer(const Program& program, const ResolvedMap& map, const StepLimits& limits, KvDtype kv_dtype,
         const OpenDevice& open, std::vector<std::string>* notes)
      : program_(program), map_(map), kv_dtype_(kv_dtype), open_(open), notes_(notes) {
    out_.values = program.values;
    out_.limits = limits;
    out_.logits = program.logits;
  }

  Result<PlacedProgram> run() {
    for (const ProgramOp& op : program_.ops) {
      if (op.part == Part::kExperts) {
        MOEHOST_RETURN_IF_ERROR(place_experts(op));
        continue;
      }
      PlacedOp placed;
      placed.op = op;
      MOEHOST_ASSIGN(placed.device, device_index(device_of(op)));
      if (op.kind == MH_OP_ATTENTION) place_kv(placed);
      out_.ops.push_back(std::move(placed));
    }
    for (PlacedKv& kv : out_.kvs)
      if (!out_.devices[kv.device]->has_kv())
        return fail(Code::kUnavailable, out_.devices[kv.device]->name(), " has no KV cache: it cannot run attention");
    return std::move(out_);
  }

 private:
  const DeviceName& device_of(const ProgramOp& op) const {
    if (op.layer < 0) return map_.embedding;
    if (op.layer >= static_cast<int32_t>(program_.layers)) return map_.head;
    const LayerMap& layer = map_.layers[static_cast<size_t>(op.layer)];
    return op.kind == MH_OP_ATTENTION ? layer.attention : layer.dense;
  }

  Result<uint32_t> device_index(const DeviceName& name) {
    const std::string text = name.text();
    for (uint32_t i = 0; i < out_.devices.size(); ++i)
      if (names_[i] == text) return i;
    MOEHOST_ASSIGN(std::shared_ptr<Device> device, open_(name));
    out_.devices.push_back(std::move(device));
    names_.push_back(text);
    return static_cast<uint32_t>(out_.devices.size() - 1);
  }

  // One cache a device and group; the layer counts within it.
  void place_kv(PlacedOp& placed) {
    const KvGroup& group = program_.kv_groups[placed.op.kv_group];
    const auto it = std::find_if(out_.kvs.begin(), out_.kvs.end(), [&](const PlacedKv& kv) {
      return kv.device == placed.device && kv.desc.group == placed.op.kv_group;
    });
    placed.kv = static_cast<uint32_t>(it - out_.kvs.begin());
    if (it == out_.kvs.end()) {
      constexpr uint32_t kFormats[] = {MH_FORMAT_F32, MH_FORMAT_F16, MH_FORMAT_BF16};
      mh_kv_desc d{};
      d.size = sizeof d, d.kind = MH_KV_PAGED, d.group = placed.op.kv_group;
      d.kv_heads = group.kv_heads, d.k_cols = group.k_cols, d.v_cols = group.v_cols;
      d.v_is_prefix_of_k = group.v_is_prefix_of_k;
      d.k_format = d.v_format = kFormats[static_cast<int>(kv_dtype_)];
      d.block_tokens = out_.limits.block_tokens;
      d.block_count = out_.limits.blocks_per_sequence() * out_.limits.max_sequences;
      out_.kvs.push_back({placed.device, d});
    }
    placed.op.kv_layer = out_.kvs[*placed.kv].desc.layers++;
  }

  // The experts of one layer, over one device or several.
  Status place_experts(const ProgramOp& op) {
    const std::vector<ExpertPart>& parts = map_.layers[static_cast<size_t>(op.layer)].experts;
    MOEHOST_ASSIGN(const uint64_t column_align, slice_align(op, parts));
    std::vector<ValueId> partials;
    for (const ExpertPart& part : parts) {
      PlacedOp placed;
      placed.op = op;
      placed.expert_ids = part.experts;
      MOEHOST_ASSIGN(placed.device, device_index(part.device));
      MOEHOST_RETURN_IF_ERROR(slice(placed.op, part, column_align));
      if (parts.size() > 1) {
        const auto id = static_cast<ValueId>(out_.values.size());
        Value partial = out_.values[op.outputs[0]];
        partial.view.root = id;
        out_.values.push_back(std::move(partial));
        placed.op.outputs = {id};
      }
      partials.push_back(placed.op.outputs[0]);
      out_.ops.push_back(std::move(placed));
    }
    if (parts.size() < 2) return {};
    PlacedOp sum;
    sum.op.name = op.name + ".sum";
    sum.op.kind = MH_OP_ADD;
    sum.op.layer = op.layer;
    sum.op.inputs = partials;
    sum.op.outputs = op.outputs;
    MOEHOST_ASSIGN(sum.device, device_index(map_.layers[static_cast<size_t>(op.layer)].dense));
    out_.ops.push_back(std::move(sum));
    return {};
  }

  // What columns must be a multiple of for every device that takes a slice.
  Result<uint64_t> slice_align(const ProgramOp& op, const std::vector<ExpertPart>& parts) {
    uint64_t align = find_format(op.weights[MH_DOWN]->format)->elements;
    for (const ExpertPart& part : parts) {
      if (part.column_lo == 0 && part.column_hi == 1) continue;
      PlacedOp whole;
      whole.op = op;
      whole.expert_ids = part.experts;
      MOEHOST_ASSIGN(whole.device, device_index(part.device));
      MOEHOST_RETURN_IF_ERROR(slice(whole.op, {part.device, part.experts, 0, 1}, 1));
      OpDescription description(out_, whole);
      const auto cost = out_.devices[whole.device]->op_cost(description.describe(false));
      if (!cost.ok()) return cost.status().in(op.name);
      if (cost->slice_align == 0)
        return fail(Code::kUnavailable, names_[whole.device], " cannot take a column slice of ", op.name,
                    ": use split: experts or split: layers");
      align = std::lcm(align, uint64_t{cost->slice_align});
    }
    return align;
  }

  // Keeps of the op's weights the experts and columns of the part. Moves pointers, copies nothing.
  Status slice(ProgramOp& op, const ExpertPart& part, uint64_t align) {
    const uint64_t columns = op.weights[MH_UP]->rows;
    const auto cut = [&](double fraction) {
      if (fraction <= 0) return uint64_t{0};
      if (fraction >= 1) return columns;
      return static_cast<uint64_t>(std::llround(fraction * static_cast<double>(columns) / static_cast<double>(align))) * align;
    };
    const uint64_t lo = cut(part.column_lo), hi = std::min(columns, cut(part.column_hi));
    if (lo >= hi)
      return fail(Code::kBadConfig, "the share of ", part.device.text(), " of the ", columns, " columns of ", op.name,
                  " is below ", align, ", the least that can be cut: give it more or leave it out");
    if (notes_ && hi - lo < columns && (noted_.empty() || noted_ == op.name)) {  // the layers are alike: one says it
      notes_->push_back(cat(op.name, ": ", part.device.text(), " takes columns ", lo, " to ", hi - 1, " of ", columns));
      noted_ = op.name;
    }
    for (uint32_t slot = 0; slot < op.weights.size(); ++slot) {
      if (!op.weights[slot]) continue;
      Weight& w = *op.weights[slot];
      const FormatInfo& format = *find_format(w.format);
      uint64_t skip_bytes = 0;
      if (slot == MH_GATE || slot == MH_UP) {
        w.rows = hi - lo, skip_bytes = lo * w.row_stride_bytes;
      } else if (slot == MH_DOWN || slot == MH_GATE_BIAS || slot == MH_UP_BIAS) {
        w.cols = hi - lo, skip_bytes = lo / format.elements * format.bytes;
      } else if (lo > 0) {  // the bias of the sum belongs to the first slice alone
        op.weights[slot].reset();
        continue;
      }
      std::vector<const std::byte*> slabs;
      for (const int32_t id : part.experts) slabs.push_back(w.slabs[static_cast<size_t>(id)] + skip_bytes);
      w.slabs = std::move(slabs);
      w.slab_count = static_cast<uint32_t>(part.experts.size());
    }
    return {};
  }

  const Program& program_;
  const ResolvedMap& map_;
  KvDtype kv_dtype_;
  const OpenDevice& open_;
  std::vector<std::string>* notes_;
  std::string noted_;
  PlacedProgram out_;
  std::vector<std::string> names_;
};

}  // namespace

Result<PlacedProgram> place_program(const Program& program, const ResolvedMap& map, const StepLimits& limits,
                                    KvDtype kv_dtype, const OpenDevice& open, std::vector<std::string>* notes) {
  return Placer(program, map, limits, kv_dtype, open, notes).run();
}

}  // namespace moehost

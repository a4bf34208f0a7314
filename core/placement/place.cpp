// Puts every op on a device: slices weights, makes caches, sums partial results.
#include <algorithm>
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
    MOEHOST_ASSIGN(const std::vector<Columns> columns, cut_columns(op, parts));
    std::vector<ValueId> partials;
    for (size_t i = 0; i < parts.size(); ++i) {
      PlacedOp placed;
      MOEHOST_ASSIGN(placed.device, device_index(parts[i].device));
      placed.op = op;
      placed.expert_ids = parts[i].experts;
      slice(placed.op, parts[i].experts, columns[i]);
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

  struct Columns {
    uint64_t lo, hi;
  };

  // The columns of expert_dim that every part takes: all, or its share in units that every device can slice.
  Result<std::vector<Columns>> cut_columns(const ProgramOp& op, const std::vector<ExpertPart>& parts) {
    const uint64_t columns = op.weights[MH_UP]->rows;
    uint64_t align = find_format(op.weights[MH_DOWN]->format)->elements;
    std::vector<double> shares;
    std::string names;
    for (const ExpertPart& part : parts) {
      if (part.column_share == 0) continue;
      MOEHOST_ASSIGN(const uint64_t device_align, slice_align(op, part));
      align = std::lcm(align, device_align);
      shares.push_back(part.column_share);
      names += cat(names.empty() ? "" : ", ", part.device.text());
    }
    const std::vector<uint32_t> units = apportion(static_cast<uint32_t>(columns / align), shares);
    if (units.size() < shares.size())
      return fail(Code::kBadConfig, "the ", columns, " columns of ", op.name, " can be cut only in units of ", align,
                  ": too few for ", shares.size(), " devices (", names, ")");
    std::vector<Columns> out;
    uint64_t at = 0;
    for (size_t i = 0, cut = 0; i < parts.size(); ++i) {
      if (parts[i].column_share == 0) {
        out.push_back({0, columns});
        continue;
      }
      const uint64_t lo = at;
      at = cut + 1 == units.size() ? columns : at + units[cut] * align;
      ++cut;
      out.push_back({lo, at});
      if (notes_ && (noted_.empty() || noted_ == op.name)) {  // the layers are alike: one says it
        notes_->push_back(
            cat(op.name, ": ", parts[i].device.text(), " takes columns ", lo, " to ", at - 1, " of ", columns));
        noted_ = op.name;
      }
    }
    return out;
  }

  // What a cut of the columns must be a multiple of on the part's device.
  Result<uint64_t> slice_align(const ProgramOp& op, const ExpertPart& part) {
    PlacedOp whole;
    MOEHOST_ASSIGN(whole.device, device_index(part.device));
    whole.op = op;
    whole.expert_ids = part.experts;
    slice(whole.op, part.experts, {0, op.weights[MH_UP]->rows});
    OpDescription description(out_, whole);
    const auto cost = out_.devices[whole.device]->op_cost(description.describe(false));
    if (!cost.ok()) return cost.status().in(op.name);
    if (cost->slice_align == 0)
      return fail(Code::kUnavailable, names_[whole.device], " cannot take a column slice of ", op.name,
                  ": use split: experts or split: layers");
    return uint64_t{cost->slice_align};
  }

  // Keeps of the op's weights these experts and columns. Moves pointers, copies nothing.
  static void slice(ProgramOp& op, const std::vector<int32_t>& experts, const Columns& columns) {
    const auto [lo, hi] = columns;
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
      for (const int32_t id : experts) slabs.push_back(w.slabs[static_cast<size_t>(id)] + skip_bytes);
      w.slabs = std::move(slabs);
      w.slab_count = static_cast<uint32_t>(experts.size());
    }
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

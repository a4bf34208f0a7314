// Resolves the operator's device map: shares to layers, experts and columns; then rules, later ones winning.
#include "core/placement/device_map.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace moehost {
namespace {

std::vector<double> weights_of(const Shares& shares) {
  std::vector<double> out;
  for (const auto& share : shares) out.push_back(share.second);
  return out;
}

// The share that unit i of `total` belongs to, for every unit.
Result<std::vector<size_t>> owners(const Shares& shares, uint32_t total, const char* what, const char* unit) {
  const std::vector<uint32_t> counts = apportion(total, weights_of(shares));
  if (counts.empty())
    return fail(Code::kBadConfig, what, " names ", shares.size(), " devices, but there are only ", total, " ", unit,
                ": every device needs at least one");
  std::vector<size_t> out;
  for (size_t s = 0; s < counts.size(); ++s) out.insert(out.end(), counts[s], s);
  return out;
}

constexpr size_t kCut = SIZE_MAX;  // an expert that every share computes a slice of

// Parts of one layer from the owner of every expert: an index into devices, or kCut.
std::vector<ExpertPart> make_parts(const std::vector<size_t>& owner, const std::vector<DeviceName>& devices,
                                   const Shares& shares) {
  std::vector<ExpertPart> parts;
  std::vector<int32_t> cut;
  std::vector<std::vector<int32_t>> whole(devices.size());
  for (size_t e = 0; e < owner.size(); ++e)
    (owner[e] == kCut ? cut : whole[owner[e]]).push_back(static_cast<int32_t>(e));
  for (size_t d = 0; d < devices.size(); ++d)
    if (!whole[d].empty()) parts.push_back({devices[d], whole[d], 0});
  if (cut.empty()) return parts;
  for (const auto& [device, weight] : shares) parts.push_back({device, cut, weight});
  return parts;
}

Result<std::vector<std::vector<ExpertPart>>> resolve_experts(const ExpertMap& map, const Program& program,
                                                             const std::vector<uint32_t>& moe_layers) {
  std::vector<DeviceName> devices;
  const auto index_of = [&](const DeviceName& name) {
    const auto it = std::find(devices.begin(), devices.end(), name);
    if (it != devices.end()) return static_cast<size_t>(it - devices.begin());
    devices.push_back(name);
    return devices.size() - 1;
  };
  const Shares shares = map.shares.empty() ? Shares{{*parse_device("cpu"), 1}} : map.shares;
  for (const auto& share : shares) index_of(share.first);

  std::vector<std::vector<size_t>> owner(program.layers);  // by layer and expert
  std::vector<size_t> by_unit;
  if (map.split == Split::kLayers) {
    MOEHOST_ASSIGN(by_unit,
                   owners(shares, static_cast<uint32_t>(moe_layers.size()), "device_map.expert_layers", "MoE layers"));
  } else if (map.split == Split::kExperts) {
    MOEHOST_ASSIGN(by_unit, owners(shares, program.experts, "device_map.expert_layers", "experts"));
  }
  for (size_t i = 0; i < moe_layers.size(); ++i) {
    std::vector<size_t>& layer = owner[moe_layers[i]];
    if (map.split == Split::kLayers) layer.assign(program.experts, by_unit[i]);
    if (map.split == Split::kExperts) layer = by_unit;
    if (map.split == Split::kColumns) layer.assign(program.experts, shares.size() == 1 ? 0 : kCut);
  }
  for (const ExpertRule& rule : map.rules) {
    bool matched = false;
    const size_t device = index_of(rule.device);
    for (uint32_t l = 0; l < program.layers; ++l) {
      if (rule.layers && (l < rule.layers->first || l > rule.layers->last)) continue;
      for (uint32_t e = 0; e < owner[l].size(); ++e) {
        if (rule.experts && (e < rule.experts->first || e > rule.experts->last)) continue;
        owner[l][e] = device, matched = true;
      }
    }
    if (!matched)
      return fail(Code::kBadConfig, rule.where.empty() ? "" : rule.where + ": ",
                  "this rule matches no expert: the model has ", program.layers, " layers (MoE layers ",
                  moe_layers.front(), " to ", moe_layers.back(), ") and ", program.experts, " experts, counted from 0");
  }
  std::vector<std::vector<ExpertPart>> out(program.layers);
  for (uint32_t l : moe_layers) out[l] = make_parts(owner[l], devices, shares);
  return out;
}

}  // namespace

std::vector<uint32_t> apportion(uint32_t total, const std::vector<double>& shares) {
  if (shares.empty() || total < shares.size()) return {};
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<uint32_t> out(shares.size(), 1);
  uint32_t left = total - static_cast<uint32_t>(shares.size());
  while (left-- > 0) {  // the next unit goes where most is missing; ties to the first
    size_t best = 0;
    double most = -1e300;
    for (size_t i = 0; i < shares.size(); ++i) {
      const double missing = shares[i] / sum * total - out[i];
      if (missing > most) most = missing, best = i;
    }
    ++out[best];
  }
  return out;
}

Result<ResolvedMap> resolve_device_map(const DeviceMap& map, const Program& program, const DeviceName& default_dense) {
  ResolvedMap out;
  out.layers.resize(program.layers);
  const Shares dense = map.non_expert_layers.empty() ? Shares{{default_dense, 1}} : map.non_expert_layers;
  MOEHOST_ASSIGN(const auto dense_of, owners(dense, program.layers, "device_map.non_expert_layers", "layers"));
  std::vector<uint32_t> moe_layers;
  for (const ProgramOp& op : program.ops)
    if (op.part == Part::kExperts) moe_layers.push_back(static_cast<uint32_t>(op.layer));
  std::vector<std::vector<ExpertPart>> experts(program.layers);
  if (!moe_layers.empty()) {
    MOEHOST_ASSIGN(experts, resolve_experts(map.expert_layers, program, moe_layers));
  } else if (!map.expert_layers.rules.empty()) {
    return fail(Code::kBadConfig, "device_map.expert_layers has rules, but the model has no experts");
  } else if (!map.expert_layers.shares.empty()) {
    out.notes.push_back("the model has no experts: device_map.expert_layers is not used");
  }
  for (uint32_t l = 0; l < program.layers; ++l) {
    LayerMap& layer = out.layers[l];
    layer.dense = dense[dense_of[l]].first;
    layer.attention = map.kv_cache.value_or(layer.dense);
    layer.experts = std::move(experts[l]);
  }
  out.embedding = out.layers.front().dense;
  out.head = out.layers.back().dense;
  return out;
}

}  // namespace moehost

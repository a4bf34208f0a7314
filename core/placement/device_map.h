// Which device computes which part of which layer: the operator's map, resolved against a model. Floor 4.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/model/program.h"

namespace moehost {

// A share of one layer's routed experts on one device: some experts, whole or a slice of the columns of each.
struct ExpertPart {
  DeviceName device;
  std::vector<int32_t> experts;  // global ids, ascending
  double column_share = 0;       // 0: whole experts; else this part's weight in the cut of expert_dim, in listed order
};

struct LayerMap {
  DeviceName dense;                 // attention, norms, router, shared experts
  DeviceName attention;             // the attention op itself, where the cache is
  std::vector<ExpertPart> experts;  // in listed order; empty in a dense layer
};

struct ResolvedMap {
  std::vector<LayerMap> layers;
  DeviceName embedding, head;
  std::vector<std::string> notes;  // ratios reached by rounding
};

// default_dense: where attention goes when the map does not say. Errors: kBadConfig naming the entry: more devices than
// layers or experts to share, a rule that matches nothing.
Result<ResolvedMap> resolve_device_map(const DeviceMap& map, const Program& program, const DeviceName& default_dense);

// `total` units in the ratio of the shares, at least one each, by largest remainder. Empty when total < shares.
std::vector<uint32_t> apportion(uint32_t total, const std::vector<double>& shares);

}  // namespace moehost

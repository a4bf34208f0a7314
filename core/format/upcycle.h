// A dense model file turned into a Mixture of Experts that gives the same answers. Floor 2.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace moehost {

enum class UpcycleRouter { kAuto, kGrouped, kNoise };  // kAuto: grouped where it is exact
struct UpcycleOptions {
  uint32_t num_experts = 4, experts_per_token = 2;
  UpcycleRouter router = UpcycleRouter::kAuto;
  double noise = 0.01;
};
// Every expert is a byte copy of the FFN; the router has small fixed values whose rows are equal within groups of
// experts_per_token experts, so that the chosen weights are exactly 1/experts_per_token. Errors: kBadModel (input is
// not a dense `llama` GGUF), kUsage (options), kNoResource (disk).
Status upcycle_gguf(const std::string& input, const std::string& output, const UpcycleOptions& options);

}  // namespace moehost

// A dense model file turned into a Mixture of Experts that gives the same answers. Floor 2.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace moehost {

// Which experts share a router row: those of a group, none, or (kAuto) those of a group where that is exact.
enum class UpcycleRouter { kAuto, kGrouped, kNoise };
// noise: the largest magnitude of a router weight.
struct UpcycleOptions {
  uint32_t num_experts = 4, experts_per_token = 2;
  UpcycleRouter router = UpcycleRouter::kAuto;
  double noise = 0.01;
};
// Every expert is a byte copy of the FFN; the router has small fixed values whose rows are equal within groups of
// experts_per_token experts, so that the chosen weights are exactly 1/experts_per_token. Errors: kBadModel (input is
// not a dense `llama` GGUF), kUsage (options), kNoResource (disk). Streams: memory does not
// grow with the model. [any thread]
Status upcycle_gguf(const std::string& input, const std::string& output, const UpcycleOptions& options);

}  // namespace moehost

// Sampling on the command line: --temperature and its like over the defaults of config and model. Floor 6.
#pragma once
#include <vector>

#include "apps/moehost/command_line.h"
#include "core/engine/engine.h"

namespace moehost {

// --max-tokens, --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --seed.
std::vector<OptionSpec> sampling_options();
// What the line says over the defaults, checked (kUsage).
Result<SamplingParams> sampling_from(const CommandLine& line, const SamplingParams& defaults);
Result<uint32_t> max_tokens_from(const CommandLine& line, const Config& config);

// The defaults of a request that says nothing: of config and model, with a fresh seed where none is set.
SamplingParams fresh_sampling(const Config& config, const Engine& engine);
constexpr uint32_t kDefaultMaxTokens = 256;
constexpr uint32_t kMostMaxTokens = 1u << 30;

}  // namespace moehost

// The options behind sampling_options.h. Ranges are checked by the sampler, which knows them.
#include "apps/moehost/sampling_options.h"

#include <limits>
#include <random>

namespace moehost {

std::vector<OptionSpec> sampling_options() {
  return {{"max-tokens", 'n', "COUNT", "tokens to generate at most (256)"},
          {"temperature", 't', "X", "0: always the most likely token"},
          {"top-k", 0, "COUNT", "of the K most likely tokens only; 0: all"},
          {"top-p", 0, "X", "of the most likely tokens that sum up to X only"},
          {"min-p", 0, "X", "of tokens at least X times as likely as the best only"},
          {"repetition-penalty", 0, "X", "above 1: seen tokens become less likely"},
          {"seed", 0, "NUMBER", "same seed, same answer; default: a new one every time"}};
}

SamplingParams fresh_sampling(const Config& config, const Engine& engine) {
  SamplingParams params = engine.default_sampling();
  if (!config.sampling.seed) {
    std::random_device device;
    params.seed = static_cast<uint64_t>(device()) << 32 | device();
  }
  return params;
}

Result<SamplingParams> sampling_from(const CommandLine& line, const SamplingParams& defaults) {
  SamplingParams params = defaults;
  const std::pair<const char*, double*> numbers[] = {{"temperature", &params.temperature},
                                                     {"top-p", &params.top_p},
                                                     {"min-p", &params.min_p},
                                                     {"repetition-penalty", &params.repetition_penalty}};
  for (const auto& [option, into] : numbers) {
    MOEHOST_ASSIGN(const auto value, line.number(option));
    if (value) *into = *value;
  }
  MOEHOST_ASSIGN(const auto top_k, line.integer("top-k", 0, std::numeric_limits<uint32_t>::max()));
  if (top_k) params.top_k = static_cast<uint32_t>(*top_k);
  MOEHOST_ASSIGN(const auto seed, line.integer("seed", 0, std::numeric_limits<uint64_t>::max()));
  if (seed) params.seed = *seed;
  MOEHOST_RETURN_IF_ERROR(check_sampling(params));
  return params;
}

Result<uint32_t> max_tokens_from(const CommandLine& line, const Config& config) {
  MOEHOST_ASSIGN(const auto given, line.integer("max-tokens", 1, kMostMaxTokens));
  return static_cast<uint32_t>(given.value_or(config.sampling.max_tokens.value_or(kDefaultMaxTokens)));
}

}  // namespace moehost

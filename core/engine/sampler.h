// Chooses the next token from logits. Floor 5.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/text/tokenizer.h"

namespace moehost {

// temperature 0 is greedy: the highest logit, ties to the lowest id, and nothing below applies but the penalty.
// Order otherwise: repetition penalty, temperature, top_k, top_p, min_p, draw.
struct SamplingParams {
  double temperature = 0.7;
  uint32_t top_k = 40;               // 0: all
  double top_p = 0.95, min_p = 0.0;  // min_p: relative to the most likely token
  double repetition_penalty = 1.0;   // logits of seen tokens: divided where positive, multiplied where negative
  uint64_t seed = 0;                 // same seed, prompt and logits: same tokens
};
// kUsage naming the field, the value and the range. NaN fails.
Status check_sampling(const SamplingParams& params);

// One sequence's source of tokens: parameters and the state of its random numbers.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params) : params_(params), state_(params.seed) {}
  // history: prompt and generated tokens so far (for the penalty). logits: [vocab], changed in place. kInternal when no
  // logit is finite.
  Result<TokenId> sample(std::span<float> logits, std::span<const TokenId> history);

 private:
  double next_uniform();  // [0, 1)
  SamplingParams params_;
  uint64_t state_;
  std::vector<uint32_t> order_;
};

}  // namespace moehost

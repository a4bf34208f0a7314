// Sampling from logits.
#include "core/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moehost {
namespace {

Status check_range(const char* name, double value, double lo, double hi) {
  if (!(value >= lo && value <= hi)) return fail(Code::kUsage, name, " is ", value, ", allowed: ", lo, " to ", hi);
  return {};
}

}  // namespace

Status check_sampling(const SamplingParams& p) {
  MOEHOST_RETURN_IF_ERROR(check_range("temperature", p.temperature, 0, 100));
  MOEHOST_RETURN_IF_ERROR(check_range("top_p", p.top_p, 0, 1));
  MOEHOST_RETURN_IF_ERROR(check_range("min_p", p.min_p, 0, 1));
  return check_range("repetition_penalty", p.repetition_penalty, 0.01, 100);
}

double Sampler::next_uniform() {  // splitmix64
  uint64_t x = state_ += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

Result<TokenId> Sampler::sample(std::span<float> logits, std::span<const TokenId> history) {
  if (params_.repetition_penalty != 1) {
    std::vector<TokenId> seen(history.begin(), history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const auto penalty = static_cast<float>(params_.repetition_penalty);
    for (const TokenId id : seen) {
      if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
      float& l = logits[static_cast<size_t>(id)];
      l = l > 0 ? l / penalty : l * penalty;
    }
  }
  for (float& l : logits)
    if (std::isnan(l)) return fail(Code::kInternal, "the model computed NaN: the weights or the device are broken");
  const auto best = std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(*best)) return fail(Code::kInternal, "the model computed no finite logit");
  if (params_.temperature == 0) return static_cast<TokenId>(best - logits.begin());

  // Candidates from the most likely down; ties to the lowest id.
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const auto more_likely = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  size_t count = params_.top_k ? std::min<size_t>(params_.top_k, order_.size()) : order_.size();
  std::partial_sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count), order_.end(), more_likely);
  std::vector<double> p(count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += p[i] = std::exp((double{logits[order_[i]]} - *best) / params_.temperature);
  double kept = 0;
  for (size_t i = 0; i < count; ++i) {  // top_p: the fewest that reach it; min_p: all not far below the first
    if (i > 0 && (kept >= params_.top_p * sum || p[i] < params_.min_p * p[0])) {
      count = i;
      break;
    }
    kept += p[i];
  }
  double point = next_uniform() * kept;
  for (size_t i = 0; i < count; ++i)
    if ((point -= p[i]) < 0) return static_cast<TokenId>(order_[i]);
  return static_cast<TokenId>(order_[count - 1]);
}

}  // namespace moehost

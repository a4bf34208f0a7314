// Routing: which experts a token goes to, and with which weights. See mh_route_params.
#include <cmath>

#include "plugins/cpu/ops.h"

namespace mh_cpu {
namespace {

constexpr float kTaken = -INFINITY;

struct ThreadScratch {
  ThreadScratch(Arena& arena, uint32_t experts, uint32_t groups)
      : score(arena.array<float>(experts)),
        choice(arena.array<float>(experts)),
        copy(arena.array<float>(experts)),
        group(arena.array<float>(groups)) {}
  float *score, *choice, *copy, *group;
};

// The index of the largest value, the lowest of equals. A NaN is never larger; of nothing but taken values the first.
uint32_t take_best(float* values, uint32_t count) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  values[best] = kTaken;
  return best;
}

void fill_scores(const KernelTable& kernels, uint32_t kind, const float* logits, uint32_t count, float* score) {
  std::memcpy(score, logits, count * sizeof(float));
  switch (kind) {
    case MH_SCORE_SIGMOID:
      return kernels.activate(kSigmoidTimes, score, nullptr, count, 0, 0, score);
    case MH_SCORE_SQRT_SOFTPLUS:
      for (uint32_t e = 0; e < count; ++e)
        score[e] = std::sqrt(std::max(score[e], 0.0f) + std::log1p(std::exp(-std::fabs(score[e]))));
      return;
    case MH_SCORE_SOFTMAX: {
      const float sum = kernels.exp_row(score, count, kernels.max_row(score, count));
      for (uint32_t e = 0; e < count; ++e) score[e] /= sum;
      return;
    }
    default:
      return;  // identity
  }
}

// Takes out the experts of all but the groups_kept groups whose group_top best have the largest sum.
void keep_groups(const mh_route_params& p, uint32_t experts, const ThreadScratch& s) {
  const uint32_t size = experts / p.groups;
  std::memcpy(s.copy, s.choice, experts * sizeof(float));
  for (uint32_t g = 0; g < p.groups; ++g) {
    s.group[g] = 0;
    for (uint32_t i = 0; i < p.group_top; ++i) s.group[g] += s.choice[g * size + take_best(s.copy + g * size, size)];
  }
  for (uint32_t i = 0; i < p.groups_kept; ++i) take_best(s.group, p.groups);
  for (uint32_t e = 0; e < experts; ++e)
    if (s.group[e / size] != kTaken) s.choice[e] = kTaken;
}

// Weights of the chosen, in place: their scores before.
void weigh(const KernelTable& kernels, const mh_route_params& p, float* weights) {
  const uint32_t chosen = p.experts_per_token;
  float divisor = 1;
  if (p.softmax_chosen) {
    divisor = kernels.exp_row(weights, chosen, kernels.max_row(weights, chosen));
  } else if (p.renormalise) {
    divisor = 1e-20f;  // as the original implementations have it
    for (uint32_t k = 0; k < chosen; ++k) divisor += weights[k];
  }
  for (uint32_t k = 0; k < chosen; ++k) weights[k] = weights[k] / divisor * p.scale;
}

}  // namespace

uint64_t route_scratch(const Cpu& cpu, const mh_op_desc& desc) {
  Arena arena(nullptr);
  ThreadScratch(arena, desc.in_cols[0], std::max(1u, static_cast<const mh_route_params*>(desc.params)->groups));
  return arena.bytes() * cpu.pool.threads();
}

// logits [T, E] -> ids [T, K] in falling order of choice, weights [T, K].
void route(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const auto& p = op.params<mh_route_params>();
  const Vector& bias = op.vector(0);
  const View &logits = call.in[0], &ids = call.out[0], &weights = call.out[1];
  const uint32_t experts = logits.cols;
  const uint64_t scratch_bytes = route_scratch(cpu, op.desc()) / cpu.pool.threads();
  for_rows(cpu, logits.rows, uint64_t{experts} * (p.experts_per_token + 8), [&](uint32_t t, uint32_t thread) {
    Arena arena(call.scratch + thread * scratch_bytes);
    const ThreadScratch s(arena, experts, std::max(1u, p.groups));
    fill_scores(cpu.kernels, p.score, logits.row(t), experts, s.score);
    for (uint32_t e = 0; e < experts; ++e) s.choice[e] = s.score[e] + (bias ? bias.slab(0)[e] : 0);
    if (p.groups > 1) keep_groups(p, experts, s);
    for (uint32_t k = 0; k < p.experts_per_token; ++k) {
      const uint32_t id = take_best(s.choice, experts);
      ids.row<int32_t>(t)[k] = static_cast<int32_t>(id);
      weights.row(t)[k] = s.score[id];
    }
    weigh(cpu.kernels, p, weights.row(t));
  });
}

}  // namespace mh_cpu

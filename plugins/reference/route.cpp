// Routing of the reference: which experts a token goes to, and with which weights. See mh_route_params.
#include "ops.h"

namespace reference {
namespace {

struct Buffers {
  double *score, *choice, *group_score;  // [E], [E], [groups]
  bool *eligible, *open_groups;          // [E], [groups]: not taken yet
  Buffers(Scratch& scratch, uint32_t experts, uint32_t groups)
      : score(scratch.take<double>(experts)),
        choice(scratch.take<double>(experts)),
        group_score(scratch.take<double>(groups)),
        eligible(scratch.take<bool>(experts)),
        open_groups(scratch.take<bool>(groups)) {}
};

// The eligible index with the largest value, the lowest of equals; it is eligible no more.
uint32_t take_best(const double* values, bool* eligible, uint32_t count) {
  uint32_t best = count;
  for (uint32_t i = 0; i < count; ++i)
    if (eligible[i] && (best == count || values[i] > values[best])) best = i;
  eligible[best] = false;
  return best;
}

void fill_scores(uint32_t kind, const float* logits, uint32_t experts, double* score) {
  for (uint32_t e = 0; e < experts; ++e) {
    const double z = logits[e];
    if (kind == MH_SCORE_SIGMOID)
      score[e] = sigmoid(z);
    else if (kind == MH_SCORE_SQRT_SOFTPLUS)
      score[e] = std::sqrt(z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z)));
    else
      score[e] = z;
  }
  if (kind != MH_SCORE_SOFTMAX) return;
  const double top = *std::max_element(score, score + experts);
  double sum = 0;
  for (uint32_t e = 0; e < experts; ++e) sum += score[e] = std::exp(score[e] - top);
  for (uint32_t e = 0; e < experts; ++e) score[e] /= sum;
}

// Keeps the experts of the groups_kept groups whose group_top best experts have the largest sum of choice values.
void keep_groups(const mh_route_params& p, uint32_t experts, const Buffers& b) {
  const uint32_t size = experts / p.groups;
  for (uint32_t g = 0; g < p.groups; ++g) {
    std::fill_n(b.eligible, size, true);
    b.group_score[g] = 0;
    for (uint32_t i = 0; i < p.group_top; ++i)
      b.group_score[g] += b.choice[g * size + take_best(b.choice + uint64_t{g} * size, b.eligible, size)];
  }
  std::fill_n(b.open_groups, p.groups, true);
  for (uint32_t i = 0; i < p.groups_kept; ++i) take_best(b.group_score, b.open_groups, p.groups);
  for (uint32_t e = 0; e < experts; ++e) b.eligible[e] = !b.open_groups[e / size];
}

// The weights of the chosen, from their scores.
void weigh(const mh_route_params& p, const double* score, const int32_t* ids, float* weights) {
  const uint32_t chosen = p.experts_per_token;
  const double top =
      score[*std::max_element(ids, ids + chosen, [&](int32_t a, int32_t b) { return score[a] < score[b]; })];
  const auto weight = [&](int32_t id) { return p.softmax_chosen ? std::exp(score[id] - top) : score[id]; };
  double sum = 0;
  for (uint32_t k = 0; k < chosen; ++k) sum += weight(ids[k]);
  const double divisor = p.softmax_chosen ? sum : p.renormalise ? sum + 1e-20 : 1;
  for (uint32_t k = 0; k < chosen; ++k) weights[k] = static_cast<float>(weight(ids[k]) / divisor * double{p.scale});
}

}  // namespace

uint64_t route_scratch(const mh_op_desc& desc) {
  Scratch scratch(nullptr);
  Buffers(scratch, desc.in_cols[0], static_cast<const mh_route_params*>(desc.params)->groups);
  return scratch.bytes();
}

// logits [T, E] -> ids [T, K] in falling order of choice, weights [T, K].
void route(const StoredOp& op, const Call& call) {
  const auto& p = op.params<mh_route_params>();
  const StoredWeight bias = op.weight(0);
  const View& logits = call.in[0];
  const uint32_t experts = logits.cols;
  Scratch scratch(call.scratch);
  const Buffers b(scratch, experts, p.groups);
  for (uint32_t t = 0; t < logits.rows; ++t) {
    fill_scores(p.score, logits.row(t), experts, b.score);
    for (uint32_t e = 0; e < experts; ++e) b.choice[e] = b.score[e] + (bias ? double{bias.floats(0, 0)[e]} : 0);
    std::fill_n(b.eligible, experts, true);
    if (p.groups > 1) keep_groups(p, experts, b);
    auto* ids = call.out[0].row<int32_t>(t);
    for (uint32_t k = 0; k < p.experts_per_token; ++k)
      ids[k] = static_cast<int32_t>(take_best(b.choice, b.eligible, experts));
    weigh(p, b.score, ids, call.out[1].row(t));
  }
}

}  // namespace reference

// What all ops under test share: descriptions, error bounds, the two functions that most of the mathematics is made of.
#include "op.h"

#include <algorithm>
#include <cmath>

namespace conform {
namespace {

constexpr double kUlp = 0x1p-23;  // of f32

// Derivative of the activation, where the error of an input becomes one of the result; by difference, since it only
// scales error bars.
double slope(const mh_activation& activation, double at) {
  constexpr double kStep = 1e-4;
  const Number up{at + kStep, 0, 0}, down{at - kStep, 0, 0};
  return std::fabs(activate(activation, up, nullptr).value - activate(activation, down, nullptr).value) / (2 * kStep);
}

double activation_value(const mh_activation& activation, double a) {
  switch (activation.kind) {
    case MH_ACT_GELU_TANH:
      return 0.5 * a * (1 + std::tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));  // sqrt(2 / pi)
    case MH_ACT_CLAMPED_SWIGLU:
      a = std::min(a, double{activation.limit});
      return a * sigmoid(activation.alpha * a);
    case MH_ACT_RELU_SQUARED:
      return a > 0 ? a * a : 0;
    default:
      return a * sigmoid(a);
  }
}

}  // namespace

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A compensated, a pairwise and a plain sum stay well below; a missing or rounded term does not.
double sum_bound(double n, double magnitude) { return (4 + std::sqrt(n)) * kUlp * magnitude; }

std::vector<Number> exact(const float* values, size_t count) {
  std::vector<Number> out(count);
  for (size_t i = 0; i < count; ++i) out[i].value = values[i];
  return out;
}

std::vector<Number> multiply(const Weight& w, uint32_t slab, const Number* x, const Weight* bias, uint32_t bias_slab) {
  const size_t cols = w.cols();
  double largest = 0;
  for (size_t c = 0; c < cols; ++c) largest = std::max(largest, std::fabs(x[c].value));
  // A block of activations becomes integers up to 127: each is off by up to half a step, uniformly.
  const double rounding = w.is_block() ? largest / 254 / std::sqrt(3) : 0;
  std::vector<Number> y(w.rows());
  for (size_t r = 0; r < y.size(); ++r) {
    const float* row = w.row(slab, r);
    double sum = 0, magnitude = 0, bound = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double weight = row[c], product = weight * x[c].value;
      sum += product;
      magnitude += std::fabs(product);
      bound += std::fabs(weight) * x[c].bound;
      variance += weight * weight * (x[c].noise * x[c].noise + rounding * rounding);
    }
    if (bias) {
      sum += bias->row(bias_slab, 0)[r];
      magnitude += std::fabs(bias->row(bias_slab, 0)[r]);
    }
    y[r] = {sum, bound + sum_bound(static_cast<double>(cols), magnitude), std::sqrt(variance)};
  }
  return y;
}

Number activate(const mh_activation& activation, const Number& a, const Number* b) {
  Number y{activation_value(activation, a.value), 0, 0};
  if (a.bound > 0 || a.noise > 0) {
    const double s = slope(activation, a.value);
    y.bound = s * a.bound, y.noise = s * a.noise;
  }
  // exp and tanh in f32 come within a few units of the last place, relative to the argument they scale.
  y.bound += 16 * kUlp * (std::fabs(a.value) + std::fabs(y.value));
  if (!b) return y;
  double factor = b->value;
  if (activation.kind == MH_ACT_CLAMPED_SWIGLU)
    factor = std::clamp(factor, -double{activation.limit}, double{activation.limit}) + 1;
  return {y.value * factor,
          std::fabs(factor) * y.bound + std::fabs(y.value) * (b->bound + 4 * kUlp * std::fabs(factor)),
          std::hypot(factor * y.noise, y.value * b->noise)};
}

Weight* Op::add_weight(std::unique_ptr<Weight> weight) {
  weights_.push_back(std::move(weight));
  return weights_.back().get();
}

void Op::scrub_weights() {
  for (auto& weight : weights_)
    if (weight) weight->scrub();
}

mh_op_desc Op::describe(bool with_data, const Limits& limits) {
  mh_op_desc desc{};
  desc.size = sizeof desc, desc.kind = kind, desc.flags = flags;
  desc.max_rows = outputs[0].rows == MH_ROWS_OUTPUTS ? limits.outputs : limits.tokens;
  desc.in_groups = inputs.empty() ? 1 : inputs[0].groups;
  const size_t described = kind == MH_OP_ADD ? 1 : std::min(inputs.size(), std::size(desc.in_cols));
  for (size_t i = 0; i < described; ++i) desc.in_cols[i] = inputs[i].cols;
  desc.out_groups = outputs[0].groups;
  for (size_t i = 0; i < outputs.size(); ++i) desc.out_cols[i] = outputs[i].cols;
  auto& list = weight_list_[with_data];
  list.clear();
  for (const auto& weight : weights_)
    list.push_back(!weight ? nullptr : with_data ? &weight->loaded() : &weight->described());
  desc.weight_count = static_cast<uint32_t>(list.size()), desc.weights = list.data();
  desc.params = params(with_data);
  return desc;
}

Step Op::next_step(Random& random, uint32_t rows) {
  Step step = plain_step(rows);
  for (int32_t& id : step.token_ids) id = static_cast<int32_t>(random.below(kVocabulary));
  return step;
}

std::vector<Matrix> Op::fill(Random& random, const Step& step) {
  std::vector<Matrix> in(inputs.size());
  for (size_t k = 0; k < in.size(); ++k)
    in[k].reals = random.normals(uint64_t{step.rows(inputs[k].rows)} * inputs[k].width(), input_scale_);
  return in;
}

std::vector<OpVariant> all_ops() {
  std::vector<OpVariant> all;
  for (auto part : {row_ops(), matrix_ops(), expert_ops(), attention_ops()})
    all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  return all;
}

}  // namespace conform

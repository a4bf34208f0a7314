// Ops that work on a row without a matrix: embed, rms_norm, rope, activate, gate, add, scale, take_rows, route.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "case.h"
#include "op.h"

namespace conform {
namespace {

constexpr double kUlp = 0x1p-23;
constexpr uint32_t kGroups = 3, kCols = 64;

class Embed final : public Op {
 public:
  Embed(Random& random, uint32_t format, bool sliced) : Op(MH_OP_EMBED) {
    const mh::FormatInfo& info = *mh::find_format(format);
    const uint32_t cols = 256;
    table_ = add_weight(std::make_unique<Weight>(random, format, kVocabulary, cols, 1,
                                                 sliced ? Margin{1, std::max(info.block_elements, 8U)} : Margin{}));
    outputs = {{MH_ROWS_TOKENS, 1, cols}};
  }
  std::vector<Matrix> fill(Random&, const Step&) override { return {}; }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>&) override {
    Answer y;
    for (const int32_t id : step.token_ids)
      for (uint64_t c = 0; c < table_->cols(); ++c) {
        const double v = double{table_->row(0, static_cast<uint64_t>(id))[c]} * params_.factor;
        y.reals.push_back({v, 2 * kUlp * std::fabs(v), 0});
      }
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  const Weight* table_;
  mh_embed_params params_{sizeof params_, 1.75F};
};

class RmsNorm final : public Op {
 public:
  // weight_groups: 0 none, 1 [C], else [G*C].
  RmsNorm(Random& random, uint32_t groups, uint32_t weight_groups) : Op(MH_OP_RMS_NORM), weight_groups_(weight_groups) {
    const uint32_t cols = weight_groups * kCols;
    if (cols) weight_ = add_weight(std::make_unique<Weight>(random.normals(cols, 1), 1, cols, 1));
    inputs = outputs = {{MH_ROWS_TOKENS, groups, kCols}};
  }
  std::vector<Answer> expect(const Step&, const std::vector<Matrix>& in) override {
    Answer y;
    const auto& x = in[0].reals;
    for (size_t start = 0; start < x.size(); start += kCols) {
      double squares = 0;
      for (size_t c = 0; c < kCols; ++c) squares += double{x[start + c]} * x[start + c];
      const double factor = 1 / std::sqrt(squares / kCols + params_.eps);
      const size_t group = start / kCols % inputs[0].groups;
      for (size_t c = 0; c < kCols; ++c) {
        const double w = !weight_ ? 1 : weight_->row(0, 0)[weight_groups_ == 1 ? c : group * kCols + c];
        const double v = x[start + c] * factor * w;
        y.reals.push_back({v, sum_bound(kCols, std::fabs(v)), 0});
      }
    }
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  uint32_t weight_groups_;
  const Weight* weight_ = nullptr;
  mh_rms_norm_params params_{sizeof params_, 1e-3F};
};

class Rope final : public Op {
 public:
  Rope(uint32_t interleaved, uint32_t first, uint32_t dims) : Op(MH_OP_ROPE) {
    std::vector<float> frequencies(dims / 2);
    for (uint32_t i = 0; i < dims / 2; ++i) frequencies[i] = std::pow(10000.0F, -2.0F * i / dims);
    frequencies_ = add_weight(std::make_unique<Weight>(frequencies, 1, dims / 2, 1));
    params_.interleaved = interleaved, params_.first = first, params_.dims = dims, params_.magnitude = 1.25F;
    inputs = outputs = {{MH_ROWS_TOKENS, kGroups, kCols}};
  }
  Step next_step(Random& random, uint32_t rows) override {
    Step step;
    step.add_sequence(rows, random.below(3000));
    return step;
  }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y{exact(in[0].reals.data(), in[0].reals.size()), {}};
    for (size_t r = 0; r < step.tokens(); ++r)
      for (uint32_t g = 0; g < kGroups; ++g)
        for (uint32_t i = 0; i < params_.dims / 2; ++i)
          rotate(&y.reals[(r * kGroups + g) * kCols + params_.first], i,
                 double{frequencies_->row(0, 0)[i]} * step.positions[r]);
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  void rotate(Number* x, uint32_t i, double angle) const {
    Number& a = x[params_.interleaved ? 2 * i : i];
    Number& b = x[params_.interleaved ? 2 * i + 1 : i + params_.dims / 2];
    const double cosine = std::cos(angle) * params_.magnitude, sine = std::sin(angle) * params_.magnitude;
    // An angle in f32 is off by up to half a unit in its last place.
    const double bound = (8 + angle) * kUlp * (std::fabs(a.value) + std::fabs(b.value)) * params_.magnitude;
    const double from_a = a.value, from_b = b.value;
    a = {from_a * cosine - from_b * sine, bound, 0};
    b = {from_a * sine + from_b * cosine, bound, 0};
  }
  const Weight* frequencies_;
  mh_rope_params params_{sizeof params_};
};

class Activate final : public Op {
 public:
  Activate(uint32_t activation, uint32_t input_count) : Op(MH_OP_ACTIVATE) {
    params_ = {sizeof params_, activation, 1.5F, 1.702F};
    inputs.assign(input_count, {MH_ROWS_TOKENS, 1, 200});
    outputs = {inputs[0]};
    input_scale_ = 2;  // far enough to be clamped
  }
  std::vector<Answer> expect(const Step&, const std::vector<Matrix>& in) override {
    Answer y;
    for (size_t i = 0; i < in[0].reals.size(); ++i) {
      const Number a{in[0].reals[i]}, b{in.back().reals[i]};
      y.reals.push_back(activate(params_, a, in.size() > 1 ? &b : nullptr));
    }
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  mh_activation params_;
};

class Gate final : public Op {
 public:
  explicit Gate(uint32_t gate_cols) : Op(MH_OP_GATE) {
    inputs = {{MH_ROWS_TOKENS, 1, 96}, {MH_ROWS_TOKENS, 1, gate_cols}};
    outputs = {inputs[0]};
  }
  std::vector<Answer> expect(const Step&, const std::vector<Matrix>& in) override {
    Answer y;
    const uint32_t cols = inputs[0].cols, gate_cols = inputs[1].cols;
    for (size_t i = 0; i < in[0].reals.size(); ++i) {
      const double g = in[1].reals[gate_cols == 1 ? i / cols : i], v = sigmoid(g) * in[0].reals[i];
      y.reals.push_back({v, 8 * kUlp * (1 + std::fabs(g)) * std::fabs(v), 0});
    }
    return {y};
  }
};

class Add final : public Op {
 public:
  explicit Add(uint32_t terms) : Op(MH_OP_ADD) {
    inputs.assign(terms, {MH_ROWS_TOKENS, 1, 136});
    outputs = {inputs[0]};
  }
  std::vector<Answer> expect(const Step&, const std::vector<Matrix>& in) override {
    Answer y;
    for (size_t i = 0; i < in[0].reals.size(); ++i) {
      double sum = 0, magnitude = 0;
      for (const Matrix& term : in) sum += term.reals[i], magnitude += std::fabs(term.reals[i]);
      y.reals.push_back({sum, 0.5 * kUlp * static_cast<double>(in.size()) * magnitude, 0});
    }
    return {y};
  }
};

class Scale final : public Op {
 public:
  Scale() : Op(MH_OP_SCALE) { inputs = outputs = {{MH_ROWS_TOKENS, 2, 48}}; }
  std::vector<Answer> expect(const Step&, const std::vector<Matrix>& in) override {
    Answer y;
    for (const float x : in[0].reals)
      y.reals.push_back({double{x} * params_.factor, kUlp * std::fabs(x * params_.factor), 0});
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  mh_embed_params params_{sizeof params_, -0.3F};
};

class TakeRows final : public Op {
 public:
  TakeRows() : Op(MH_OP_TAKE_ROWS) {
    inputs = {{MH_ROWS_TOKENS, 1, 72}};
    outputs = {{MH_ROWS_OUTPUTS, 1, 72}};
  }
  Step next_step(Random& random, uint32_t rows) override {
    Step step = plain_step(rows);
    random.shuffle(step.output_rows);
    step.output_rows.resize((rows + 1) / 2);
    return step;
  }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y;
    for (const int32_t row : step.output_rows)
      for (size_t c = 0; c < 72; ++c) y.reals.push_back({in[0].reals[static_cast<size_t>(row) * 72 + c]});
    return {y};
  }
};

class Route final : public Op {
 public:
  Route(Random& random, const mh_route_params& params, bool bias) : Op(MH_OP_ROUTE), params_(params) {
    params_.size = sizeof params_;
    if (bias) bias_ = add_weight(std::make_unique<Weight>(random.normals(kExperts, 0.3), 1, kExperts, 1));
    const uint32_t k = params_.experts_per_token;
    inputs = {{MH_ROWS_TOKENS, 1, kExperts}};
    outputs = {{MH_ROWS_TOKENS, 1, k, MH_FORMAT_I32}, {MH_ROWS_TOKENS, 1, k}};
  }
  // Logits whose choice does not hang on the last bits; without a bias, some are equal, so that ties are.
  std::vector<Matrix> fill(Random& random, const Step& step) override {
    Matrix logits;
    for (uint32_t r = 0; r < step.tokens(); ++r) {
      std::vector<float> row;
      do {
        row = random.normals(kExperts, 1.5);
        if (!bias_ && r % 2) row[random.below(kExperts)] = row[random.below(kExperts)];
      } while (close_call(row));
      logits.reals.insert(logits.reals.end(), row.begin(), row.end());
    }
    return {logits};
  }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer ids, weights;
    for (size_t r = 0; r < step.tokens(); ++r) route(&in[0].reals[r * kExperts], ids, weights);
    return {ids, weights};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  static constexpr uint32_t kExperts = 24;
  std::vector<double> scores(const float* logits) const {
    std::vector<double> s(logits, logits + kExperts);
    if (params_.score == MH_SCORE_SIGMOID)
      for (double& v : s) v = sigmoid(v);
    if (params_.score == MH_SCORE_SQRT_SOFTPLUS)
      for (double& v : s) v = std::sqrt(std::log1p(std::exp(v)));
    if (params_.score == MH_SCORE_SOFTMAX) softmax(s);
    return s;
  }
  static void softmax(std::vector<double>& s) {
    const double top = *std::max_element(s.begin(), s.end());
    double sum = 0;
    for (double& v : s) sum += v = std::exp(v - top);
    for (double& v : s) v /= sum;
  }
  // Indices of the `count` largest, ties to the lowest index.
  static std::vector<uint32_t> largest(const std::vector<double>& values, uint32_t count) {
    std::vector<uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
    order.resize(count);
    return order;
  }
  std::vector<double> group_scores(const std::vector<double>& choice) const {
    const uint32_t size = kExperts / params_.groups;
    std::vector<double> out(params_.groups);
    for (uint32_t g = 0; g < params_.groups; ++g) {
      const std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      for (const uint32_t i : largest(members, params_.group_top)) out[g] += members[i];
    }
    return out;
  }
  std::vector<double> choice(const float* logits) const {
    std::vector<double> c = scores(logits);
    for (uint32_t e = 0; e < kExperts && bias_; ++e) c[e] += bias_->row(0, 0)[e];
    if (params_.groups > 1) {
      const auto kept = largest(group_scores(c), params_.groups_kept);
      const uint32_t size = kExperts / params_.groups;
      for (uint32_t e = 0; e < kExperts; ++e)
        if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) c[e] = -HUGE_VAL;
    }
    return c;
  }
  static bool has_near_tie(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    for (size_t i = 1; i < values.size(); ++i) {
      const double gap = values[i] - values[i - 1];
      if (gap != 0 && gap < 1e-5 * std::fabs(values[i])) return true;
    }
    return false;
  }
  bool close_call(const std::vector<float>& logits) const {
    const auto c = choice(logits.data());
    if (has_near_tie(c)) return true;
    std::vector<double> all = scores(logits.data());
    for (uint32_t e = 0; e < kExperts && bias_; ++e) all[e] += bias_->row(0, 0)[e];
    return params_.groups > 1 && has_near_tie(group_scores(all));
  }
  void route(const float* logits, Answer& ids, Answer& weights) const {
    const auto chosen = largest(choice(logits), params_.experts_per_token);
    const auto s = scores(logits);
    std::vector<double> w;
    for (const uint32_t e : chosen) w.push_back(s[e]);
    if (params_.renormalise) {
      const double sum = std::accumulate(w.begin(), w.end(), 0.0);
      for (double& v : w) v /= sum;
    }
    if (params_.softmax_chosen) softmax(w);
    for (size_t k = 0; k < w.size(); ++k) {
      const double v = w[k] * params_.scale;
      ids.ids.push_back(static_cast<int32_t>(chosen[k]));
      weights.reals.push_back({v, 16 * sum_bound(kExperts, std::fabs(v)), 0});
    }
  }
  mh_route_params params_;
  const Weight* bias_ = nullptr;
};

mh_route_params route_params(uint32_t score, uint32_t k, uint32_t groups, uint32_t kept, uint32_t top, bool renormalise,
                             bool softmax_chosen, float scale) {
  return {0, score, k, groups, kept, top, renormalise, softmax_chosen, 0, scale};
}

template <class T, class... Args>
OpVariant variant(std::string name, Args... args) {
  return {name, false, [name, args...](Random&, bool) {
            auto op = std::make_unique<T>(args...);
            op->name = name;
            return op;
          }};
}
template <class T, class... Args>
OpVariant random_variant(std::string name, Args... args) {
  return {name, false, [name, args...](Random& random, bool) {
            auto op = std::make_unique<T>(random, args...);
            op->name = name;
            return op;
          }};
}

}  // namespace

std::vector<OpVariant> row_ops() {
  std::vector<OpVariant> ops;
  for (const mh::FormatInfo& format : weight_formats())
    ops.push_back({cat("embed/", format.name), true, [format](Random& random, bool sliced) {
                     auto op = std::make_unique<Embed>(random, format.number, sliced);
                     op->name = cat("embed/", format.name);
                     return op;
                   }});
  ops.push_back(random_variant<RmsNorm>("rms_norm/plain", 1U, 1U));
  ops.push_back(random_variant<RmsNorm>("rms_norm/no_weight", kGroups, 0U));
  ops.push_back(random_variant<RmsNorm>("rms_norm/shared", kGroups, 1U));
  ops.push_back(random_variant<RmsNorm>("rms_norm/per_group", kGroups, kGroups));
  ops.push_back(variant<Rope>("rope/halves", 0U, 0U, kCols));
  ops.push_back(variant<Rope>("rope/interleaved", 1U, 0U, kCols));
  ops.push_back(variant<Rope>("rope/partial", 0U, 16U, 32U));
  static const char* const kActivations[] = {"silu", "gelu_tanh", "clamped_swiglu", "relu_squared"};
  for (uint32_t a = 0; a < std::size(kActivations); ++a) {
    ops.push_back(variant<Activate>(cat("activate/", kActivations[a]), a, 2U));
    if (a != MH_ACT_CLAMPED_SWIGLU)
      ops.push_back(variant<Activate>(cat("activate/", kActivations[a], "_alone"), a, 1U));
  }
  ops.push_back(variant<Gate>("gate/column", 1U));
  ops.push_back(variant<Gate>("gate/full", 96U));
  for (const uint32_t terms : {2U, 3U, 7U}) ops.push_back(variant<Add>(cat("add/", terms), terms));
  ops.push_back(variant<Scale>("scale"));
  ops.push_back(variant<TakeRows>("take_rows"));
  ops.push_back(
      random_variant<Route>("route/softmax", route_params(MH_SCORE_SOFTMAX, 4, 1, 1, 0, true, false, 1), false));
  ops.push_back(
      random_variant<Route>("route/softmax_raw", route_params(MH_SCORE_SOFTMAX, 6, 1, 1, 0, false, false, 16), false));
  ops.push_back(random_variant<Route>("route/sigmoid_groups",
                                      route_params(MH_SCORE_SIGMOID, 4, 6, 3, 2, true, false, 2.5F), true));
  ops.push_back(random_variant<Route>("route/softmax_group_max",
                                      route_params(MH_SCORE_SOFTMAX, 3, 4, 2, 1, false, false, 1), false));
  ops.push_back(random_variant<Route>("route/sqrt_softplus",
                                      route_params(MH_SCORE_SQRT_SOFTPLUS, 4, 1, 1, 0, true, false, 1.5F), true));
  ops.push_back(random_variant<Route>("route/chosen_softmax",
                                      route_params(MH_SCORE_IDENTITY, 4, 1, 1, 0, false, true, 1), false));
  ops.push_back(random_variant<Route>("route/one", route_params(MH_SCORE_SIGMOID, 1, 1, 1, 0, false, false, 1), false));
  return ops;
}

}  // namespace conform

// Ops that multiply by matrices: linear, head_linear, ffn, experts.
#include <algorithm>
#include <cmath>

#include "case.h"
#include "op.h"

namespace conform {
namespace {

constexpr double kUlp = 0x1p-23;
constexpr uint32_t kFfnDim = 256, kExpertCount = 6, kExpertsPerToken = 3;
// Every cut of a sliced weight is a multiple of these. Block formats need whole blocks.
constexpr uint64_t kRowMargin = 64, kColMargin = 256;

// An input width that a format allows and that fits no vector register where it can be avoided.
uint32_t awkward_width(const mh::FormatInfo& format) {
  return format.block_elements == 1 ? 136 : format.block_elements <= 32 ? 288 : 512;
}

class Linear final : public Op {
 public:
  Linear(Random& random, uint32_t format, bool sliced, bool bias, uint32_t rows_symbol) : Op(MH_OP_LINEAR) {
    const uint32_t in = awkward_width(*mh::find_format(format)), out = sliced ? 128 : 72;
    matrix_ = add_weight(
        std::make_unique<Weight>(random, format, out, in, 1, sliced ? Margin{kRowMargin, kColMargin} : Margin{}));
    if (bias) bias_ = add_weight(std::make_unique<Weight>(random.normals(out, 1), 1, out, 1));
    inputs = {{rows_symbol, 1, in}}, outputs = {{rows_symbol, 1, out}};
  }
  Step next_step(Random& random, uint32_t rows) override {
    Step step = Op::next_step(random, rows);
    if (inputs[0].rows == MH_ROWS_OUTPUTS) step.output_rows.resize((rows + 1) / 2);
    return step;
  }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y;
    for (size_t r = 0; r < step.rows(inputs[0].rows); ++r) {
      const auto x = exact(&in[0].reals[r * inputs[0].cols], inputs[0].cols);
      const auto row = multiply(*matrix_, 0, x.data(), bias_, 0);
      y.reals.insert(y.reals.end(), row.begin(), row.end());
    }
    return {y};
  }

 private:
  const Weight* matrix_;
  const Weight* bias_ = nullptr;
};

class HeadLinear final : public Op {
 public:
  HeadLinear(Random& random, uint32_t format, bool sliced) : Op(MH_OP_HEAD_LINEAR) {
    const uint32_t heads = 3, in = awkward_width(*mh::find_format(format)), out = 40;
    matrices_ = add_weight(
        std::make_unique<Weight>(random, format, out, in, heads, sliced ? Margin{kRowMargin, kColMargin} : Margin{}));
    inputs = {{MH_ROWS_TOKENS, heads, in}}, outputs = {{MH_ROWS_TOKENS, heads, out}};
  }
  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y;
    const Shape& shape = inputs[0];
    for (size_t r = 0; r < step.tokens(); ++r)
      for (uint32_t h = 0; h < shape.groups; ++h) {
        const auto x = exact(&in[0].reals[r * shape.width() + h * shape.cols], shape.cols);
        const auto head = multiply(*matrices_, h, x.data(), nullptr, 0);
        y.reals.insert(y.reals.end(), head.begin(), head.end());
      }
    return {y};
  }

 private:
  const Weight* matrices_;
};

// How a feed-forward network differs from the plain one: gated, SiLU, no biases, weights on the result.
struct FfnStyle {
  uint32_t activation = MH_ACT_SILU;
  bool gated = true, biases = false, weigh_input = false;
};

// ffn, or experts of which this device owns four of six.
class Ffn final : public Op {
 public:
  Ffn(Random& random, uint32_t format, bool sliced, const FfnStyle& style, bool experts)
      : Op(experts ? MH_OP_EXPERTS : MH_OP_FFN), style_(style) {
    if (experts) owned_ = {0, 2, 3, 5};
    const auto slabs = static_cast<uint32_t>(experts ? owned_.size() : 1);
    const uint32_t dim = std::min(awkward_width(*mh::find_format(format)), 288U);
    const uint32_t model_dim = dim % mh::find_format(format)->block_elements ? 256 : dim;
    // A device's share of F: gate and up lose rows, down loses columns.
    const Margin rows = sliced ? Margin{kColMargin, 0} : Margin{}, cols = sliced ? Margin{0, kColMargin} : Margin{};
    const auto matrix = [&](uint32_t out, uint32_t in, Margin margin) {
      return std::make_unique<Weight>(random, format, out, in, slabs, margin);
    };
    const auto vector = [&](uint32_t size) {
      return std::make_unique<Weight>(random.normals(size_t{size} * slabs, 0.5), 1, size, slabs);
    };
    gate_ = add_weight(style.gated ? matrix(kFfnDim, model_dim, rows) : nullptr);
    up_ = add_weight(matrix(kFfnDim, model_dim, rows));
    down_ = add_weight(matrix(model_dim, kFfnDim, cols));
    if (style.biases) {
      gate_bias_ = add_weight(style.gated ? vector(kFfnDim) : nullptr);
      up_bias_ = add_weight(vector(kFfnDim));
      down_bias_ = add_weight(vector(model_dim));
    }
    input_scale_ = 1.5 / (up_->rms() * std::sqrt(model_dim));
    inputs = outputs = {{MH_ROWS_TOKENS, 1, model_dim}};
    if (experts) {
      inputs.push_back({MH_ROWS_TOKENS, 1, kExpertsPerToken, MH_FORMAT_I32});
      inputs.push_back({MH_ROWS_TOKENS, 1, kExpertsPerToken});
    }
    params_ = {
        sizeof params_,    experts ? kExpertCount : 1U,       slabs,
        style.weigh_input, experts ? owned_.data() : nullptr, {sizeof(mh_activation), style.activation, 1.5F, 1.702F}};
  }

  std::vector<Matrix> fill(Random& random, const Step& step) override {
    auto in = Op::fill(random, step);
    if (owned_.empty()) return in;
    in[1] = {}, in[2] = {};
    for (uint32_t r = 0; r < step.tokens(); ++r) {
      std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5, -1};
      random.shuffle(ids);
      if (r % 5 == 4) ids = {1, -1, 4};  // a row without work here
      for (uint32_t k = 0; k < kExpertsPerToken; ++k) {
        in[1].ids.push_back(ids[k]);
        in[2].reals.push_back(static_cast<float>(0.1 + 0.5 * random.uniform()));
      }
    }
    return in;
  }

  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y;
    const size_t model_dim = inputs[0].cols;
    for (size_t r = 0; r < step.tokens(); ++r) {
      const float* x = &in[0].reals[r * model_dim];
      if (owned_.empty()) {
        const auto row = network(0, exact(x, model_dim));
        y.reals.insert(y.reals.end(), row.begin(), row.end());
        continue;
      }
      std::vector<Number> sum(model_dim);  // zero, exactly, if nobody here is chosen
      for (uint32_t slab = 0; slab < owned_.size(); ++slab)
        for (size_t k = r * kExpertsPerToken; k < (r + 1) * kExpertsPerToken; ++k)
          if (in[1].ids[k] == owned_[slab]) add_expert(slab, x, in[2].reals[k], sum);
      y.reals.insert(y.reals.end(), sum.begin(), sum.end());
    }
    return {y};
  }

 protected:
  const void* params(bool) const override { return &params_; }

 private:
  std::vector<Number> network(uint32_t slab, const std::vector<Number>& x) const {
    auto hidden = multiply(*up_, slab, x.data(), up_bias_, slab);
    if (style_.gated) {
      const auto gate = multiply(*gate_, slab, x.data(), gate_bias_, slab);
      for (size_t f = 0; f < hidden.size(); ++f) hidden[f] = activate(params_.activation, gate[f], &hidden[f]);
    } else {
      for (Number& h : hidden) h = activate(params_.activation, h, nullptr);
    }
    return multiply(*down_, slab, hidden.data(), down_bias_, slab);
  }
  void add_expert(uint32_t slab, const float* x, double weight, std::vector<Number>& sum) const {
    auto in = exact(x, sum.size());
    if (style_.weigh_input)
      for (Number& v : in) v = {v.value * weight, kUlp * std::fabs(v.value * weight), 0};
    const auto y = network(slab, in);
    const double factor = style_.weigh_input ? 1 : weight;
    for (size_t d = 0; d < sum.size(); ++d) {
      const double term = factor * y[d].value;
      sum[d].value += term;
      sum[d].bound += factor * y[d].bound + sum_bound(kExpertsPerToken, std::fabs(term));
      sum[d].noise = std::hypot(sum[d].noise, factor * y[d].noise);
    }
  }

  FfnStyle style_;
  std::vector<int32_t> owned_;
  const Weight *gate_ = nullptr, *up_ = nullptr, *down_ = nullptr;
  const Weight *gate_bias_ = nullptr, *up_bias_ = nullptr, *down_bias_ = nullptr;
  mh_experts_params params_;
};

template <class Make>
OpVariant variant(const std::string& name, Make make) {
  return {name, true, [name, make](Random& random, bool sliced) {
            std::unique_ptr<Op> op = make(random, sliced);
            op->name = name;
            return op;
          }};
}

}  // namespace

std::vector<OpVariant> matrix_ops() {
  std::vector<OpVariant> ops;
  const auto add_linear = [&ops](const std::string& name, uint32_t format, bool bias, uint32_t rows) {
    ops.push_back(variant(name, [=](Random& random, bool sliced) {
      return std::make_unique<Linear>(random, format, sliced, bias, rows);
    }));
  };
  for (const mh::FormatInfo& f : weight_formats()) add_linear(cat("linear/", f.name), f.number, false, MH_ROWS_TOKENS);
  add_linear("linear/F32_bias", MH_FORMAT_F32, true, MH_ROWS_TOKENS);
  add_linear("linear/Q8_0_bias", MH_FORMAT_Q8_0, true, MH_ROWS_TOKENS);
  add_linear("linear/F32_of_output_rows", MH_FORMAT_F32, false, MH_ROWS_OUTPUTS);
  add_linear("linear/Q6_K_of_output_rows", MH_FORMAT_Q6_K, false, MH_ROWS_OUTPUTS);
  for (const mh::FormatInfo& f : weight_formats())
    ops.push_back(variant(cat("head_linear/", f.name), [number = f.number](Random& random, bool sliced) {
      return std::make_unique<HeadLinear>(random, number, sliced);
    }));
  return ops;
}

std::vector<OpVariant> expert_ops() {
  std::vector<OpVariant> ops;
  const auto add = [&ops](const std::string& name, uint32_t format, const FfnStyle& style, bool experts) {
    ops.push_back(variant(name, [=](Random& random, bool sliced) {
      return std::make_unique<Ffn>(random, format, sliced, style, experts);
    }));
  };
  for (const bool experts : {true, false}) {
    const std::string kind = experts ? "experts/" : "ffn/";
    for (const mh::FormatInfo& f : weight_formats()) add(kind + f.name, f.number, {}, experts);
    add(kind + "F32_gelu_tanh", MH_FORMAT_F32, {MH_ACT_GELU_TANH}, experts);
    add(kind + "F32_clamped_swiglu_biases", MH_FORMAT_F32, {MH_ACT_CLAMPED_SWIGLU, true, true}, experts);
    add(kind + "F32_relu_squared_ungated", MH_FORMAT_F32, {MH_ACT_RELU_SQUARED, false}, experts);
    add(kind + "MXFP4_clamped_swiglu_biases", MH_FORMAT_MXFP4, {MH_ACT_CLAMPED_SWIGLU, true, true}, experts);
    if (experts) add("experts/F32_weigh_input", MH_FORMAT_F32, {MH_ACT_SILU, true, false, true}, true);
  }
  return ops;
}

}  // namespace conform

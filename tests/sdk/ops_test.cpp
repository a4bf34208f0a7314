// The reference is what all other backends are measured against; here it is measured against sums written out by hand.
#include <cmath>
#include <random>

#include "tests/sdk/program.h"

namespace sdk_test {
namespace {

std::vector<float> noise(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(random);
  return values;
}

// Token t of one sequence is at position `first + t`, in blocks that the table gives.
StepData sequence(uint32_t first, uint32_t count, std::vector<int32_t> table) {
  StepData step;
  for (uint32_t t = 0; t < count; ++t) step.positions.push_back(static_cast<int32_t>(first + t));
  step.token_ids = step.positions;
  step.sequence_rows = {0, static_cast<int32_t>(count)};
  step.sequence_lengths = {static_cast<int32_t>(first + count)};
  step.table_stride = static_cast<uint32_t>(table.size()), step.table = std::move(table);
  return step;
}

// ---- route

struct Route {
  mh_route_params params{sizeof(mh_route_params), MH_SCORE_SOFTMAX, 2, 1, 0, 0, 0, 0, 0, 1};
  std::vector<float> bias;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  void run(const std::vector<float>& logits) {
    Device device(reference());
    Arena arena;
    Program program(device, arena, arena.place(StepData::kBytes));
    const auto experts = static_cast<uint32_t>(logits.size());
    const uint32_t chosen = params.experts_per_token;
    const uint64_t in_at = arena.place(experts * 4), ids_at = arena.place(chosen * 4),
                   weights_at = arena.place(chosen * 4);
    const uint32_t in = program.boundary(in_at, true, experts);
    const uint32_t out = program.boundary(ids_at, false, chosen, 1, MH_ROWS_TOKENS, MH_FORMAT_I32);
    const uint32_t by = program.boundary(weights_at, false, chosen);
    const Weight correction(1, experts, bias.empty() ? std::vector<float>(experts) : bias);
    std::copy(logits.begin(), logits.end(), arena.at<float>(in_at));
    ASSERT_EQ(program.op(MH_OP_ROUTE, &params, {const_cast<Weight&>(correction).get()}, {in}, {out, by}), MH_OK)
        << program.error.text;
    ASSERT_EQ(program.create(), MH_OK);
    ASSERT_EQ(program.run(sequence(0, 1, {})), MH_OK) << program.error.text;
    ids.assign(arena.at<int32_t>(ids_at), arena.at<int32_t>(ids_at) + chosen);
    weights.assign(arena.at<float>(weights_at), arena.at<float>(weights_at) + chosen);
  }
};
using Ids = std::vector<int32_t>;
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Route, TiesGoToTheLowestIdAndEqualExpertsShareEqually) {
  Route r;
  r.params.renormalise = 1;
  r.run({0.25F, 1.5F, 1.5F, 1.5F});
  EXPECT_EQ(r.ids, (Ids{1, 2}));
  EXPECT_EQ(r.weights, (std::vector<float>{0.5F, 0.5F}));
}

TEST(Route, ChoosesByBiasedScoreAndWeighsByTheUnbiased) {
  Route r;
  r.params.score = MH_SCORE_SIGMOID, r.params.renormalise = 1, r.params.scale = 2.5F;
  r.bias = {0, 5, 0, 0};
  r.run({2, -3, 1, 0});
  EXPECT_EQ(r.ids, (Ids{1, 0}));
  const float sum = sigmoid(2) + sigmoid(-3);
  EXPECT_FLOAT_EQ(r.weights[0], 2.5F * sigmoid(-3) / sum);
  EXPECT_FLOAT_EQ(r.weights[1], 2.5F * sigmoid(2) / sum);
}

TEST(Route, RanksGroupsByTheSumOfTheirBest) {
  Route r;
  r.params.score = MH_SCORE_IDENTITY, r.params.groups = 2, r.params.groups_kept = 1;
  const std::vector<float> logits{9, 0, 0, 6, 5, 1};  // the best is in group 0, the best two are in group 1
  r.params.group_top = 1, r.run(logits);
  EXPECT_EQ(r.ids, (Ids{0, 1}));
  r.params.group_top = 2, r.run(logits);
  EXPECT_EQ(r.ids, (Ids{3, 4}));
}

TEST(Route, NeverChoosesFromARejectedGroupEvenWhenTheRestIsNegative) {
  Route r;
  r.params.score = MH_SCORE_IDENTITY, r.params.groups = 2, r.params.groups_kept = 1, r.params.group_top = 1;
  r.run({-1, -9, -2, -2});
  EXPECT_EQ(r.ids, (Ids{0, 1}));
}

TEST(Route, TakesTheSoftmaxOverTheChosen) {
  Route r;
  r.params.score = MH_SCORE_IDENTITY, r.params.softmax_chosen = 1;
  r.run({1, 3, 2, -5});
  EXPECT_EQ(r.ids, (Ids{1, 2}));
  EXPECT_FLOAT_EQ(r.weights[0], sigmoid(1));
  EXPECT_FLOAT_EQ(r.weights[1], sigmoid(-1));
}

TEST(Route, KnowsTheRootOfSoftplus) {
  Route r;
  r.params.score = MH_SCORE_SQRT_SOFTPLUS;
  r.run({-2, 3, 40});
  EXPECT_FLOAT_EQ(r.weights[0], std::sqrt(40.0F));
  EXPECT_FLOAT_EQ(r.weights[1], std::sqrt(std::log1p(std::exp(3.0F))));
}

// ---- attention

struct Shape {
  uint32_t heads = 4, kv_heads = 2, k_cols = 6, v_cols = 4, window = 0, format = MH_FORMAT_F32;
  bool prefix = false, sinks = false;
  float softcap = 0;
};

class Attention {
 public:
  static constexpr uint32_t kMaxTokens = 24, kBlockTokens = 4, kBlocks = 8;
  explicit Attention(const Shape& shape) : shape_(shape), device_(reference()) {
    mh_kv_desc& kv = kv_desc_;
    kv.size = sizeof kv, kv.layers = 1, kv.kv_heads = shape.kv_heads, kv.k_cols = shape.k_cols,
    kv.v_cols = shape.v_cols;
    kv.v_is_prefix_of_k = shape.prefix, kv.k_format = kv.v_format = shape.format;
    kv.block_tokens = kBlockTokens, kv.block_count = kBlocks;
    step_at_ = arena_.place(StepData::kBytes);
    q_at_ = arena_.place(kMaxTokens * shape.heads * shape.k_cols * 4);
    k_at_ = arena_.place(kMaxTokens * shape.kv_heads * shape.k_cols * 4);
    v_at_ = arena_.place(kMaxTokens * shape.kv_heads * shape.v_cols * 4);
    y_at_ = arena_.place(kMaxTokens * shape.heads * shape.v_cols * 4);
    program_ = std::make_unique<Program>(device_, arena_, step_at_, Limits{kMaxTokens});
    EXPECT_EQ(program_->cache(kv), MH_OK) << program_->error.text;
    mh_attention_params p{};
    p.size = sizeof p, p.kv_desc = &kv, p.kv = program_->kv(), p.scale = 0.7F, p.softcap = shape.softcap;
    p.window = shape.window;
    std::vector<uint32_t> in{program_->boundary(q_at_, true, shape.k_cols, shape.heads),
                             program_->boundary(k_at_, true, shape.k_cols, shape.kv_heads)};
    if (!shape.prefix) in.push_back(program_->boundary(v_at_, true, shape.v_cols, shape.kv_heads));
    const uint32_t y = program_->boundary(y_at_, false, shape.v_cols, shape.heads);
    sinks_ = std::make_unique<Weight>(1, shape.heads, noise(9, shape.heads));
    std::vector<const mh_weight*> weights;
    if (shape.sinks) weights.push_back(sinks_->get());
    EXPECT_EQ(program_->op(MH_OP_ATTENTION, &p, weights, in, {y}), MH_OK) << program_->error.text;
    EXPECT_EQ(program_->create(), MH_OK) << program_->error.text;
  }
  // Rows [first, first + count) of the sequence of q, k and v; returns [count, heads, v_cols].
  std::vector<float> run(uint32_t first, uint32_t count, const std::vector<int32_t>& table = {5, 2, 7, 0, 3, 1},
                         const std::vector<int32_t>& copies = {}) {
    const auto put = [&](uint64_t at, const std::vector<float>& all, uint32_t row) {
      std::copy_n(all.begin() + first * row, count * row, arena_.at<float>(at));
    };
    put(q_at_, q, shape_.heads * shape_.k_cols), put(k_at_, k, shape_.kv_heads * shape_.k_cols);
    put(v_at_, v, shape_.kv_heads * shape_.v_cols);
    StepData step = sequence(first, count, table);
    step.copies = copies;
    EXPECT_EQ(program_->run(step), MH_OK) << program_->error.text;
    const auto* y = arena_.at<float>(y_at_);
    return {y, y + count * shape_.heads * shape_.v_cols};
  }
  // The definition, for query t and head h.
  std::vector<double> direct(uint32_t t, uint32_t h) const {
    const uint32_t kv_head = h / (shape_.heads / shape_.kv_heads);
    const auto key = [&](uint32_t p, uint32_t c) {
      return double{k[(p * shape_.kv_heads + kv_head) * shape_.k_cols + c]};
    };
    std::vector<double> y(shape_.v_cols);
    double sum = shape_.sinks ? std::exp(double{noise(9, shape_.heads)[h]}) : 0;
    for (uint32_t p = 0; p <= t; ++p) {
      if (shape_.window && t - p >= shape_.window) continue;
      double score = 0;
      for (uint32_t c = 0; c < shape_.k_cols; ++c)
        score += double{q[(t * shape_.heads + h) * shape_.k_cols + c]} * key(p, c);
      score *= double{0.7F};
      if (shape_.softcap > 0) score = shape_.softcap * std::tanh(score / shape_.softcap);
      sum += std::exp(score);
      for (uint32_t c = 0; c < shape_.v_cols; ++c)
        y[c] += std::exp(score) *
                (shape_.prefix ? key(p, c) : double{v[(p * shape_.kv_heads + kv_head) * shape_.v_cols + c]});
    }
    for (double& value : y) value /= sum;
    return y;
  }
  void expect_direct(const std::vector<float>& got, uint32_t first, uint32_t count, double tolerance) {
    for (uint32_t t = 0; t < count; ++t)
      for (uint32_t h = 0; h < shape_.heads; ++h) {
        const auto want = direct(first + t, h);
        for (uint32_t c = 0; c < shape_.v_cols; ++c)
          ASSERT_NEAR(got[(t * shape_.heads + h) * shape_.v_cols + c], want[c], tolerance)
              << "token " << t << " head " << h;
      }
  }

 private:
  const Shape shape_;

 public:
  const std::vector<float> q = noise(1, kMaxTokens* shape_.heads* shape_.k_cols);
  const std::vector<float> k = noise(2, kMaxTokens* shape_.kv_heads* shape_.k_cols);
  const std::vector<float> v = noise(3, kMaxTokens* shape_.kv_heads* shape_.v_cols);

 private:
  Device device_;
  Arena arena_;
  mh_kv_desc kv_desc_{};
  uint64_t step_at_ = 0, q_at_ = 0, k_at_ = 0, v_at_ = 0, y_at_ = 0;
  std::unique_ptr<Weight> sinks_;
  std::unique_ptr<Program> program_;
};

TEST(AttentionOp, EqualsItsDefinitionInEveryVariant) {
  Shape grouped, windowed, capped, prefix, single;
  windowed.window = 5, windowed.sinks = true;
  capped.softcap = 0.5F;
  prefix.prefix = true, prefix.kv_heads = 1;
  single.kv_heads = 4;
  for (const Shape& shape : {grouped, windowed, capped, prefix, single}) {
    Attention attention(shape);
    attention.expect_direct(attention.run(0, 24), 0, 24, 1e-6);
  }
}

TEST(AttentionOp, ChunksOfAPromptGiveTheSameBits) {
  Shape shape;
  shape.window = 7;
  Attention whole(shape), pieces(shape);
  const std::vector<float> want = whole.run(0, 24);
  std::vector<float> got;
  uint32_t first = 0;
  for (uint32_t count : {1U, 2U, 7U, 13U, 1U}) {
    const auto part = pieces.run(first, count);
    got.insert(got.end(), part.begin(), part.end());
    first += count;
  }
  EXPECT_EQ(got, want);
}

TEST(AttentionOp, RoundsTheCacheToItsFormatAndNothingElse) {
  for (const auto& [format, tolerance] : {std::pair{MH_FORMAT_F16, 1e-3}, std::pair{MH_FORMAT_BF16, 8e-3}}) {
    Shape shape;
    shape.format = format;
    Attention attention(shape);
    attention.expect_direct(attention.run(0, 20), 0, 20, tolerance);
  }
}

TEST(AttentionOp, CopiesABlockBeforeTheStepWritesIt) {
  Attention attention{Shape{}};
  attention.run(0, 6, {5, 2});
  // Block 2 holds tokens 4 and 5; the next step goes on in a copy of it, block 6.
  attention.expect_direct(attention.run(6, 2, {5, 6}, {2, 6}), 6, 2, 1e-6);
  attention.expect_direct(attention.run(6, 2, {5, 2}), 6, 2, 1e-6);
}

TEST(AttentionOp, NeverLooksAtBlocksThatTheWindowHasLeftBehind) {
  Shape shape;
  shape.window = 4;
  Attention attention(shape);
  attention.run(0, 12);
  attention.expect_direct(attention.run(12, 4, {-1, -1, 7, 0}), 12, 4, 1e-6);
}

// ---- experts and windows

TEST(Experts, SplitByExpertOrByColumnAddsUpToTheWhole) {
  constexpr uint32_t kDim = 8, kExperts = 4, kFfn = 6, kTokens = 5;
  const std::vector<float> gate = noise(1, kExperts * kFfn * kDim), up = noise(2, kExperts * kFfn * kDim);
  const std::vector<float> down = noise(3, kExperts * kDim * kFfn), bias = noise(4, kExperts * kDim);
  struct Share {
    std::vector<int32_t> ids;
    uint32_t first, last;
  };
  const auto run = [&](const std::vector<Share>& shares) {
    Device device(reference());
    Arena arena;
    Program program(device, arena, arena.place(StepData::kBytes));
    const uint64_t x_at = arena.place(8 * kDim * 4), ids_at = arena.place(8 * 2 * 4), w_at = arena.place(8 * 2 * 4);
    const uint64_t y_at = arena.place(8 * kDim * 4);
    const auto x_values = noise(5, kTokens * kDim), w_values = noise(6, kTokens * 2);
    std::copy(x_values.begin(), x_values.end(), arena.at<float>(x_at));
    std::copy(w_values.begin(), w_values.end(), arena.at<float>(w_at));
    const int32_t chosen[kTokens * 2] = {0, 3, 2, 1, 3, -1, 1, 0, -1, -1};
    std::copy(std::begin(chosen), std::end(chosen), arena.at<int32_t>(ids_at));
    const uint32_t x = program.boundary(x_at, true, kDim), w = program.boundary(w_at, true, 2);
    const uint32_t ids = program.boundary(ids_at, true, 2, 1, MH_ROWS_TOKENS, MH_FORMAT_I32);
    std::vector<uint32_t> partials;
    std::deque<std::vector<const void*>> slabs;  // descriptions live until the program is there
    std::deque<mh_weight> matrices;
    std::deque<mh_experts_params> params;
    for (const Share& share : shares) {
      const uint32_t width = share.last - share.first;
      // Slices as core makes them: pointers at the slice, the source's row stride.
      for (int i = 0; i < 4; ++i) slabs.emplace_back();
      auto &gates = *(slabs.end() - 4), &ups = *(slabs.end() - 3), &downs = *(slabs.end() - 2), &biases = slabs.back();
      for (int32_t id : share.ids) {
        const auto e = static_cast<uint32_t>(id);
        gates.push_back(&gate[(e * kFfn + share.first) * kDim]), ups.push_back(&up[(e * kFfn + share.first) * kDim]);
        downs.push_back(&down[e * kDim * kFfn + share.first]), biases.push_back(&bias[e * kDim]);
      }
      const auto count = static_cast<uint32_t>(share.ids.size());
      const auto weight = [&](uint64_t rows, uint64_t cols, uint64_t stride, const std::vector<const void*>& of) {
        mh_weight m{};
        m.size = sizeof m, m.rows = rows, m.cols = cols, m.row_stride_bytes = stride * 4, m.slab_count = count;
        m.slabs = of.data();
        return &matrices.emplace_back(m);
      };
      const mh_weight *g = weight(width, kDim, kDim, gates), *u = weight(width, kDim, kDim, ups);
      const mh_weight *d = weight(kDim, width, kFfn, downs), *b = weight(1, kDim, kDim, biases);
      const mh_activation silu{sizeof silu, MH_ACT_SILU, 0, 0};
      params.push_back({sizeof(mh_experts_params), kExperts, count, 0, share.ids.data(), silu});
      partials.push_back(program.value(kDim));
      const std::vector<const mh_weight*> weights{g, u, d, nullptr, nullptr, share.first == 0 ? b : nullptr};
      EXPECT_EQ(program.op(MH_OP_EXPERTS, &params.back(), weights, {x, ids, w}, {partials.back()}), MH_OK)
          << program.error.text;
    }
    EXPECT_EQ(program.op(MH_OP_ADD, nullptr, {}, partials, {program.boundary(y_at, false, kDim)}), MH_OK);
    EXPECT_EQ(program.create(), MH_OK) << program.error.text;
    EXPECT_EQ(program.run(sequence(0, kTokens, {})), MH_OK) << program.error.text;
    return std::vector<float>(arena.at<float>(y_at), arena.at<float>(y_at) + kTokens * kDim);
  };
  const auto whole = run({{{0, 1, 2, 3}, 0, kFfn}});
  const auto by_expert = run({{{0, 2}, 0, kFfn}, {{1, 3}, 0, kFfn}});
  const auto by_column = run({{{0, 1, 2, 3}, 0, 4}, {{0, 1, 2, 3}, 4, kFfn}});
  double size = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(by_expert[i], whole[i], 1e-6);
    EXPECT_NEAR(by_column[i], whole[i], 1e-6);
    size += std::fabs(whole[i]);
  }
  EXPECT_GT(size, 1) << "the experts did something";
  for (uint32_t c = 0; c < kDim; ++c) EXPECT_EQ(whole[4 * kDim + c], 0) << "a row without an expert is zero";
}

TEST(Rope, RotatesWindowsOfHeadsInBothPairings) {
  constexpr uint32_t kHeads = 2, kCols = 6;  // of each head the last 4 columns turn, through a window
  for (const uint32_t interleaved : {0U, 1U}) {
    Device device(reference(), {{"import", "copy"}});
    Arena arena;
    Program program(device, arena, arena.place(StepData::kBytes));
    const uint64_t x_at = arena.place(8 * kHeads * kCols * 4), y_at = arena.place(8 * kHeads * kCols * 4);
    const auto values = noise(1, 3 * kHeads * kCols);
    std::copy(values.begin(), values.end(), arena.at<float>(x_at));
    std::fill_n(arena.at<float>(y_at), 3 * kHeads * kCols, 5.0F);
    const uint32_t x = program.boundary(x_at, true, kCols * kHeads), y = program.boundary(y_at, false, kCols * kHeads);
    const uint32_t from = program.window(x, kHeads, 4, kCols, 2), to = program.window(y, kHeads, 4, kCols, 2);
    Weight frequencies(1, 2, {1, 0.25F});
    mh_rope_params p{sizeof p, interleaved, 0, 4, 0, 1.5F};
    ASSERT_EQ(program.op(MH_OP_ROPE, &p, {frequencies.get()}, {from}, {to}), MH_OK) << program.error.text;
    ASSERT_EQ(program.create(), MH_OK) << program.error.text;
    ASSERT_EQ(program.run(sequence(7, 3, {})), MH_OK);
    for (uint32_t t = 0; t < 3; ++t)
      for (uint32_t h = 0; h < kHeads; ++h) {
        const float* in = &values[(t * kHeads + h) * kCols];
        const float* out = arena.at<float>(y_at) + (t * kHeads + h) * kCols;
        EXPECT_EQ(out[0], 5) << "outside of the window nothing is written";
        EXPECT_EQ(out[1], 5);
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t a = 2 + (interleaved ? 2 * i : i), b = 2 + (interleaved ? 2 * i + 1 : i + 2);
          const double angle = (7 + t) * (i == 0 ? 1 : 0.25);
          EXPECT_NEAR(out[a], 1.5 * (in[a] * std::cos(angle) - in[b] * std::sin(angle)), 1e-6);
          EXPECT_NEAR(out[b], 1.5 * (in[b] * std::cos(angle) + in[a] * std::sin(angle)), 1e-6);
        }
      }
  }
}

TEST(TakeRows, TakesWhatTheStepAsksForAndRefusesRowsThatAreNotThere) {
  Device device(reference());
  Arena arena;
  Program program(device, arena, arena.place(StepData::kBytes));
  const uint64_t x_at = arena.place(8 * 2 * 4), y_at = arena.place(8 * 2 * 4);
  for (uint32_t i = 0; i < 16; ++i) arena.at<float>(x_at)[i] = static_cast<float>(i);
  const uint32_t x = program.boundary(x_at, true, 2), y = program.boundary(y_at, false, 2, 1, MH_ROWS_OUTPUTS);
  ASSERT_EQ(program.op(MH_OP_TAKE_ROWS, nullptr, {}, {x}, {y}), MH_OK);
  ASSERT_EQ(program.create(), MH_OK);
  StepData step = sequence(0, 4, {});
  step.output_rows = {3, 1};
  ASSERT_EQ(program.run(step), MH_OK);
  const auto* got = arena.at<float>(y_at);
  EXPECT_EQ(std::vector<float>(got, got + 4), (std::vector<float>{6, 7, 2, 3}));
  step.output_rows = {4};
  EXPECT_EQ(program.run(step), MH_INVALID);
  EXPECT_NE(std::strstr(program.error.text, "row 4"), nullptr) << program.error.text;
}

}  // namespace
}  // namespace sdk_test

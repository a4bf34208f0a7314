// Attention over a paged cache: steps of several sequences, block tables in random order, and the mathematics.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "case.h"
#include "op.h"

namespace conform {
namespace {

constexpr double kUlp = 0x1p-23;
constexpr uint32_t kGroup = 1;  // the other group's table is wrong on purpose

// What makes attention differ from the plain one.
struct Style {
  uint32_t format = MH_FORMAT_F32, heads = 4, kv_heads = 2, k_cols = 40, v_cols = 24, window = 0;
  bool sinks = false, v_is_prefix = false;
  float softcap = 0;
};

float through(uint32_t format, float value) {
  if (format == MH_FORMAT_F16) return mh::half_to_float(mh::float_to_half(value));
  if (format == MH_FORMAT_BF16) return mh::bfloat_to_float(mh::float_to_bfloat(value));
  return value;
}

class Attention final : public Op {
 public:
  Attention(Random& random, const Style& style)
      : Op(MH_OP_ATTENTION), style_(style), table_stride_(Limits().table_stride) {
    if (style.sinks) sinks_ = add_weight(std::make_unique<Weight>(random.normals(style.heads, 1), 1, style.heads, 1));
    kv_.size = sizeof kv_, kv_.kind = MH_KV_PAGED, kv_.group = kGroup, kv_.layers = 2, kv_.kv_heads = style.kv_heads;
    kv_.k_cols = style.k_cols, kv_.v_cols = style.v_cols, kv_.v_is_prefix_of_k = style.v_is_prefix;
    kv_.k_format = kv_.v_format = style.format, kv_.block_tokens = 16, kv_.block_count = 96;
    inputs = {{MH_ROWS_TOKENS, style.heads, style.k_cols}, {MH_ROWS_TOKENS, style.kv_heads, style.k_cols}};
    if (!style.v_is_prefix) inputs.push_back({MH_ROWS_TOKENS, style.kv_heads, style.v_cols});
    outputs = {{MH_ROWS_TOKENS, style.heads, style.v_cols}};
    for (const bool with_data : {false, true}) {
      params_[with_data].size = sizeof(mh_attention_params), params_[with_data].layer = 1;
      params_[with_data].kv_desc = &kv_, params_[with_data].window = style.window;
      params_[with_data].scale = 1 / std::sqrt(static_cast<float>(style.k_cols)),
      params_[with_data].softcap = style.softcap;
    }
    free_blocks_.resize(kv_.block_count);
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    random.shuffle(free_blocks_);
  }
  const mh_kv_desc* kv_desc() const override { return &kv_; }
  void set_kv(mh_kv* kv) override { params_[true].kv = kv; }
  bool repeatable() const override { return false; }

  // One row each for sequences that exist, as far as rows go; what is left continues one of them and starts a new one.
  // Blocks that one step leaves are used again from the next one on, so that a step can be run twice.
  Step next_step(Random& random, uint32_t rows) override {
    free_blocks_.insert(free_blocks_.end(), freed_.begin(), freed_.end());  // of the last step
    freed_.clear();
    random.shuffle(free_blocks_);
    std::vector<size_t> running(sequences_.size());
    std::iota(running.begin(), running.end(), 0);
    random.shuffle(running);
    std::vector<std::pair<size_t, uint32_t>> prefills;
    if (!running.empty() && rows > running.size() + 8) {
      const uint32_t chunk = 2 + random.below((rows - static_cast<uint32_t>(running.size())) / 2);
      prefills.emplace_back(running.back(), chunk);
      running.pop_back();
      rows -= chunk;
    }
    if (running.size() > rows) running.resize(rows);
    rows -= static_cast<uint32_t>(running.size());
    if (rows > 0) {
      if (rows == 1)
        running.push_back(sequences_.size());
      else
        prefills.emplace_back(sequences_.size(), rows);
      sequences_.emplace_back();
    }
    Step step;
    step.groups.resize(kGroup + 1);
    step.groups[0].table.assign(size_t{Limits().sequences} * table_stride_, -1);
    order_.clear();
    for (const size_t s : running) add(random, step, s, 1);
    random.shuffle(prefills);
    for (const auto& [s, count] : prefills) add(random, step, s, count);
    return step;
  }

  std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) override {
    Answer y;
    for (size_t s = 0; s < order_.size(); ++s) {
      Sequence& sequence = sequences_[order_[s]];
      for (auto r = static_cast<size_t>(step.sequence_rows[s]); r < static_cast<size_t>(step.sequence_rows[s + 1]);
           ++r) {
        remember(sequence.k, in[1], r, style_.k_cols);
        if (!style_.v_is_prefix) remember(sequence.v, in[2], r, style_.v_cols);
        for (uint32_t h = 0; h < style_.heads; ++h)
          attend(sequence, &in[0].reals[(r * style_.heads + h) * style_.k_cols], h,
                 static_cast<uint32_t>(step.positions[r]), y);
      }
    }
    return {y};
  }

 protected:
  const void* params(bool with_data) const override { return &params_[with_data]; }

 private:
  struct Sequence {
    uint32_t length = 0;
    std::vector<int32_t> blocks;  // -1: left behind
    std::vector<float> k, v;      // [length, kv_heads, cols], as the cache stores them
  };

  int32_t take_block() {
    require(!free_blocks_.empty(), "moehost-conform: the test's cache is too small");
    const int32_t block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
  }

  // Adds rows of a sequence: gives back blocks that the window has left, copies a partly filled one, takes new ones.
  void add(Random& random, Step& step, size_t index, uint32_t count) {
    Sequence& sequence = sequences_[index];
    StepGroup& group = step.groups[kGroup];
    const uint32_t first = sequence.length, block_tokens = kv_.block_tokens;
    for (uint32_t b = 0; style_.window && (b + 1) * block_tokens + style_.window <= first + 1; ++b)
      if (sequence.blocks[b] >= 0) {
        freed_.push_back(sequence.blocks[b]);
        sequence.blocks[b] = -1;
      }
    if (first % block_tokens && group.copies.size() < 8 && random.below(2)) {
      const int32_t from = sequence.blocks.back();
      sequence.blocks.back() = take_block();
      group.copies.insert(group.copies.end(), {from, sequence.blocks.back()});
      freed_.push_back(from);
    }
    sequence.length += count;
    while (sequence.blocks.size() * block_tokens < sequence.length) sequence.blocks.push_back(take_block());
    step.add_sequence(count, first);
    group.table.insert(group.table.end(), sequence.blocks.begin(), sequence.blocks.end());
    group.table.resize(step.sequence_lengths.size() * table_stride_, -1);
    order_.push_back(index);
  }

  void remember(std::vector<float>& cache, const Matrix& in, size_t row, uint32_t cols) const {
    const size_t width = size_t{style_.kv_heads} * cols;
    for (size_t c = 0; c < width; ++c) cache.push_back(through(style_.format, in.reals[row * width + c]));
  }

  void attend(const Sequence& sequence, const float* q, uint32_t head, uint32_t position, Answer& y) const {
    const uint32_t kv_head = head / (style_.heads / style_.kv_heads);
    const auto key = [&](uint32_t p) { return &sequence.k[(size_t{p} * style_.kv_heads + kv_head) * style_.k_cols]; };
    const auto value = [&](uint32_t p) {
      return style_.v_is_prefix ? key(p) : &sequence.v[(size_t{p} * style_.kv_heads + kv_head) * style_.v_cols];
    };
    const mh_attention_params& params = params_[0];
    const uint32_t from = style_.window && position + 1 > style_.window ? position + 1 - style_.window : 0;
    std::vector<double> scores;
    double score_bound = 0, top = sinks_ ? sinks_->row(0, 0)[head] : -HUGE_VAL;
    for (uint32_t p = from; p <= position; ++p) {
      double dot = 0, magnitude = 0;
      for (uint32_t c = 0; c < style_.k_cols; ++c) {
        dot += double{q[c]} * key(p)[c];
        magnitude += std::fabs(double{q[c]} * key(p)[c]);
      }
      double score = dot * params.scale;
      if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
      scores.push_back(score);
      score_bound = std::max(score_bound, sum_bound(style_.k_cols, magnitude * params.scale));
      top = std::max(top, score);
    }
    double total = sinks_ ? std::exp(sinks_->row(0, 0)[head] - top) : 0;
    for (double& s : scores) total += s = std::exp(s - top);
    for (uint32_t c = 0; c < style_.v_cols; ++c) {
      double sum = 0, magnitude = 0;
      for (uint32_t p = from; p <= position; ++p) {
        sum += scores[p - from] / total * value(p)[c];
        magnitude += std::fabs(scores[p - from] / total * value(p)[c]);
      }
      // Every probability is off by about its score's error, once itself and once through the total.
      const double n = position + 1 - from;
      y.reals.push_back({sum, (2 * score_bound + 8 * kUlp) * magnitude + 2 * sum_bound(n, magnitude), 0});
    }
  }

  Style style_;
  uint32_t table_stride_;
  const Weight* sinks_ = nullptr;
  mh_kv_desc kv_{};
  mh_attention_params params_[2]{};  // without and with the kv
  std::vector<Sequence> sequences_;
  std::vector<size_t> order_;  // of the sequences of the current step
  std::vector<int32_t> free_blocks_, freed_;
};

}  // namespace

std::vector<OpVariant> attention_ops() {
  std::vector<OpVariant> ops;
  const auto add = [&ops](const std::string& name, const Style& style) {
    ops.push_back({name, false, [=](Random& random, bool) {
                     auto op = std::make_unique<Attention>(random, style);
                     op->name = name;
                     return op;
                   }});
  };
  for (const auto& [suffix, format] :
       {std::pair("f32", MH_FORMAT_F32), std::pair("f16", MH_FORMAT_F16), std::pair("bf16", MH_FORMAT_BF16)}) {
    const auto number = static_cast<uint32_t>(format);
    add(cat("attention/", suffix), {number});
    add(cat("attention/window_", suffix), {number, 4, 2, 40, 24, 24});
    add(cat("attention/latent_", suffix), {number, 6, 1, 72, 64, 0, false, true});
  }
  add("attention/one_head_each", {MH_FORMAT_F32, 3, 3, 64, 64});
  add("attention/sinks_window", {MH_FORMAT_F32, 4, 1, 32, 32, 40, true});
  add("attention/sinks", {MH_FORMAT_F32, 4, 2, 32, 32, 0, true});
  add("attention/softcap", {MH_FORMAT_F32, 4, 2, 32, 32, 0, false, false, 2});
  return ops;
}

}  // namespace conform

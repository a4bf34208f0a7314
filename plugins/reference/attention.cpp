// Attention of the reference over a paged cache: K and V of the step are written first, then every query sums over the
// keys that it sees, one after another in the order of their positions. A row depends on itself and its cache alone.
#include "ops.h"

namespace reference {
namespace {

struct Buffers {
  double* scores;  // [heads of a kv head, tokens in the cache at most]
  double* sums;    // [heads of a kv head, Cv]
  float* row;      // [Ck]
  Buffers(Scratch& scratch, const mh_kv_desc& kv, uint32_t heads)
      : scores(scratch.take<double>(mh::checked_mul(heads, uint64_t{kv.block_count} * kv.block_tokens))),
        sums(scratch.take<double>(uint64_t{heads} * kv.v_cols)),
        row(scratch.take<float>(std::max(kv.k_cols, kv.v_cols))) {}
};

// The cache of one sequence in one layer.
class Sequence {
 public:
  Sequence(const mh::PagedKv& kv, uint32_t layer, const int32_t* blocks) : kv_(kv), layer_(layer), blocks_(blocks) {}
  std::byte* k(uint32_t token, uint32_t head) const {
    return kv_.k(layer_, block(token), head) + slot(token) * kv_.k_row_bytes();
  }
  std::byte* v(uint32_t token, uint32_t head) const {
    return kv_.v(layer_, block(token), head) + slot(token) * kv_.v_row_bytes();
  }

 private:
  uint64_t slot(uint32_t token) const { return token % kv_.desc().block_tokens; }
  uint32_t block(uint32_t token) const {
    const int32_t id = blocks_[token / kv_.desc().block_tokens];
    if (id < 0 || static_cast<uint32_t>(id) >= kv_.desc().block_count)
      mh::fail(MH_INVALID, "attention: token ", token, " is in block ", id, " of ", kv_.desc().block_count);
    return static_cast<uint32_t>(id);
  }
  const mh::PagedKv& kv_;
  const uint32_t layer_;
  const int32_t* blocks_;
};

// All heads of one kv head for the query in row r, which is token `position` of its sequence.
void attend(const StoredOp& op, const Call& call, const Sequence& cache, uint32_t r, uint32_t position,
            uint32_t kv_head, uint32_t heads, const Buffers& b) {
  const auto& p = op.params<mh_attention_params>();
  const mh_kv_desc& kv = *p.kv_desc;
  const View &q = call.in[0], &y = call.out[0];
  const uint32_t first = p.window && position >= p.window ? position - p.window + 1 : 0;
  const uint64_t keys = position - first + 1;
  for (uint64_t i = 0; i < keys; ++i) {
    mh::decode_row(kv.k_format, cache.k(first + static_cast<uint32_t>(i), kv_head), kv.k_cols, b.row);
    for (uint32_t h = 0; h < heads; ++h) {
      const double score = double{p.scale} * dot(b.row, q.row(r, kv_head * heads + h), kv.k_cols);
      b.scores[h * keys + i] = p.softcap > 0 ? double{p.softcap} * std::tanh(score / double{p.softcap}) : score;
    }
  }
  const StoredWeight sinks = op.weight(0);
  for (uint32_t h = 0; h < heads; ++h) {  // softmax; a sink takes part of the sum and has no value
    double* scores = b.scores + h * keys;
    const double sink = sinks ? sinks.floats(0, 0)[kv_head * heads + h] : -INFINITY;
    const double top = std::max(sink, *std::max_element(scores, scores + keys));
    double sum = std::exp(sink - top);
    for (uint64_t i = 0; i < keys; ++i) sum += scores[i] = std::exp(scores[i] - top);
    for (uint64_t i = 0; i < keys; ++i) scores[i] /= sum;
  }
  std::fill_n(b.sums, uint64_t{heads} * kv.v_cols, 0.0);
  const uint32_t v_format = kv.v_is_prefix_of_k ? kv.k_format : kv.v_format;
  for (uint64_t i = 0; i < keys; ++i) {
    mh::decode_row(v_format, cache.v(first + static_cast<uint32_t>(i), kv_head), kv.v_cols, b.row);
    for (uint32_t h = 0; h < heads; ++h)
      for (uint32_t c = 0; c < kv.v_cols; ++c)
        b.sums[uint64_t{h} * kv.v_cols + c] += b.scores[h * keys + i] * double{b.row[c]};
  }
  for (uint32_t h = 0; h < heads; ++h)
    for (uint32_t c = 0; c < kv.v_cols; ++c)
      y.row(r, kv_head * heads + h)[c] = static_cast<float>(b.sums[uint64_t{h} * kv.v_cols + c]);
}

}  // namespace

uint64_t attention_scratch(const mh_op_desc& desc) {
  const mh_kv_desc& kv = *static_cast<const mh_attention_params*>(desc.params)->kv_desc;
  Scratch scratch(nullptr);
  Buffers(scratch, kv, desc.in_groups / kv.kv_heads);
  return scratch.bytes();
}

// q [T, H, Ck], k [T, KV, Ck], v [T, KV, Cv] (absent: the first Cv columns of k) -> [T, H, Cv].
void attention(const StoredOp& op, const Call& call) {
  const auto& p = op.params<mh_attention_params>();
  const mh_kv_desc& kv = *p.kv_desc;
  const auto& cache = static_cast<const mh::PagedKv&>(*op.kv());
  const uint32_t heads = op.desc().in_groups / kv.kv_heads;
  Scratch scratch(call.scratch);
  const Buffers buffers(scratch, kv, heads);
  for (uint32_t s = 0; s < call.step.raw().sequences; ++s) {
    const auto begin = static_cast<uint32_t>(call.step.sequence_rows()[s]);
    const auto end = static_cast<uint32_t>(call.step.sequence_rows()[s + 1]);
    const auto length = static_cast<uint32_t>(call.step.sequence_lengths()[s]);
    if (begin > end || end > call.out[0].rows || length < end - begin ||
        length > uint64_t{kv.block_count} * kv.block_tokens)
      mh::fail(MH_INVALID, "attention: sequence ", s, " has rows ", begin, " to ", end, " and ", length, " tokens");
    const Sequence sequence(cache, p.layer, call.step.block_table(kv.group, s));
    const uint32_t start = length - (end - begin);  // tokens that were in the cache before
    for (uint32_t r = begin; r < end && !p.read_only; ++r)
      for (uint32_t h = 0; h < kv.kv_heads; ++h) {
        mh::encode_row(kv.k_format, call.in[1].row(r, h), kv.k_cols, sequence.k(start + r - begin, h));
        if (!kv.v_is_prefix_of_k)
          mh::encode_row(kv.v_format, call.in[2].row(r, h), kv.v_cols, sequence.v(start + r - begin, h));
      }
    for (uint32_t r = begin; r < end; ++r)
      for (uint32_t h = 0; h < kv.kv_heads; ++h) attend(op, call, sequence, r, start + r - begin, h, heads, buffers);
  }
}

}  // namespace reference

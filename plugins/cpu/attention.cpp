// Attention over the paged cache, with online softmax (Milakov and Gimelshein 2018): no memory that grows with the
// context. K and V of the step are written first; then blocks of query rows, a row being one head of one token, walk
// the keys in chunks at fixed positions. A row depends on itself and its cache alone, whatever shares its block.
#include <algorithm>
#include <cmath>

#include "plugins/cpu/ops.h"

namespace mh_cpu {
namespace {

constexpr uint32_t kKeys = 64;  // keys of a chunk; chunk i holds positions [64 i, 64 i + 64)
constexpr uint32_t kRows = 64;  // query rows of a block at most

int row_format(uint32_t id) { return format_index(id); }  // F32, F16 and BF16 come first in both tables
static_assert(kF32.id == 0 && kF16.id == 1);

struct ThreadScratch {
  ThreadScratch(Arena& arena, const mh_kv_desc& kv)
      : v_stride(static_cast<uint32_t>(mh::align_up(kv.v_cols, kGroupRows))),
        keys(arena.array<float>(uint64_t{kv.k_cols} * kKeys)),
        values(arena.array<float>(uint64_t{v_stride} * kKeys)),
        scores(arena.array<float>(kRows * kKeys)),
        sums(arena.array<float>(uint64_t{kRows} * v_stride)),
        top(arena.array<float>(kRows)),
        weight(arena.array<float>(kRows)),
        rows(arena.array<const float*>(kRows)) {}
  uint32_t v_stride;
  float* keys;          // [Ck, kKeys]: a chunk, transposed
  float* values;        // [kKeys, v_stride]
  float* scores;        // [kRows, kKeys]
  float* sums;          // [kRows, v_stride]: of exp(score - top) * value
  float *top, *weight;  // [kRows]: largest score so far, sum of exp(score - top)
  const float** rows;   // [kRows]
};

// One sequence of the step in one layer of the cache.
struct Sequence {
  const mh::PagedKv* kv;
  const int32_t* blocks;
  uint32_t layer, first_row, rows, length;  // rows of the step; tokens in the cache with them
  uint32_t position(uint32_t row) const { return length - rows + row; }
  std::byte* k(uint32_t token, uint32_t head) const {
    return kv->k(layer, block(token), head) + slot(token) * kv->k_row_bytes();
  }
  std::byte* v(uint32_t token, uint32_t head) const {
    return kv->v(layer, block(token), head) + slot(token) * kv->v_row_bytes();
  }
  uint64_t slot(uint32_t token) const { return token % kv->desc().block_tokens; }
  uint32_t block(uint32_t token) const { return static_cast<uint32_t>(blocks[token / kv->desc().block_tokens]); }
};

class Attention {
 public:
  Attention(const Cpu& cpu, const PackedOp& op, const Call& call)
      : cpu_(cpu),
        op_(op),
        call_(call),
        p_(op.params<mh_attention_params>()),
        kv_(*p_.kv_desc),
        heads_(op.desc().in_groups / kv_.kv_heads) {
    for (uint32_t s = 0; s < call.step.raw().sequences; ++s) check(s, sequence(s));
    Arena arena(nullptr);
    ThreadScratch one(arena, kv_);
    thread_bytes_ = arena.bytes();
  }

  void run() const {
    const uint32_t tokens = call_.out[0].rows, sequences = call_.step.raw().sequences;
    // Small blocks where there are few rows, so that all threads have some.
    uint32_t block = kRows;
    while (block > heads_ && block > 8 && ceil_div(tokens * heads_, block) * kv_.kv_heads < 2 * cpu_.pool.threads())
      block /= 2;
    const uint32_t pieces = blocks_before(sequences, block) * kv_.kv_heads;
    const auto write = [&](uint32_t token, uint32_t) { write_token(token); };
    const auto attend = [&](uint32_t piece, uint32_t thread) {
      const uint32_t index = piece / kv_.kv_heads;
      uint32_t s = 0;
      while (blocks_before(s + 1, block) <= index) ++s;
      attend_block(sequence(s), piece % kv_.kv_heads, (index - blocks_before(s, block)) * block, block, thread);
    };
    cpu_.pool.run({{p_.read_only ? 0 : tokens, write}, {pieces, attend}});
  }

 private:
  Sequence sequence(uint32_t s) const {
    const int32_t* rows = call_.step.sequence_rows();
    return {static_cast<const mh::PagedKv*>(op_.kv()),
            call_.step.block_table(kv_.group, s),
            p_.layer,
            static_cast<uint32_t>(rows[s]),
            static_cast<uint32_t>(rows[s + 1] - rows[s]),
            static_cast<uint32_t>(call_.step.sequence_lengths()[s])};
  }
  // Blocks of query rows in all sequences before s.
  uint32_t blocks_before(uint32_t s, uint32_t block) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < s; ++i) sum += ceil_div(sequence(i).rows * heads_, block);
    return sum;
  }
  // The first key that the row at `position` sees.
  uint32_t first_key(uint32_t position) const {
    return p_.window && position >= p_.window ? position - p_.window + 1 : 0;
  }

  void check(uint32_t s, const Sequence& sequence) const {
    if (uint64_t{sequence.first_row} + sequence.rows > call_.out[0].rows || sequence.length < sequence.rows)
      mh::fail(MH_INVALID, "attention: sequence ", s, " has rows ", sequence.first_row, " to ",
               uint64_t{sequence.first_row} + sequence.rows, " of ", call_.out[0].rows, " and ", sequence.length,
               " tokens");
    if (sequence.rows == 0) return;
    const uint32_t seen = first_key(sequence.position(0)) / kv_.block_tokens;
    for (uint32_t b = seen; b <= (sequence.length - 1) / kv_.block_tokens; ++b)
      if (sequence.blocks[b] < 0 || static_cast<uint32_t>(sequence.blocks[b]) >= kv_.block_count)
        mh::fail(MH_INVALID, "attention: sequence ", s, " has its tokens from ", b * kv_.block_tokens, " in block ",
                 sequence.blocks[b], " of ", kv_.block_count);
  }

  void write_token(uint32_t token) const {
    uint32_t s = 0;
    while (s + 1 < call_.step.raw().sequences && static_cast<uint32_t>(call_.step.sequence_rows()[s + 1]) <= token) ++s;
    const Sequence to = sequence(s);
    const uint32_t position = to.position(token - to.first_row);
    for (uint32_t h = 0; h < kv_.kv_heads; ++h) {
      cpu_.kernels.store_row[row_format(kv_.k_format)](call_.in[1].row(token, h), kv_.k_cols, to.k(position, h));
      if (!kv_.v_is_prefix_of_k)
        cpu_.kernels.store_row[row_format(kv_.v_format)](call_.in[2].row(token, h), kv_.v_cols, to.v(position, h));
    }
  }

  // Rows [first, first + block) of the sequence, rows being (token, head of the kv head), token first.
  void attend_block(const Sequence& from, uint32_t kv_head, uint32_t first, uint32_t block, uint32_t thread) const {
    Arena arena(call_.scratch + thread * thread_bytes_);
    const ThreadScratch s(arena, kv_);
    const uint32_t rows = std::min(block, from.rows * heads_ - first);
    const auto token = [&](uint32_t r) { return (first + r) / heads_; };
    const auto head = [&](uint32_t r) { return kv_head * heads_ + (first + r) % heads_; };
    std::fill_n(s.sums, uint64_t{rows} * s.v_stride, 0.0f);
    std::fill_n(s.top, rows, -INFINITY);
    std::fill_n(s.weight, rows, 0.0f);
    const uint32_t begin = first_key(from.position(token(0))) / kKeys * kKeys, end = from.position(token(rows - 1)) + 1;
    for (uint32_t key = begin; key < end; key += kKeys) {
      const uint32_t keys = std::min(kKeys, end - key);
      load_chunk(from, kv_head, key, keys, s);
      for (uint32_t r = 0; r < rows; ++r) s.rows[r] = call_.in[0].row(from.first_row + token(r), head(r));
      cpu_.kernels.tile(s.keys, kKeys, kv_.k_cols, kKeys, s.rows, rows, s.scores, kKeys, false);
      for (uint32_t r = 0; r < rows; ++r) soften(s, r, key, keys, from.position(token(r)));
      for (uint32_t r = 0; r < rows; ++r) s.rows[r] = s.scores + r * kKeys;
      cpu_.kernels.tile(s.values, s.v_stride, keys, s.v_stride, s.rows, rows, s.sums, s.v_stride, true);
    }
    for (uint32_t r = 0; r < rows; ++r) finish(s, r, head(r), call_.out[0].row(from.first_row + token(r), head(r)));
  }

  void load_chunk(const Sequence& from, uint32_t kv_head, uint32_t key, uint32_t keys, const ThreadScratch& s) const {
    // Blocks that the window has left behind are gone: no row sees their keys.
    const uint32_t gone = first_key(from.position(0)) / kv_.block_tokens * kv_.block_tokens;
    for (uint32_t i = 0; i < kKeys; i += kGroupRows) {
      const void* rows[kGroupRows];
      for (uint32_t j = 0; j < kGroupRows; ++j)
        rows[j] = i + j < keys && key + i + j >= gone ? from.k(key + i + j, kv_head) : nullptr;
      cpu_.kernels.transpose[row_format(kv_.k_format)](rows, kv_.k_cols, s.keys + i, kKeys);
    }
    for (uint32_t i = 0; i < keys; ++i) {
      float* row = s.values + uint64_t{i} * s.v_stride;
      std::fill(row + (key + i >= gone ? kv_.v_cols : 0), row + s.v_stride, 0.0f);
      if (key + i >= gone)
        cpu_.kernels.load_row[row_format(from.kv->v_format())](from.v(key + i, kv_head), kv_.v_cols, row);
    }
  }

  // Scores of a row in a chunk become exp(score - top), 0 where the row does not see; what it summed before is scaled
  // to the new top.
  void soften(const ThreadScratch& s, uint32_t r, uint32_t key, uint32_t keys, uint32_t position) const {
    float* scores = s.scores + r * kKeys;
    const uint32_t low = std::min(std::max(first_key(position), key) - key, keys);
    const uint32_t high = position < key ? low : std::max(low, std::min(position - key + 1, keys));
    std::fill(scores, scores + low, 0.0f);
    std::fill(scores + high, scores + keys, 0.0f);
    if (low == high) return;
    const uint32_t count = high - low;
    cpu_.kernels.scale(scores + low, count, p_.scale);
    if (p_.softcap != 0) cpu_.kernels.softcap(scores + low, count, p_.softcap);
    const float top = std::max(s.top[r], cpu_.kernels.max_row(scores + low, count));
    const float shrink = std::exp(s.top[r] - top);
    s.weight[r] = s.weight[r] * shrink + cpu_.kernels.exp_row(scores + low, count, top);
    if (shrink != 1) cpu_.kernels.scale(s.sums + uint64_t{r} * s.v_stride, s.v_stride, shrink);
    s.top[r] = top;
  }

  // A sink takes part in the softmax and has no value.
  void finish(const ThreadScratch& s, uint32_t r, uint32_t head, float* out) const {
    const Vector& sinks = op_.vector(0);
    float factor = 1 / s.weight[r];
    if (sinks) {
      const float sink = sinks.slab(0)[head], top = std::max(s.top[r], sink), mine = std::exp(s.top[r] - top);
      factor = mine / (s.weight[r] * mine + std::exp(sink - top));
    }
    float* sums = s.sums + uint64_t{r} * s.v_stride;
    cpu_.kernels.scale(sums, kv_.v_cols, factor);
    std::memcpy(out, sums, kv_.v_cols * sizeof(float));
  }

  const Cpu& cpu_;
  const PackedOp& op_;
  const Call& call_;
  const mh_attention_params& p_;
  const mh_kv_desc& kv_;
  const uint32_t heads_;  // query heads of a kv head
  uint64_t thread_bytes_;
};

}  // namespace

uint64_t attention_scratch(const Cpu& cpu, const mh_op_desc& desc) {
  Arena arena(nullptr);
  ThreadScratch(arena, *static_cast<const mh_attention_params*>(desc.params)->kv_desc);
  return arena.bytes() * cpu.pool.threads();
}

// q [T, H, Ck], k [T, KV, Ck], v [T, KV, Cv] (absent: the first Cv columns of k) -> [T, H, Cv].
void attention(const Cpu& cpu, const PackedOp& op, const Call& call) { Attention(cpu, op, call).run(); }

}  // namespace mh_cpu

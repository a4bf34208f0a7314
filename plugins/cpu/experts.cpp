// Feed-forward networks: routed experts, and the dense network as one expert that every token chose with weight 1.
//
// Tokens are grouped by expert and the groups cut into blocks. One job of the pool has two phases: gate, up and
// activation of slices of F for every block; then down, a slice of D for all blocks. The thread that owns a slice of D
// adds the experts in ascending global id, so a sum does not depend on which thread did what.
#include "plugins/cpu/multiply.h"

namespace mh_cpu {
namespace {

struct Pair {
  uint32_t token;
  float weight;
};  // a token that chose the expert of a block
struct Block {
  uint32_t slot, first_pair, tokens;
};  // at most kTokenBlock pairs of one slot
constexpr uint32_t kSliceCols = kSliceGroups * kGroupRows;

// What the op takes at a time, from its description.
struct Limits {
  uint32_t tokens, pairs, slots, blocks, expert_dim;
  Limits(const mh_op_desc& d, uint32_t batch_size, uint32_t dim) : expert_dim(dim) {
    const bool routed = d.kind == MH_OP_EXPERTS;
    slots = routed ? static_cast<const mh_experts_params*>(d.params)->slot_count : 1;
    tokens = std::min(d.max_rows, batch_size);
    pairs = tokens * (routed ? d.in_cols[1] : 1);
    blocks = std::min(pairs, slots + pairs / kTokenBlock);
  }
};

struct ThreadScratch {
  explicit ThreadScratch(Arena& arena)
      : multiply(arena),
        a(arena.array<float>(kTokenBlock * kSliceCols)),
        b(arena.array<float>(kTokenBlock * kSliceCols)) {}
  MultiplyScratch multiply;
  float *a, *b;
};

struct Buffers {
  Pair* pairs;      // by slot, in the order of tokens
  uint32_t* start;  // [slots + 1]
  Block* blocks;
  float* hidden;  // [pairs, F]
  std::byte* threads;
  uint64_t thread_bytes;
  Buffers(Arena& arena, const Limits& limits, uint32_t thread_count)
      : pairs(arena.array<Pair>(limits.pairs)),
        start(arena.array<uint32_t>(limits.slots + 1)),
        blocks(arena.array<Block>(limits.blocks)),
        hidden(arena.array<float>(uint64_t{limits.pairs} * limits.expert_dim)) {
    Arena one(nullptr);
    ThreadScratch scratch(one);
    thread_bytes = one.bytes();
    threads = arena.array<std::byte>(thread_bytes * thread_count);
  }
  ThreadScratch thread(uint32_t index) const {
    Arena arena(threads + index * thread_bytes);
    return ThreadScratch(arena);
  }
};

// Fills pairs and blocks for `tokens` tokens; choice(token, k) is {slot or -1, weight}. Returns the number of blocks.
template <class Choice>
uint32_t group_tokens(const Buffers& b, uint32_t slots, uint32_t tokens, uint32_t choices, const Choice& choice) {
  std::fill_n(b.start, slots + 1, 0);
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t k = 0; k < choices; ++k)
      if (const int32_t slot = choice(t, k).first; slot >= 0) ++b.start[slot + 1];
  for (uint32_t s = 0; s < slots; ++s) b.start[s + 1] += b.start[s];
  uint32_t count = 0;
  for (uint32_t s = 0; s < slots; ++s)
    for (uint32_t p = b.start[s]; p < b.start[s + 1]; p += kTokenBlock)
      b.blocks[count++] = {s, p, std::min(kTokenBlock, b.start[s + 1] - p)};
  for (uint32_t t = 0; t < tokens; ++t)
    for (uint32_t k = 0; k < choices; ++k)
      if (const auto [slot, weight] = choice(t, k); slot >= 0) b.pairs[b.start[slot]++] = {t, weight};
  return count;
}

// One batch of tokens that begins at row `first` of x.
class Batch {
 public:
  Batch(const Cpu& cpu, const PackedOp& op, const Call& call, const Buffers& buffers, uint32_t first, uint32_t tokens)
      : cpu_(cpu),
        op_(op),
        call_(call),
        b_(buffers),
        first_(first),
        tokens_(tokens),
        strict_(op.desc().flags & MH_STRICT),
        weigh_input_(op.params<mh_experts_params>().weigh_input) {}

  void run(uint32_t blocks) const {
    const Matrix &up = op_.matrix(MH_UP), &down = op_.matrix(MH_DOWN);
    const Slices hidden(up, cpu_, std::max(1u, blocks)), out(down, cpu_, 1);
    const auto first = [&](uint32_t piece, uint32_t thread) {
      fill_hidden(b_.blocks[piece / hidden.count], hidden.first(piece % hidden.count),
                  hidden.size(piece % hidden.count, up), b_.thread(thread));
    };
    const auto second = [&](uint32_t piece, uint32_t thread) {
      add_down(blocks, out.first(piece), out.size(piece, down), b_.thread(thread));
    };
    cpu_.pool.run({{blocks * hidden.count, first}, {out.count, second}});
  }

 private:
  // A slice of act(gate x) * up x for a block.
  void fill_hidden(const Block& block, uint32_t group, uint32_t groups, const ThreadScratch& scratch) const {
    const Matrix &gate = op_.matrix(MH_GATE), &up = op_.matrix(MH_UP);
    const uint32_t row = group * kGroupRows, stride = groups * kGroupRows, cols = std::min(stride, up.rows - row);
    const Pair* pairs = b_.pairs + block.first_pair;
    for (uint32_t t = 0; t < block.tokens; ++t) scratch.multiply.x[t] = call_.in[0].row(first_ + pairs[t].token);
    const auto product = [&](const Matrix& m, uint32_t bias_slot, float* y) {
      multiply(cpu_.kernels, m, block.slot, group, groups, scratch.multiply, block.tokens, strict_, y, stride);
      const Vector& bias = op_.vector(bias_slot);
      for (uint32_t t = 0; t < block.tokens; ++t) {
        if (weigh_input_) cpu_.kernels.scale(y + t * stride, cols, pairs[t].weight);
        if (bias) cpu_.kernels.add_scaled(y + t * stride, bias.slab(block.slot) + row, cols, 1);
      }
    };
    product(up, MH_UP_BIAS, scratch.b);
    if (gate) product(gate, MH_GATE_BIAS, scratch.a);
    const mh_activation& act = op_.params<mh_experts_params>().activation;
    for (uint32_t t = 0; t < block.tokens; ++t) {
      const float* b = scratch.b + t * stride;
      float* hidden = b_.hidden + uint64_t{block.first_pair + t} * up.rows + row;
      cpu_.kernels.activate(act.kind, gate ? scratch.a + t * stride : b, gate ? b : nullptr, cols, act.limit, act.alpha,
                            hidden);
    }
  }

  // A slice of the output: all blocks, in ascending id.
  void add_down(uint32_t blocks, uint32_t group, uint32_t groups, const ThreadScratch& scratch) const {
    const Matrix& down = op_.matrix(MH_DOWN);
    const Vector& bias = op_.vector(MH_DOWN_BIAS);
    const View& out = call_.out[0];
    const uint32_t row = group * kGroupRows, stride = groups * kGroupRows, cols = std::min(stride, down.rows - row);
    for (uint32_t t = 0; t < tokens_; ++t) std::memset(out.row(first_ + t) + row, 0, cols * sizeof(float));
    for (uint32_t i = 0; i < blocks; ++i) {
      const Block& block = b_.blocks[i];
      for (uint32_t t = 0; t < block.tokens; ++t)
        scratch.multiply.x[t] = b_.hidden + uint64_t{block.first_pair + t} * down.cols;
      multiply(cpu_.kernels, down, block.slot, group, groups, scratch.multiply, block.tokens, strict_, scratch.a,
               stride);
      for (uint32_t t = 0; t < block.tokens; ++t) {
        const Pair& pair = b_.pairs[block.first_pair + t];
        float* y = scratch.a + t * stride;
        if (bias) cpu_.kernels.add_scaled(y, bias.slab(block.slot) + row, cols, 1);
        cpu_.kernels.add_scaled(out.row(first_ + pair.token) + row, y, cols, weigh_input_ ? 1 : pair.weight);
      }
    }
  }

  const Cpu& cpu_;
  const PackedOp& op_;
  const Call& call_;
  const Buffers& b_;
  const uint32_t first_, tokens_;
  const bool strict_, weigh_input_;
};

// choices: experts a token; choice(row, k) is {slot or -1, weight}.
template <class Choice>
void run_network(const Cpu& cpu, const PackedOp& op, const Call& call, uint32_t choices, const Choice& choice) {
  const Limits limits(op.desc(), cpu.batch_size, op.matrix(MH_UP).rows);
  Arena arena(call.scratch);
  const Buffers buffers(arena, limits, cpu.pool.threads());
  for (uint32_t first = 0; first < call.out[0].rows; first += limits.tokens) {
    if (call.aborted) mh::fail(MH_ABORTED, "aborted between batches of tokens");
    const uint32_t tokens = std::min(limits.tokens, call.out[0].rows - first);
    const uint32_t blocks = group_tokens(buffers, limits.slots, tokens, choices,
                                         [&](uint32_t t, uint32_t k) { return choice(first + t, k); });
    Batch(cpu, op, call, buffers, first, tokens).run(blocks);
  }
}

}  // namespace

uint64_t network_scratch(const Cpu& cpu, const mh_op_desc& desc) {
  Arena arena(nullptr);
  Buffers(arena, Limits(desc, cpu.batch_size, static_cast<uint32_t>(desc.weights[MH_UP]->rows)), cpu.pool.threads());
  return arena.bytes();
}

// x [T, D], ids [T, K], weights [T, K] -> [T, D].
void experts(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const View &ids = call.in[1], &weights = call.in[2];
  run_network(cpu, op, call, ids.cols, [&](uint32_t row, uint32_t k) {
    return std::pair(op.slot_of(ids.row<int32_t>(row)[k]), weights.row(row)[k]);
  });
}

// [T, D] -> [T, D].
void ffn(const Cpu& cpu, const PackedOp& op, const Call& call) {
  run_network(cpu, op, call, 1, [](uint32_t, uint32_t) { return std::pair(int32_t{0}, 1.0f); });
}

}  // namespace mh_cpu

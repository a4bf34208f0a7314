// embed, linear and head_linear: rows of a table, and products with one matrix or one a head.
#include "plugins/cpu/multiply.h"

namespace mh_cpu {
namespace {

struct ThreadScratch {
  explicit ThreadScratch(Arena& arena)
      : multiply(arena), y(arena.array<float>(kTokenBlock * kSliceGroups * kGroupRows)) {}
  MultiplyScratch multiply;
  float* y;
};

// out[t][g] = matrix of slab g times in[t][g], plus bias.
void multiply_groups(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const Matrix& m = op.matrix(0);
  const Vector& bias = op.vector(1);
  const View &in = call.in[0], &out = call.out[0];
  const bool strict = op.desc().flags & MH_STRICT;
  const uint32_t blocks = ceil_div(out.rows, kTokenBlock);
  const Slices slices(m, cpu, blocks * m.slabs);
  Arena arena(call.scratch);
  const uint64_t scratch_bytes = linear_scratch(cpu, op.desc()) / cpu.pool.threads();
  cpu.pool.run(slices.count * m.slabs * blocks, [&](uint32_t piece, uint32_t thread) {
    Arena mine(call.scratch + thread * scratch_bytes);
    const ThreadScratch scratch(mine);
    // Neighbours in time share weights: they are still in the cache for the next block of tokens.
    const uint32_t block = piece % blocks, slice = piece / blocks % slices.count, slab = piece / blocks / slices.count;
    const uint32_t first = block * kTokenBlock, tokens = std::min(kTokenBlock, out.rows - first);
    const uint32_t groups = slices.size(slice, m), row = slices.first(slice) * kGroupRows;
    for (uint32_t t = 0; t < tokens; ++t) scratch.multiply.x[t] = in.row(first + t, slab);
    const uint32_t stride = groups * kGroupRows, cols = std::min(stride, m.rows - row);
    multiply(cpu.kernels, m, slab, slices.first(slice), groups, scratch.multiply, tokens, strict, scratch.y, stride);
    for (uint32_t t = 0; t < tokens; ++t) {
      float* y = out.row(first + t, slab) + row;
      std::memcpy(y, scratch.y + uint64_t{t} * stride, cols * sizeof(float));
      if (bias) cpu.kernels.add_scaled(y, bias.slab(0) + row, cols, 1);
    }
  });
}

}  // namespace

uint64_t linear_scratch(const Cpu& cpu, const mh_op_desc&) {
  Arena arena(nullptr);
  ThreadScratch scratch(arena);
  return arena.bytes() * cpu.pool.threads();
}

// [T, I] -> [T, O].
void linear(const Cpu& cpu, const PackedOp& op, const Call& call) { multiply_groups(cpu, op, call); }

// [T, H, I] -> [T, H, O].
void head_linear(const Cpu& cpu, const PackedOp& op, const Call& call) { multiply_groups(cpu, op, call); }

// token ids -> [T, D]: rows of the table, times factor.
void embed(const Cpu& cpu, const mh::StoredOp& op, const Call& call) {
  const mh::StoredWeight table = op.weight(0);
  const float factor = op.params<mh_embed_params>().factor;
  const View& out = call.out[0];
  for (uint32_t t = 0; t < out.rows; ++t) {
    const int32_t id = call.step.token_ids()[t];
    if (id < 0 || static_cast<uint64_t>(id) >= table.rows)
      mh::fail(MH_INVALID, "embed: token id ", id, " of a table of ", table.rows);
  }
  for_rows(cpu, out.rows, out.cols, [&](uint32_t t, uint32_t) {
    table.decode(0, static_cast<uint64_t>(call.step.token_ids()[t]), out.row(t));
    if (factor != 1) cpu.kernels.scale(out.row(t), out.cols, factor);
  });
}

}  // namespace mh_cpu

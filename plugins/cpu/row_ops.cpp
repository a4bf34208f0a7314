// Ops that take each row by itself: norms, rotary positions, element-wise arithmetic.
#include <cmath>

#include "plugins/cpu/ops.h"

namespace mh_cpu {
namespace {

// f(row, group) for every group of every row of a value.
template <class F>
void for_groups(const Cpu& cpu, const View& out, const F& f) {
  for_rows(cpu, out.rows, uint64_t{out.groups} * out.cols, [&](uint32_t r, uint32_t) {
    for (uint32_t g = 0; g < out.groups; ++g) f(r, g);
  });
}

void copy_cols(const View& from, const View& to, uint32_t from_row, uint32_t to_row, uint32_t g) {
  std::memcpy(to.row(to_row, g), from.row(from_row, g), to.cols * sizeof(float));
}

}  // namespace

// [T, G, C] -> same: w * x / sqrt(mean(x^2) + eps) over C.
void rms_norm(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const Vector& weight = op.vector(0);
  const View &x = call.in[0], &y = call.out[0];
  const uint32_t step = weight.cols == x.cols ? 0 : x.cols;  // one weight for all groups, or one each
  const float eps = op.params<mh_rms_norm_params>().eps;
  for_groups(cpu, y, [&](uint32_t r, uint32_t g) {
    cpu.kernels.rms_norm(x.row(r, g), weight ? weight.slab(0) + uint64_t{g} * step : nullptr, x.cols, eps, y.row(r, g));
  });
}

uint64_t rope_scratch(const Cpu& cpu, const mh_op_desc& desc) {
  Arena arena(nullptr);
  arena.array<float>(static_cast<const mh_rope_params*>(desc.params)->dims * uint64_t{cpu.pool.threads()});
  return arena.bytes();
}

// [T, H, C] -> same: dims [first, first + dims) rotated by position * inverse frequency, the rest as it is.
void rope(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const auto& p = op.params<mh_rope_params>();
  const float* frequencies = op.vector(0).slab(0);
  const View &x = call.in[0], &y = call.out[0];
  const uint32_t pairs = p.dims / 2, apart = p.interleaved ? 1 : pairs, step = p.interleaved ? 2 : 1;
  Arena arena(call.scratch);
  float* const tables = arena.array<float>(p.dims * uint64_t{cpu.pool.threads()});
  for_rows(cpu, y.rows, uint64_t{y.groups} * y.cols + 32 * p.dims, [&](uint32_t t, uint32_t thread) {
    float *cosines = tables + uint64_t{thread} * p.dims, *sines = cosines + pairs;
    for (uint32_t i = 0; i < pairs; ++i) {
      const double angle = double{frequencies[i]} * call.step.positions()[t];  // f32 would lose digits at long contexts
      cosines[i] = static_cast<float>(std::cos(angle) * double{p.magnitude});
      sines[i] = static_cast<float>(std::sin(angle) * double{p.magnitude});
    }
    for (uint32_t h = 0; h < y.groups; ++h) {
      copy_cols(x, y, t, t, h);
      float* v = y.row(t, h) + p.first;
      for (uint32_t i = 0; i < pairs; ++i) {
        float &first = v[i * step], &second = v[i * step + apart];
        const float a = first, b = second;
        first = a * cosines[i] - b * sines[i];
        second = b * cosines[i] + a * sines[i];
      }
    }
  });
}

// a, b? -> act(a) * b.
void activate(const Cpu& cpu, const PackedOp& op, const Call& call) {
  const auto& act = op.params<mh_activation>();
  const View &a = call.in[0], &y = call.out[0];
  for_groups(cpu, y, [&](uint32_t r, uint32_t g) {
    const float* b = call.in_count > 1 ? call.in[1].row(r, g) : nullptr;
    cpu.kernels.activate(act.kind, a.row(r, g), b, y.cols, act.limit, act.alpha, y.row(r, g));
  });
}

// x [T, W], g [T, 1] or [T, W] -> sigmoid(g) * x.
void gate(const Cpu& cpu, const PackedOp&, const Call& call) {
  const View &x = call.in[0], &by = call.in[1], &y = call.out[0];
  for_groups(cpu, y, [&](uint32_t r, uint32_t g) {
    if (by.cols == y.cols)
      return cpu.kernels.activate(kSigmoidTimes, by.row(r, g), x.row(r, g), y.cols, 0, 0, y.row(r, g));
    float factor = by.row(r, g)[0];
    cpu.kernels.activate(kSigmoidTimes, &factor, nullptr, 1, 0, 0, &factor);
    copy_cols(x, y, r, r, g);
    cpu.kernels.scale(y.row(r, g), y.cols, factor);
  });
}

// n values -> their sum, in the listed order.
void add(const Cpu& cpu, const PackedOp&, const Call& call) {
  const View& y = call.out[0];
  for_groups(cpu, y, [&](uint32_t r, uint32_t g) {
    copy_cols(call.in[0], y, r, r, g);
    for (uint32_t i = 1; i < call.in_count; ++i) cpu.kernels.add_scaled(y.row(r, g), call.in[i].row(r, g), y.cols, 1);
  });
}

// x -> factor * x.
void scale(const Cpu& cpu, const PackedOp& op, const Call& call) {
  for_groups(cpu, call.out[0], [&](uint32_t r, uint32_t g) {
    copy_cols(call.in[0], call.out[0], r, r, g);
    cpu.kernels.scale(call.out[0].row(r, g), call.out[0].cols, op.params<mh_embed_params>().factor);
  });
}

// [T, D] -> [R, D]: the rows that the step asks for.
void take_rows(const Cpu& cpu, const PackedOp&, const Call& call) {
  const View &x = call.in[0], &y = call.out[0];
  const int32_t* rows = call.step.output_rows();
  for (uint32_t r = 0; r < y.rows; ++r)
    if (rows[r] < 0 || static_cast<uint32_t>(rows[r]) >= x.rows)
      mh::fail(MH_INVALID, "take_rows: row ", rows[r], " of a step with ", x.rows, " tokens");
  for_groups(cpu, y, [&](uint32_t r, uint32_t g) { copy_cols(x, y, static_cast<uint32_t>(rows[r]), r, g); });
}

}  // namespace mh_cpu

// Ops of the reference that take each row, or each element, by itself.
#include "ops.h"

namespace reference {
namespace {

// out(r, g, c) = f(r, g, c) for every element of a value.
template <class F>
void for_each(const View& out, F&& f) {
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t g = 0; g < out.groups; ++g)
      for (uint32_t c = 0; c < out.cols; ++c) out.row(r, g)[c] = static_cast<float>(f(r, g, c));
}

}  // namespace

// [T, G, C] -> same: w * x / sqrt(mean(x^2) + eps) over C.
void rms_norm(const StoredOp& op, const Call& call) {
  const StoredWeight weight = op.weight(0);
  const View &x = call.in[0], &y = call.out[0];
  const bool shared = weight.cols == x.cols;  // one weight for all groups
  for (uint32_t t = 0; t < y.rows; ++t)
    for (uint32_t g = 0; g < y.groups; ++g) {
      const float* from = x.row(t, g);
      const float* w = weight ? weight.floats(0, 0) + (shared ? 0 : uint64_t{g} * x.cols) : nullptr;
      const double mean = dot(from, from, x.cols) / x.cols;
      const double inverse = 1 / std::sqrt(mean + double{op.params<mh_rms_norm_params>().eps});
      for (uint32_t c = 0; c < x.cols; ++c)
        y.row(t, g)[c] = static_cast<float>((w ? double{w[c]} : 1) * (double{from[c]} * inverse));
    }
}

// [T, H, C] -> same: dims [first, first + dims) rotated by position * inverse frequency, the rest as it is.
void rope(const StoredOp& op, const Call& call) {
  const auto& p = op.params<mh_rope_params>();
  const float* inverse_frequencies = op.weight(0).floats(0, 0);
  const View &x = call.in[0], &y = call.out[0];
  const uint32_t pairs = p.dims / 2;
  for (uint32_t t = 0; t < y.rows; ++t) {
    const double position = call.step.positions()[t];
    for (uint32_t h = 0; h < y.groups; ++h) std::copy_n(x.row(t, h), x.cols, y.row(t, h));
    for (uint32_t i = 0; i < pairs; ++i) {
      const double angle = position * double{inverse_frequencies[i]};
      const double cosine = std::cos(angle) * double{p.magnitude}, sine = std::sin(angle) * double{p.magnitude};
      const uint32_t a = p.first + (p.interleaved ? 2 * i : i), b = p.interleaved ? a + 1 : a + pairs;
      for (uint32_t h = 0; h < y.groups; ++h) {
        const double from_a = x.row(t, h)[a], from_b = x.row(t, h)[b];
        y.row(t, h)[a] = static_cast<float>(from_a * cosine - from_b * sine);
        y.row(t, h)[b] = static_cast<float>(from_b * cosine + from_a * sine);
      }
    }
  }
}

// a, b? -> act(a) * b.
void activate(const StoredOp& op, const Call& call) {
  const View &a = call.in[0], *b = call.in_count > 1 ? &call.in[1] : nullptr;
  for_each(call.out[0], [&](uint32_t r, uint32_t g, uint32_t c) {
    const auto& act = op.params<mh_activation>();
    return b ? gated_activation(act, a.row(r, g)[c], b->row(r, g)[c]) : activation(act, a.row(r, g)[c]);
  });
}

// x [T, W], g [T, 1] or [T, W] -> sigmoid(g) * x.
void gate(const StoredOp&, const Call& call) {
  const View &x = call.in[0], &by = call.in[1];
  for_each(call.out[0], [&](uint32_t r, uint32_t g, uint32_t c) {
    return sigmoid(double{by.row(r, g)[by.cols == 1 ? 0 : c]}) * double{x.row(r, g)[c]};
  });
}

// n values -> their sum, in the listed order.
void add(const StoredOp&, const Call& call) {
  for_each(call.out[0], [&](uint32_t r, uint32_t g, uint32_t c) {
    double sum = 0;
    for (uint32_t i = 0; i < call.in_count; ++i) sum += double{call.in[i].row(r, g)[c]};
    return sum;
  });
}

// x -> factor * x.
void scale(const StoredOp& op, const Call& call) {
  const double factor = op.params<mh_embed_params>().factor;
  for_each(call.out[0], [&](uint32_t r, uint32_t g, uint32_t c) { return factor * double{call.in[0].row(r, g)[c]}; });
}

// [T, D] -> [R, D]: the rows that the step asks for.
void take_rows(const StoredOp&, const Call& call) {
  const View &x = call.in[0], &y = call.out[0];
  for (uint32_t r = 0; r < y.rows; ++r) {
    const int32_t row = call.step.output_rows()[r];
    if (row < 0 || static_cast<uint32_t>(row) >= x.rows)
      mh::fail(MH_INVALID, "take_rows: row ", row, " of a step with ", x.rows, " tokens");
    for (uint32_t g = 0; g < y.groups; ++g) std::copy_n(x.row(static_cast<uint32_t>(row), g), y.cols, y.row(r, g));
  }
}

}  // namespace reference

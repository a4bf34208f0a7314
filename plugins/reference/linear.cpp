// Matrices of the reference: embed, linear, head_linear. A weight row is decoded once a step.
#include "ops.h"

namespace reference {

// -> [T, D]: factor * the table's row of each token.
void embed(const StoredOp& op, const Call& call) {
  const StoredWeight table = op.weight(0);
  const float factor = op.params<mh_embed_params>().factor;
  const View& y = call.out[0];
  for (uint32_t t = 0; t < y.rows; ++t) {
    const int32_t token = call.step.token_ids()[t];
    if (token < 0 || static_cast<uint64_t>(token) >= table.rows)
      mh::fail(MH_INVALID, "embed: token id ", token, " of row ", t, ": 0 to ", table.rows - 1, " are allowed");
    float* to = y.row(t);
    table.decode(0, static_cast<uint64_t>(token), to);
    for (uint32_t c = 0; c < y.cols; ++c) to[c] *= factor;
  }
}

// x [T, I] -> [T, O]: y = W x + bias.
void linear(const StoredOp& op, const Call& call) {
  const StoredWeight weight = op.weight(0), bias = op.weight(1);
  const View &x = call.in[0], &y = call.out[0];
  auto* row = reinterpret_cast<float*>(call.scratch);
  for (uint32_t o = 0; o < y.cols; ++o) {
    weight.decode(0, o, row);
    const double b = bias ? bias.floats(0, 0)[o] : 0;
    for (uint32_t t = 0; t < y.rows; ++t) y.row(t)[o] = static_cast<float>(dot(row, x.row(t), x.cols) + b);
  }
}

// x [T, H, I] -> [T, H, O]: a matrix of its own for each head.
void head_linear(const StoredOp& op, const Call& call) {
  const StoredWeight weight = op.weight(0);
  const View &x = call.in[0], &y = call.out[0];
  auto* row = reinterpret_cast<float*>(call.scratch);
  for (uint32_t h = 0; h < y.groups; ++h)
    for (uint32_t o = 0; o < y.cols; ++o) {
      weight.decode(h, o, row);
      for (uint32_t t = 0; t < y.rows; ++t) y.row(t, h)[o] = static_cast<float>(dot(row, x.row(t, h), x.cols));
    }
}

}  // namespace reference

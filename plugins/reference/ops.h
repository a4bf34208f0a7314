// The ops of the reference, one function each: scalar, f64 accumulation, one thread. They are the oracle of the
// conformance suite and the long form of the one-line definitions in moehost/ops.h.
//
// Letters: T tokens, D model_dim, I input width, O output width, H heads, C columns of a head, E experts, K experts per
// token, F expert_dim.
#pragma once
#include <cmath>

#include "moehost/device.hpp"
#include "moehost/paged_kv.hpp"
#include "moehost/stored_op.hpp"

namespace reference {

using mh::Call;
using mh::StoredOp;
using mh::StoredWeight;
using mh::View;

// linear.cpp
void embed(const StoredOp& op, const Call& call);
void linear(const StoredOp& op, const Call& call);
void head_linear(const StoredOp& op, const Call& call);
// elementwise.cpp
void rms_norm(const StoredOp& op, const Call& call);
void rope(const StoredOp& op, const Call& call);
void activate(const StoredOp& op, const Call& call);
void gate(const StoredOp& op, const Call& call);
void add(const StoredOp& op, const Call& call);
void scale(const StoredOp& op, const Call& call);
void take_rows(const StoredOp& op, const Call& call);
// attention.cpp
void attention(const StoredOp& op, const Call& call);
uint64_t attention_scratch(const mh_op_desc& desc);
// route.cpp
void route(const StoredOp& op, const Call& call);
uint64_t route_scratch(const mh_op_desc& desc);
// experts.cpp
void experts(const StoredOp& op, const Call& call);
void ffn(const StoredOp& op, const Call& call);
uint64_t network_scratch(const mh_op_desc& desc);

// Takes arrays from an op's scratch; with no memory it only counts. The same calls serve both, so they cannot disagree.
class Scratch {
 public:
  explicit Scratch(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(uint64_t count) {
    const uint64_t at = bytes_;
    bytes_ = mh::checked_add(at, mh::align_up(mh::checked_mul(count, sizeof(T))));
    return memory_ ? reinterpret_cast<T*>(memory_ + at) : nullptr;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  uint64_t bytes_ = 0;
};

// Sum of a[i] * b[i]. Eight partial sums, always the same ones: fast enough to serve a small model, and the result
// depends on nothing but a and b.
template <class B>
double dot(const float* a, const B* b, uint64_t n) {
  constexpr uint64_t kLanes = 8;
  double lanes[kLanes] = {};
  uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (uint64_t l = 0; l < kLanes; ++l) lanes[l] += double{a[i + l]} * double{b[i + l]};
  double sum = 0;
  for (; i < n; ++i) sum += double{a[i]} * double{b[i]};
  for (double lane : lanes) sum += lane;
  return sum;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// act(a).
inline double activation(const mh_activation& act, double a) {
  switch (act.kind) {
    case MH_ACT_SILU:
      return a * sigmoid(a);
    case MH_ACT_GELU_TANH:
      return 0.5 * a * (1 + std::tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));  // sqrt(2 / pi)
    case MH_ACT_CLAMPED_SWIGLU: {
      const double x = std::fmin(a, double{act.limit});
      return x * sigmoid(double{act.alpha} * x);
    }
    default:  // MH_ACT_RELU_SQUARED
      return a > 0 ? a * a : 0;
  }
}
// act(a) * b.
inline double gated_activation(const mh_activation& act, double a, double b) {
  const double limit = act.limit;
  if (act.kind == MH_ACT_CLAMPED_SWIGLU) b = std::fmax(-limit, std::fmin(b, limit)) + 1;
  return activation(act, a) * b;
}

}  // namespace reference

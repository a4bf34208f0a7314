// Kernels over rows of floats, for the kernel unit (kernels.cpp) only: norms, activations, softmax, cache rows.
// Sums go over 16 partial sums whatever the vector width, so that all instruction sets give the same bits.
#pragma once
#include "moehost/ops.h"
#include "plugins/cpu/kernels.h"
#include "plugins/cpu/simd.h"

namespace {

constexpr uint32_t kStrip = 16;  // floats a step

// Calls f(offset of a vector in the strip) for the vectors of a strip.
template <class S, class Fn>
MH_INLINE void each_vector(Fn f) {
  MH_UNROLL
  for (uint32_t i = 0; i < kStrip; i += S::kLanes) f(i);
}

// out[i] = f(a[i], b[i]); b may be null, then f gets zeros. The tail goes through padded copies. out may be a or b.
template <class S, class Fn>
MH_INLINE void map(const float* a, const float* b, uint32_t n, float* out, Fn f) {
  const auto strip = [&](const float* pa, const float* pb, float* po) MH_ALWAYS {
    each_vector<S>([&](uint32_t i)
                       MH_ALWAYS { S::fstore(po + i, f(S::fload(pa + i), pb ? S::fload(pb + i) : S::fset(0))); });
  };
  uint32_t k = 0;
  for (; k + kStrip <= n; k += kStrip) strip(a + k, b ? b + k : nullptr, out + k);
  if (k == n) return;
  float ta[kStrip] = {}, tb[kStrip] = {}, to[kStrip];
  memcpy(ta, a + k, (n - k) * sizeof(float));
  if (b) memcpy(tb, b + k, (n - k) * sizeof(float));
  strip(ta, b ? tb : nullptr, to);
  memcpy(out + k, to, (n - k) * sizeof(float));
}

// Folds join(partial, f(v[i])) over 16 partials that begin with `start`, then the partials. f of the padding must not
// change a partial; pad is what it is applied to.
template <class S, class Fn, class Join, class JoinF>
MH_INLINE float fold(const float* v, uint32_t n, float start, float pad, Fn f, Join join, JoinF join_floats) {
  float partial[kStrip], tail[kStrip];
  typename S::F acc[kStrip / S::kLanes];
  for (auto& a : acc) a = S::fset(start);
  const auto strip = [&](const float* p) MH_ALWAYS {
    each_vector<S>([&](uint32_t i) MH_ALWAYS { acc[i / S::kLanes] = join(acc[i / S::kLanes], f(S::fload(p + i))); });
  };
  uint32_t k = 0;
  for (; k + kStrip <= n; k += kStrip) strip(v + k);
  if (k < n) {
    for (float& x : tail) x = pad;
    memcpy(tail, v + k, (n - k) * sizeof(float));
    strip(tail);
  }
  each_vector<S>([&](uint32_t i) { S::fstore(partial + i, acc[i / S::kLanes]); });
  for (uint32_t half = kStrip / 2; half; half /= 2)
    for (uint32_t i = 0; i < half; i++) partial[i] = join_floats(partial[i], partial[i + half]);
  return partial[0];
}

// e^x to about 1 ulp; 0 below -87 (the smallest normal result). 2^n * p(r) with |r| <= ln 2 / 2, p the Taylor
// polynomial to r^7 / 7!, whose rest is below 2^-26 there; ln 2 in two parts (Cody and Waite).
template <class S>
MH_INLINE typename S::F exp_f(typename S::F x) {
  const auto c = [](float v) { return S::fset(v); };
  const auto bounded = S::min(c(88.3f), S::max(c(-87.0f), x));
  const auto n = S::round(S::mul(bounded, c(1.44269504f)));
  const auto r = S::fnma(n, c(-2.12194440e-4f), S::fnma(n, c(0.693359375f), bounded));
  constexpr float kTaylor[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1};
  auto p = c(1.0f / 5040);
  for (const float k : kTaylor) p = S::fma(p, r, c(k));
  return S::zero_below(S::scale2(p, n), x, -87.0f);
}
template <class S>
MH_INLINE typename S::F sigmoid(typename S::F x) {
  const auto one = S::fset(1);
  return S::div(one, S::add(one, exp_f<S>(S::mul(x, S::fset(-1)))));
}
// 2 sigmoid(2x) - 1
template <class S>
MH_INLINE typename S::F tanh_f(typename S::F x) {
  return S::fma(sigmoid<S>(S::add(x, x)), S::fset(2), S::fset(-1));
}

template <class S>
void rms_norm(const float* x, const float* weight, uint32_t n, float eps, float* out) {
  const float squares = fold<S>(
      x, n, 0, 0, [](typename S::F v) { return S::mul(v, v); }, [](auto a, auto b) { return S::add(a, b); },
      [](float a, float b) { return a + b; });
  const auto factor = S::fset(1 / sqrtf(squares / static_cast<float>(n) + eps));
  if (weight)
    map<S>(x, weight, n, out, [&](auto v, auto w) { return S::mul(S::mul(v, factor), w); });
  else
    map<S>(x, nullptr, n, out, [&](auto v, auto) { return S::mul(v, factor); });
}

template <class S, class Fn>
MH_INLINE void activate_with(const float* a, const float* b, uint32_t n, float* out, Fn act) {
  if (b)
    map<S>(a, b, n, out, [&](auto x, auto y) { return S::mul(act(x), y); });
  else
    map<S>(a, nullptr, n, out, [&](auto x, auto) { return act(x); });
}

template <class S>
void activate(uint32_t kind, const float* a, const float* b, uint32_t n, float limit, float alpha, float* out) {
  using V = typename S::F;
  switch (kind) {
    case MH_ACT_SILU:
      return activate_with<S>(a, b, n, out, [](V x) { return S::mul(x, sigmoid<S>(x)); });
    case MH_ACT_RELU_SQUARED:
      return activate_with<S>(a, b, n, out, [](V x) { return S::mul(S::max(S::fset(0), x), S::max(S::fset(0), x)); });
    case MH_ACT_GELU_TANH:  // Hendrycks and Gimpel 2016: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
      return activate_with<S>(a, b, n, out, [](V x) {
        const V cubic = S::fma(S::mul(S::mul(x, x), x), S::fset(0.044715f), x);
        return S::mul(x, sigmoid<S>(S::mul(cubic, S::fset(2 * 0.797884561f))));
      });
    case MH_ACT_CLAMPED_SWIGLU: {
      const auto gate = [&](V x) {
        const V v = S::min(S::fset(limit), x);
        return S::mul(v, sigmoid<S>(S::mul(v, S::fset(alpha))));
      };
      if (!b) return map<S>(a, nullptr, n, out, [&](V x, V) { return gate(x); });
      return map<S>(a, b, n, out, [&](V x, V y) {
        const V up = S::max(S::fset(-limit), S::min(S::fset(limit), y));
        return S::mul(gate(x), S::add(up, S::fset(1)));
      });
    }
    default:
      return activate_with<S>(a, b, n, out, [](V x) { return sigmoid<S>(x); });
  }
}

template <class S>
float max_row(const float* v, uint32_t n) {
  return fold<S>(
      v, n, -INFINITY, -INFINITY, [](auto x) { return x; }, [](auto a, auto b) { return S::max(a, b); },
      [](float a, float b) { return a > b ? a : b; });
}
template <class S>
float exp_row(float* v, uint32_t n, float max) {
  map<S>(v, nullptr, n, v, [&](auto x, auto) { return exp_f<S>(S::add(x, S::fset(-max))); });
  return fold<S>(
      v, n, 0, 0, [](auto x) { return x; }, [](auto a, auto b) { return S::add(a, b); },
      [](float a, float b) { return a + b; });
}
template <class S>
void softcap(float* v, uint32_t n, float cap) {
  map<S>(v, nullptr, n, v, [&](auto x, auto) { return S::mul(tanh_f<S>(S::div(x, S::fset(cap))), S::fset(cap)); });
}
template <class S>
void scale_row(float* v, uint32_t n, float factor) {
  map<S>(v, nullptr, n, v, [&](auto x, auto) { return S::mul(x, S::fset(factor)); });
}
// A product and a sum, each rounded: halves of equal values then add up to the value exactly.
template <class S>
void add_scaled(float* out, const float* v, uint32_t n, float factor) {
  map<S>(out, v, n, out, [&](auto o, auto x) { return S::add(o, S::mul(x, S::fset(factor))); });
}

// Rows of a cache: how kLanes values of a format are read and written.
template <class S>
struct RowF32 {
  static constexpr uint32_t kBytes = 4;
  MH_INLINE typename S::F load(const void* p) { return S::fload(static_cast<const float*>(p)); }
  MH_INLINE void store(void* p, typename S::F v) { S::fstore(static_cast<float*>(p), v); }
};
template <class S>
struct RowF16 {
  static constexpr uint32_t kBytes = 2;
  MH_INLINE typename S::F load(const void* p) { return S::load_f16(p); }
  MH_INLINE void store(void* p, typename S::F v) { S::store_f16(p, v); }
};
template <class S>
struct RowBf16 {
  static constexpr uint32_t kBytes = 2;
  MH_INLINE typename S::F load(const void* p) { return S::load_bf16(p); }
  MH_INLINE void store(void* p, typename S::F v) { S::store_bf16(p, v); }
};

template <class S, class Row>
MH_INLINE void load_strip(const uint8_t* p, float* out) {
  each_vector<S>([&](uint32_t i) MH_ALWAYS { S::fstore(out + i, Row::load(p + i * Row::kBytes)); });
}
template <class S, class Row>
void load_row(const void* row, uint32_t n, float* out) {
  const uint8_t* p = static_cast<const uint8_t*>(row);
  uint32_t k = 0;
  for (; k + kStrip <= n; k += kStrip) load_strip<S, Row>(p + k * Row::kBytes, out + k);
  if (k == n) return;
  uint8_t tail[kStrip * Row::kBytes] = {};
  float values[kStrip];
  memcpy(tail, p + k * Row::kBytes, (n - k) * Row::kBytes);
  load_strip<S, Row>(tail, values);
  memcpy(out + k, values, (n - k) * sizeof(float));
}
template <class S, class Row>
void store_row(const float* row, uint32_t n, void* out) {
  uint8_t* p = static_cast<uint8_t*>(out);
  for (uint32_t k = 0; k < n; k += kStrip) {
    const uint32_t count = n - k < kStrip ? n - k : kStrip;
    float values[kStrip] = {};
    uint8_t bytes[kStrip * Row::kBytes];
    memcpy(values, row + k, count * sizeof(float));
    each_vector<S>([&](uint32_t i) { Row::store(bytes + i * Row::kBytes, S::fload(values + i)); });
    memcpy(p + k * Row::kBytes, bytes, count * Row::kBytes);
  }
}
// 16 columns of 16 rows at a time; the strided stores stay within one small panel.
template <class S, class Row>
void transpose(const void* const* rows, uint32_t n, float* panel, size_t panel_stride) {
  for (uint32_t k = 0; k < n; k += kStrip) {
    const uint32_t count = n - k < kStrip ? n - k : kStrip;
    for (uint32_t r = 0; r < mh_cpu::kGroupRows; r++) {
      float values[kStrip] = {};
      if (rows[r]) load_row<S, Row>(static_cast<const uint8_t*>(rows[r]) + size_t{k} * Row::kBytes, count, values);
      for (uint32_t i = 0; i < count; i++) panel[(k + i) * panel_stride + r] = values[i];
    }
  }
}

}  // namespace

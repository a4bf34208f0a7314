// Kernels over packed weights, for the kernel unit (kernels.cpp) only: templates over an instruction set S and a
// format. A lane is a weight row. T tokens, N row groups walked in lock-step (long streams that the memory system
// likes).
#pragma once
#include "plugins/cpu/format.h"
#include "plugins/cpu/simd.h"

namespace {
using mh_cpu::Format;
using mh_cpu::kGroupRows;
using mh_cpu::kSlotInputs;
using mh_cpu::Scales;

// One value of a plain format for kLanes rows.
template <const Format& F, class S>
MH_INLINE typename S::F load_plain(const uint8_t* p) {
  if constexpr (F.code_bits == 32)
    return S::fload(reinterpret_cast<const float*>(p));
  else if constexpr (F.id == mh_cpu::kF16.id)
    return S::load_f16(p);
  else
    return S::load_bf16(p);
}

// A pair of slots, j and j + 4, of one code group as signed bytes: inputs 4j.. and 16 + 4j... lane: the first row.
template <class S>
struct SlotPair {
  typename S::I low, high;
};
template <const Format& F, class S>
MH_INLINE SlotPair<S> load_slots(const uint8_t* codes, int j, int lane) {
  const uint8_t* p = codes + 4 * lane;
  SlotPair<S> c;
  if constexpr (F.code_bits == 8) {
    c = {S::load(p + 64 * j), S::load(p + 64 * (j + 4))};
  } else {
    const auto v = S::load(p + 64 * j);
    c = {S::low4(v), S::high4(v)};
    if constexpr (F.code_bits == 5) {
      const auto bits = S::load(p + 256);
      c = {S::insert(c.low, bits, 4 - j, 0x10), S::insert(c.high, bits, -j, 0x10)};
    }
    if constexpr (F.code_bits == 6)
      c = {S::insert(c.low, S::load(p + 256), 4 - 2 * j, 0x30), S::insert(c.high, S::load(p + 320), 4 - 2 * j, 0x30)};
  }
  if constexpr (F.codebook) return {S::lookup(c.low, mh_cpu::kMxfp4Codes), S::lookup(c.high, mh_cpu::kMxfp4Codes)};
  if constexpr (F.offset != 0) return {S::sub8(c.low, F.offset), S::sub8(c.high, F.offset)};
  return c;
}

// Scale of code group g of a packed block, for its inputs 0..15 (half 0) or 16..31.
template <const Format& F, class S>
MH_INLINE typename S::F group_scale(const uint8_t* block, int g, int half, int lane) {
  const uint8_t* sub = block + packed_sub_at(F) + lane;
  if constexpr (F.scales == Scales::kE8m0) return S::load_e8m0(block + lane);
  const auto d = S::load_f16(block + 2 * lane);
  if constexpr (F.scales == Scales::kSub6Min) return S::mul(d, S::load_u8(sub + kGroupRows * g));
  if constexpr (F.scales == Scales::kSignedSub) return S::mul(d, S::load_i8(sub + kGroupRows * (2 * g + half)));
  return d;
}
// What is added to scale * code in group g; nothing where the format has no minimums.
template <const Format& F, class S>
MH_INLINE typename S::F group_min(const uint8_t* block, int g, int lane) {
  if constexpr (!has_min(F)) return S::fset(0);
  const auto m = S::load_f16(block + packed_min_at(F) + 2 * lane);
  if constexpr (F.scales == Scales::kHalfMin) return m;
  const auto dwords = S::load(block + packed_sub_min_at(F) + 64 * (g / 4) + 4 * lane);
  return S::mul(m, S::mul(S::byte_f(dwords, g % 4), S::fset(-kByteInverse)));
}

// Sum of 32 inputs, in an order that vectors of 8 would take.
MH_INLINE float sum32(const float* x) {
  float s[8];
  for (int i = 0; i < 8; i++) s[i] = (x[i] + x[i + 8]) + (x[i + 16] + x[i + 24]);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// Adds one code group (32 inputs) of kLanes rows of N row groups, for T tokens, to acc.
template <const Format& F, class S, int N, int T>
MH_INLINE void add_group(const uint8_t* block, size_t stride, int g, int lane, const float* const* x, size_t k,
                         typename S::F (&acc)[T][N]) {
  constexpr bool kTwoScales = F.scales == Scales::kSignedSub;
  typename S::F low[T][N], high[T][N];
  const uint8_t* codes = block + packed_codes_at(F) + g * packed_slots_bytes(F);
  MH_UNROLL
  for (int j = 0; j < 4; j++) MH_UNROLL
  for (int n = 0; n < N; n++) {
    const SlotPair<S> c = load_slots<F, S>(codes + n * stride, j, lane);
    MH_UNROLL
    for (int b = 0; b < 4; b++) {
      const auto wl = S::byte_f(c.low, b), wh = S::byte_f(c.high, b);
      MH_UNROLL
      for (int t = 0; t < T; t++) {
        const auto xl = S::fset(x[t][k + 4 * j + b]), xh = S::fset(x[t][k + 16 + 4 * j + b]);
        low[t][n] = j + b == 0 ? S::mul(wl, xl) : S::fma(wl, xl, low[t][n]);
        high[t][n] = j + b == 0 ? S::mul(wh, xh) : S::fma(wh, xh, high[t][n]);
      }
    }
  }
  const auto inverse = S::fset(kByteInverse);
  MH_UNROLL
  for (int n = 0; n < N; n++) {
    const auto scale = group_scale<F, S>(block + n * stride, g, 0, lane);
    MH_UNROLL
    for (int t = 0; t < T; t++) {
      if constexpr (kTwoScales) {
        const auto scale_high = group_scale<F, S>(block + n * stride, g, 1, lane);
        acc[t][n] = S::fma(S::mul(low[t][n], inverse), scale, acc[t][n]);
        acc[t][n] = S::fma(S::mul(high[t][n], inverse), scale_high, acc[t][n]);
      } else {
        acc[t][n] = S::fma(S::mul(S::add(low[t][n], high[t][n]), inverse), scale, acc[t][n]);
      }
      if constexpr (has_min(F))
        acc[t][n] = S::fma(group_min<F, S>(block + n * stride, g, lane), S::fset(sum32(x[t] + k)), acc[t][n]);
    }
  }
}

template <const Format& F, class S, int N, int T>
MH_INLINE void matvec_coded(const uint8_t* w, size_t stride, uint32_t inputs, const float* const* x, float* y,
                            size_t y_stride) {
  constexpr int kVectors = kGroupRows / S::kLanes;
  typename S::F acc[kVectors][T][N];
  for (int v = 0; v < kVectors; v++)
    for (int t = 0; t < T; t++)
      for (int n = 0; n < N; n++) acc[v][t][n] = S::fset(0);
  for (size_t k = 0; k < inputs; k += F.elements, w += packed_block_bytes(F))
    for (int g = 0; g < F.elements / int{kSlotInputs}; g++)
      for (int v = 0; v < kVectors; v++)
        add_group<F, S, N, T>(w, stride, g, v * S::kLanes, x, k + kSlotInputs * g, acc[v]);
  for (int v = 0; v < kVectors; v++)
    for (int t = 0; t < T; t++)
      for (int n = 0; n < N; n++) S::fstore(y + t * y_stride + kGroupRows * n + S::kLanes * v, acc[v][t][n]);
}

// Even and odd inputs are summed apart, so that additions do not wait for each other.
template <const Format& F, class S, int N, int T>
MH_INLINE void matvec_plain(const uint8_t* w, size_t stride, uint32_t inputs, const float* const* x, float* y,
                            size_t y_stride) {
  constexpr uint32_t kStep = packed_block_bytes(F);
  for (uint32_t lane = 0; lane < kGroupRows; lane += S::kLanes) {
    typename S::F acc[2][T][N];
    for (auto& half : acc)
      for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) half[t][n] = S::fset(0);
    const auto add_input = [&](uint32_t k, typename S::F(&sum)[T][N]) MH_ALWAYS {
      MH_UNROLL
      for (int n = 0; n < N; n++) {
        const auto v = load_plain<F, S>(w + n * stride + size_t{k} * kStep + F.bytes * lane);
        MH_UNROLL
        for (int t = 0; t < T; t++) sum[t][n] = S::fma(v, S::fset(x[t][k]), sum[t][n]);
      }
    };
    for (uint32_t k = 0; k + 1 < inputs; k += 2) add_input(k, acc[0]), add_input(k + 1, acc[1]);
    if (inputs % 2) add_input(inputs - 1, acc[0]);
    for (int t = 0; t < T; t++)
      for (int n = 0; n < N; n++)
        S::fstore(y + t * y_stride + kGroupRows * n + lane, S::add(acc[0][t][n], acc[1][t][n]));
  }
}

// All row groups for T tokens, N groups at a time, the rest one by one.
template <const Format& F, class S, int N, int T>
MH_INLINE void matvec_groups(const uint8_t* w, uint32_t groups, uint32_t inputs, const float* const* x, float* y,
                             size_t y_stride) {
  const size_t stride = size_t{inputs} / F.elements * packed_block_bytes(F);
  uint32_t g = 0;
  const auto step = [&](auto count) MH_ALWAYS {
    constexpr int kCount = sizeof(count);
    if constexpr (is_plain(F))
      matvec_plain<F, S, kCount, T>(w + g * stride, stride, inputs, x, y + kGroupRows * g, y_stride);
    else
      matvec_coded<F, S, kCount, T>(w + g * stride, stride, inputs, x, y + kGroupRows * g, y_stride);
    g += kCount;
  };
  struct Many {
    char count[N];
  };
  while (g + N <= groups) step(Many{});
  if constexpr (N > 1)
    while (g < groups) step(char{});
}

// Row groups walked at a time for T tokens, as measured: more would spill the sums, 3 T a group.
template <class S, int T>
constexpr int kStreams = S::kLanes == 16 && T == 2 ? 4 : 4 / T;

template <const Format& F, class S>
void matvec(const uint8_t* w, uint32_t groups, uint32_t inputs, const float* const* x, uint32_t tokens, float* y,
            size_t y_stride) {
  while (tokens >= 4) {
    matvec_groups<F, S, kStreams<S, 4>, 4>(w, groups, inputs, x, y, y_stride);
    tokens -= 4, x += 4, y += 4 * y_stride;
  }
  if (tokens >= 2) {
    matvec_groups<F, S, kStreams<S, 2>, 2>(w, groups, inputs, x, y, y_stride);
    tokens -= 2, x += 2, y += 2 * y_stride;
  }
  if (tokens) matvec_groups<F, S, kStreams<S, 1>, 1>(w, groups, inputs, x, y, y_stride);
}

template <const Format& F, class S>
void unpack(const uint8_t* w, uint32_t first, uint32_t count, float* panel, size_t panel_stride) {
  w += size_t{first} / F.elements * packed_block_bytes(F);
  for (uint32_t k = 0; k < count; k += F.elements, w += packed_block_bytes(F))
    for (uint32_t lane = 0; lane < kGroupRows; lane += S::kLanes) {
      float* out = panel + k * panel_stride + lane;
      if constexpr (is_plain(F)) {
        S::fstore(out, load_plain<F, S>(w + F.bytes * lane));
      } else {
        for (int g = 0; g < F.elements / int{kSlotInputs}; g++, out += kSlotInputs * panel_stride) {
          const uint8_t* codes = w + packed_codes_at(F) + g * packed_slots_bytes(F);
          const auto low_scale = group_scale<F, S>(w, g, 0, lane), high_scale = group_scale<F, S>(w, g, 1, lane);
          const auto min = group_min<F, S>(w, g, lane);  // once: the stores below might change it, for the compiler
          const auto value = [&](typename S::I c, int b, typename S::F scale) MH_ALWAYS {
            const auto code = S::mul(S::byte_f(c, b), S::fset(kByteInverse));
            if constexpr (has_min(F))
              return S::fma(code, scale, min);
            else
              return S::mul(code, scale);
          };
          MH_UNROLL
          for (int j = 0; j < 4; j++) {
            const auto c = load_slots<F, S>(codes, j, lane);
            MH_UNROLL
            for (int b = 0; b < 4; b++) {
              S::fstore(out + (4 * j + b) * panel_stride, value(c.low, b, low_scale));
              S::fstore(out + (16 + 4 * j + b) * panel_stride, value(c.high, b, high_scale));
            }
          }
        }
      }
    }
}

// T tokens x V vectors of a panel, all sums in registers.
template <class S, int T, int V>
MH_INLINE void tile_block(const float* panel, size_t panel_stride, uint32_t inputs, const float* const* x, float* y,
                          size_t y_stride, bool add) {
  typename S::F acc[T][V];
  MH_UNROLL
  for (int t = 0; t < T; t++) MH_UNROLL
  for (int v = 0; v < V; v++) acc[t][v] = add ? S::fload(y + t * y_stride + v * S::kLanes) : S::fset(0);
  const float* px[T];
  MH_UNROLL
  for (int t = 0; t < T; t++) px[t] = x[t];
  for (size_t k = 0; k < inputs; k++, panel += panel_stride) {
    typename S::F w[V];
    MH_UNROLL
    for (int v = 0; v < V; v++) w[v] = S::fload(panel + v * S::kLanes);
    MH_UNROLL
    for (int t = 0; t < T; t++) {
      const auto xt = S::fset(px[t][k]);
      MH_UNROLL
      for (int v = 0; v < V; v++) acc[t][v] = S::fma(w[v], xt, acc[t][v]);
    }
  }
  MH_UNROLL
  for (int t = 0; t < T; t++) MH_UNROLL
  for (int v = 0; v < V; v++) S::fstore(y + t * y_stride + v * S::kLanes, acc[t][v]);
}

// kTileTokens * 2 sums, 2 weights and 1 input fit in the registers (16, or 32 with AVX-512).
template <class S>
constexpr int kTileTokens = S::kLanes == 16 ? 12 : 6;
constexpr uint32_t kPanelVectors = 2;

// Tokens in blocks of kTileTokens, the rest in one smaller block of T.
template <class S, int V, int T = kTileTokens<S>>
MH_INLINE void tile_tokens(const float* panel, size_t panel_stride, uint32_t inputs, const float* const* x,
                           uint32_t tokens, float* y, size_t y_stride, bool add) {
  while (tokens >= T) {
    tile_block<S, T, V>(panel, panel_stride, inputs, x, y, y_stride, add);
    tokens -= T, x += T, y += T * y_stride;
  }
  if constexpr (T > 1)
    if (tokens) tile_tokens<S, V, T - 1>(panel, panel_stride, inputs, x, tokens, y, y_stride, add);
}

template <class S>
void tile(const float* panel, size_t panel_stride, uint32_t inputs, uint32_t cols, const float* const* x,
          uint32_t tokens, float* y, size_t y_stride, bool add) {
  constexpr uint32_t kCols = kPanelVectors * S::kLanes;
  uint32_t c = 0;
  for (; c + kCols <= cols; c += kCols)
    tile_tokens<S, kPanelVectors>(panel + c, panel_stride, inputs, x, tokens, y + c, y_stride, add);
  if constexpr (kCols > kGroupRows)
    if (c < cols) tile_tokens<S, 1>(panel + c, panel_stride, inputs, x, tokens, y + c, y_stride, add);
}

}  // namespace

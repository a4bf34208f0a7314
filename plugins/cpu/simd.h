// The operations that kernels are written in, three times: Scalar (the twin that tests compare with), Avx2, and Avx512
// (through SIMDe on a machine without it). Kernels are templates over one of these structs.
//
// Every operation is lane-wise, and a kernel fixes the order of its additions, so all three give the same bits.
// Kernel units keep to rules that make them safe to link with code for older CPUs: everything is in one unnamed
// namespace and inlined, no std:: container, no exception, and no constant at namespace scope that needs an
// initialiser.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if MH_SIMD >= 512
#include "plugins/cpu/avx512_or_emulated.h"
#elif MH_SIMD >= 256
#include <immintrin.h>
#endif
#define MH_ALWAYS __attribute__((always_inline))
#define MH_INLINE static inline MH_ALWAYS
// Loops whose bounds are known, so that arrays of vectors live in registers. The tests' units would only compile
// longer.
#if defined(__AVX512F__) || MH_SIMD == 256
#define MH_UNROLL _Pragma("GCC unroll 16")
#else
#define MH_UNROLL
#endif

namespace {

// What `byte_f` multiplies a signed byte by, and its inverse. It puts the byte on top of a dword, which sign-extends it
// without a shift; the scale is exact in f32.
constexpr float kByteOne = 16777216.0f, kByteInverse = 1 / kByteOne;

// Scalar: F is kLanes f32, I is kLanes dwords.
struct Scalar {
  static constexpr int kLanes = 8;
  struct I {
    uint32_t v[kLanes];
  };
  struct F {
    float v[kLanes];
  };
  template <class R, class Fn>
  MH_INLINE R each(Fn f) {
    R r;
    for (int i = 0; i < kLanes; i++) r.v[i] = f(i);
    return r;
  }
  template <class T>
  MH_INLINE T at(const void* p, int i) {
    T t;
    memcpy(&t, static_cast<const char*>(p) + i * sizeof(T), sizeof t);
    return t;
  }
  MH_INLINE float bits_f(uint32_t u) { return at<float>(&u, 0); }
  MH_INLINE float half_f(uint16_t h) {
    const int e = h >> 10 & 31, m = h & 1023;
    const float f = e == 31 ? (m ? NAN : INFINITY) : ldexpf(e ? m | 1024 : m, (e ? e : 1) - 25);
    return h & 0x8000 ? -f : f;
  }
  // Memory. The loads named by a type widen kLanes values of it to f32.
  MH_INLINE I load(const void* p) {
    return each<I>([&](int i) { return at<uint32_t>(p, i); });
  }
  MH_INLINE F fload(const float* p) {
    return each<F>([&](int i) { return p[i]; });
  }
  MH_INLINE void fstore(float* p, F a) { memcpy(p, &a, sizeof a); }
  MH_INLINE F fset(float x) {
    return each<F>([&](int) { return x; });
  }
  MH_INLINE F load_f16(const void* p) {
    return each<F>([&](int i) { return half_f(at<uint16_t>(p, i)); });
  }
  MH_INLINE F load_bf16(const void* p) {
    return each<F>([&](int i) { return bits_f(uint32_t{at<uint16_t>(p, i)} << 16); });
  }
  MH_INLINE F load_u8(const void* p) {
    return each<F>([&](int i) { return float(at<uint8_t>(p, i)); });
  }
  MH_INLINE F load_i8(const void* p) {
    return each<F>([&](int i) { return float(at<int8_t>(p, i)); });
  }
  // 2^(e - 128), also where that is subnormal.
  MH_INLINE F load_e8m0(const void* p) {
    return each<F>([&](int i) {
      const uint32_t e = at<uint8_t>(p, i);
      return bits_f(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    });
  }
  MH_INLINE void store_f16(void* p, F a) {
    for (int i = 0; i < kLanes; i++) {
      const uint16_t h = f_half(a.v[i]);
      memcpy(static_cast<char*>(p) + 2 * i, &h, 2);
    }
  }
  MH_INLINE void store_bf16(void* p, F a) {
    for (int i = 0; i < kLanes; i++) {
      const uint32_t u = at<uint32_t>(&a.v[i], 0), nan = (u & 0x7fffffff) > 0x7f800000;
      const uint16_t h = nan ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
      memcpy(static_cast<char*>(p) + 2 * i, &h, 2);
    }
  }
  // Codes, four bytes a lane.
  MH_INLINE I low4(I a) {
    return each<I>([&](int i) { return a.v[i] & 0x0f0f0f0fu; });
  }
  MH_INLINE I high4(I a) {
    return each<I>([&](int i) { return a.v[i] >> 4 & 0x0f0f0f0fu; });
  }
  // a with the bits of b, shifted left (right where n < 0), that mask keeps in every byte.
  MH_INLINE I insert(I a, I b, int n, uint8_t mask) {
    return each<I>([&](int i) { return a.v[i] | ((n < 0 ? b.v[i] >> -n : b.v[i] << n) & 0x01010101u * mask); });
  }
  MH_INLINE I sub8(I a, uint8_t x) {
    return each<I>([&](int i) {
      uint32_t r = 0;
      for (int b = 0; b < 4; b++) r |= uint32_t{uint8_t((a.v[i] >> 8 * b) - x)} << 8 * b;
      return r;
    });
  }
  MH_INLINE I lookup(I a, const int8_t* table) {
    return each<I>([&](int i) {
      uint32_t r = 0;
      for (int b = 0; b < 4; b++) r |= uint32_t{uint8_t(table[a.v[i] >> 8 * b & 15])} << 8 * b;
      return r;
    });
  }
  MH_INLINE F byte_f(I a, int b) {
    return each<F>([&](int i) { return float(int32_t(a.v[i] << (24 - 8 * b) & 0xff000000u)); });
  }
  // Arithmetic. max and min give b where either is not a number.
  MH_INLINE F add(F a, F b) {
    return each<F>([&](int i) { return a.v[i] + b.v[i]; });
  }
  MH_INLINE F mul(F a, F b) {
    return each<F>([&](int i) { return a.v[i] * b.v[i]; });
  }
  MH_INLINE F div(F a, F b) {
    return each<F>([&](int i) { return a.v[i] / b.v[i]; });
  }
  MH_INLINE F fma(F a, F b, F c) {
    return each<F>([&](int i) { return fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  MH_INLINE F fnma(F a, F b, F c) {
    return each<F>([&](int i) { return fmaf(-a.v[i], b.v[i], c.v[i]); });
  }
  MH_INLINE F max(F a, F b) {
    return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  MH_INLINE F min(F a, F b) {
    return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  MH_INLINE F round(F a) {
    return each<F>([&](int i) { return nearbyintf(a.v[i]); });
  }
  // a * 2^n for an integral n in -126..127.
  MH_INLINE F scale2(F a, F n) {
    return each<F>([&](int i) { return a.v[i] * bits_f(uint32_t(int32_t(n.v[i]) + 127) << 23); });
  }
  // 0 where x < limit, else a.
  MH_INLINE F zero_below(F a, F x, float limit) {
    return each<F>([&](int i) { return x.v[i] < limit ? 0 : a.v[i]; });
  }

 private:
  MH_INLINE uint16_t f_half(float f) {
    const uint32_t u = at<uint32_t>(&f, 0), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return sign | 0x7e00 | (a >> 13 & 0x3ff);
    if (a >= 0x477ff000) return sign | 0x7c00;
    // Below 2^-14 the last place stays at 2^-24.
    if (a < 0x38800000) return sign | uint16_t(nearbyintf(ldexpf(bits_f(a), 24)));
    return sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
  }
};

#if MH_SIMD == 256
struct Avx2 {
  static constexpr int kLanes = 8;
  using I = __m256i;
  using F = __m256;
  MH_INLINE I load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  MH_INLINE F fload(const float* p) { return _mm256_loadu_ps(p); }
  MH_INLINE void fstore(float* p, F a) { _mm256_storeu_ps(p, a); }
  MH_INLINE F fset(float x) { return _mm256_set1_ps(x); }
  MH_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  MH_INLINE __m128i load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  MH_INLINE F load_f16(const void* p) { return _mm256_cvtph_ps(load16(p)); }
  MH_INLINE F load_bf16(const void* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
  }
  MH_INLINE F load_u8(const void* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p))); }
  MH_INLINE F load_i8(const void* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p))); }
  MH_INLINE F load_e8m0(const void* p) {
    const I e = _mm256_cvtepu8_epi32(load8(p)),
            normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const I small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
  }
  MH_INLINE void store_f16(void* p, F a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  MH_INLINE void store_bf16(void* p, F a) {
    const I u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const I near = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    const I quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const I nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)), h = _mm256_blendv_epi8(near, quiet, nan);
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
  }
  MH_INLINE I low4(I a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
  MH_INLINE I high4(I a) { return low4(_mm256_srli_epi16(a, 4)); }
  MH_INLINE I insert(I a, I b, int n, uint8_t mask) {
    const I moved = n < 0 ? _mm256_srli_epi32(b, -n) : _mm256_slli_epi32(b, n);
    return _mm256_or_si256(a, _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask))));
  }
  MH_INLINE I sub8(I a, uint8_t x) { return _mm256_sub_epi8(a, _mm256_set1_epi8(static_cast<char>(x))); }
  MH_INLINE I lookup(I a, const int8_t* table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table)), a);
  }
  MH_INLINE F byte_f(I a, int b) {
    const I low = _mm256_set1_epi32(0x00808080),
            dword = _mm256_setr_epi32(0, 4 << 24, 8 << 24, 12 << 24, 0, 4 << 24, 8 << 24, 12 << 24);
    return _mm256_cvtepi32_ps(
        _mm256_shuffle_epi8(a, _mm256_add_epi32(_mm256_add_epi32(low, dword), _mm256_set1_epi32(b << 24))));
  }
  MH_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  MH_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  MH_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
  MH_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  MH_INLINE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  MH_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
  MH_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
  MH_INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  MH_INLINE F scale2(F a, F n) {
    const I exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(exponent));
  }
  MH_INLINE F zero_below(F a, F x, float limit) { return _mm256_and_ps(a, _mm256_cmp_ps(x, fset(limit), _CMP_NLT_UQ)); }
};
using Simd = Avx2;
#elif MH_SIMD == 512
struct Avx512 {
  static constexpr int kLanes = 16;
  using I = __m512i;
  using F = __m512;
  MH_INLINE I load(const void* p) { return _mm512_loadu_si512(p); }
  MH_INLINE F fload(const float* p) { return _mm512_loadu_ps(p); }
  MH_INLINE void fstore(float* p, F a) { _mm512_storeu_ps(p, a); }
  MH_INLINE F fset(float x) { return _mm512_set1_ps(x); }
  MH_INLINE __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  MH_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  MH_INLINE F load_f16(const void* p) { return _mm512_cvtph_ps(load32(p)); }
  MH_INLINE F load_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
  }
  MH_INLINE F load_u8(const void* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p))); }
  MH_INLINE F load_i8(const void* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p))); }
  MH_INLINE F load_e8m0(const void* p) {
    const I e = _mm512_cvtepu8_epi32(load16(p)),
            normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const I small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(small, _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(1)), normal));
  }
  MH_INLINE void store_f16(void* p, F a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  MH_INLINE void store_bf16(void* p, F a) {
    const I u = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const I near = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    const I quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    const I h = _mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(h));
  }
  MH_INLINE I low4(I a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
  MH_INLINE I high4(I a) { return low4(_mm512_srli_epi16(a, 4)); }
  MH_INLINE I insert(I a, I b, int n, uint8_t mask) {
    const I moved = n < 0 ? _mm512_srli_epi32(b, -n) : _mm512_slli_epi32(b, n);
    return _mm512_or_si512(a, _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(mask))));
  }
  MH_INLINE I sub8(I a, uint8_t x) { return _mm512_sub_epi8(a, _mm512_set1_epi8(static_cast<char>(x))); }
  MH_INLINE I lookup(I a, const int8_t* table) { return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load16(table)), a); }
  MH_INLINE F byte_f(I a, int b) {
    const I low = _mm512_set1_epi32(0x00808080), dword = _mm512_set4_epi32(12 << 24, 8 << 24, 4 << 24, 0);
    return _mm512_cvtepi32_ps(
        _mm512_shuffle_epi8(a, _mm512_add_epi32(_mm512_add_epi32(low, dword), _mm512_set1_epi32(b << 24))));
  }
  MH_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  MH_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  MH_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  MH_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  MH_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  MH_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  MH_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
  MH_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  MH_INLINE F scale2(F a, F n) {
    const I exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(a, _mm512_castsi512_ps(exponent));
  }
  MH_INLINE F zero_below(F a, F x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, fset(limit), _CMP_NLT_UQ), a);
  }
};
using Simd = Avx512;
#else
using Simd = Scalar;
#endif

}  // namespace

// The one include of AVX-512 kernels, in place of <immintrin.h>. With AVX-512 flags it is the compiler's own header;
// with -mavx2 -mfma -mf16c and libsimde-dev the same source runs on an AVX2 machine: slow, and exact. Fills what SIMDe
// 0.7.4 (Debian 12) lacks of what simd.h uses. An intrinsic that neither has is a compile error ("target specific
// option mismatch"), never a wrong result. For GCC, with -Wno-psabi.
#pragma once
#if defined(__AVX512F__)
#include <immintrin.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstdint>
#include <cstring>

namespace {
namespace emulated {

template <class V>
inline __m256i low(V v) {
  __m256i r;
  memcpy(&r, &v, 32);
  return r;
}
template <class V>
inline __m256i high(V v) {
  __m256i r;
  memcpy(&r, reinterpret_cast<const char*>(&v) + 32, 32);
  return r;
}
template <class R, class Half>
inline R join(Half a, Half b) {
  R r;
  memcpy(&r, &a, 32);
  memcpy(reinterpret_cast<char*>(&r) + 32, &b, 32);
  return r;
}
// Each of the N values A in v, converted to B.
template <class R, class A, class B, int N, class V>
inline R convert(V v) {
  A a[N];
  B b[N];
  memcpy(a, &v, sizeof a);
  for (int i = 0; i < N; i++) b[i] = static_cast<B>(a[i]);
  R r;
  static_assert(sizeof r == sizeof b);
  memcpy(&r, b, sizeof r);
  return r;
}
inline __m512 cvtph_ps(__m256i h) {
  return join<__m512>(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
inline __m256i cvtps_ph(__m512 v) {
  const __m128i a = _mm256_cvtps_ph(_mm256_castsi256_ps(low(v)), 0),
                b = _mm256_cvtps_ph(_mm256_castsi256_ps(high(v)), 0);
  return _mm256_set_m128i(b, a);
}
inline __m512 cvtepi32_ps(__m512i v) { return join<__m512>(_mm256_cvtepi32_ps(low(v)), _mm256_cvtepi32_ps(high(v))); }
inline __m512i cvtps_epi32(__m512 v) {
  return join<__m512i>(_mm256_cvtps_epi32(_mm256_castsi256_ps(low(v))),
                       _mm256_cvtps_epi32(_mm256_castsi256_ps(high(v))));
}

}  // namespace emulated
}  // namespace

#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(v) emulated::cvtph_ps(v)
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(v, nearest_only) emulated::cvtps_ph(v)
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) emulated::cvtepi32_ps(v)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(v) emulated::cvtps_epi32(v)
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(v) emulated::convert<__m512i, int8_t, int32_t, 16>(v)
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(v) emulated::convert<__m512i, uint8_t, int32_t, 16>(v)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(v) emulated::convert<__m512i, uint16_t, int32_t, 16>(v)
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(v) emulated::convert<__m256i, int32_t, int16_t, 16>(v)
#endif

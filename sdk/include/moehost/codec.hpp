// codec.hpp - storage formats: sizes of the registry (ops.h), and rows to f32 and back. Header-only C++17, no device.
//
// decode_row is exact to the bit: every product and every sum is rounded on its own, as the formats' reference decoders
// do. ISO mode (-std=c++17, not gnu++17) keeps GCC from fusing them on machines with FMA in their baseline.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops.h"

#pragma GCC visibility push(hidden)
namespace mh {

struct FormatInfo {
  uint32_t number;
  const char* name;
  uint32_t block_elements, block_bytes;
};
// Null for a number that this version of the registry lacks.
inline const FormatInfo* find_format(uint32_t number) {
#define MH_FORMAT_ROW_(name, number, elements, bytes) {number, #name, elements, bytes},
  static constexpr FormatInfo kFormats[] = {MH_FORMATS(MH_FORMAT_ROW_)};
#undef MH_FORMAT_ROW_
  for (const FormatInfo& f : kFormats)
    if (f.number == number) return &f;
  return nullptr;
}
// Bytes of a row; cols is a whole number of blocks of a known format, below 2^50.
inline uint64_t row_bytes(uint32_t format, uint64_t cols) {
  const FormatInfo& f = *find_format(format);
  return cols / f.block_elements * f.block_bytes;
}

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16, exponent = (half >> 10) & 31U, mantissa = half & 1023U;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return sign ? -magnitude : magnitude;
}
// Nearest, ties to even.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffffU;
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;   // NaN
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;  // 65520 and more round to infinity
  if (magnitude < 0x38800000U) {                        // below 2^-14: a multiple of 2^-24; adding 0.5 rounds there
    const float rounded = bits_to_float(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (float_to_bits(rounded) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}
inline float bfloat_to_float(uint16_t bits) { return bits_to_float(static_cast<uint32_t>(bits) << 16); }
// Nearest, ties to even.
inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

namespace codec {

inline uint16_t read_u16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
inline float read_half(const uint8_t* at) { return half_to_float(read_u16(at)); }

// One block each; layouts in the order of the fields. Nibble blocks of 32: byte j holds element j low, j + 16 high.
inline void f32(const uint8_t* in, float* out) { std::memcpy(out, in, sizeof *out); }
inline void f16(const uint8_t* in, float* out) { *out = read_half(in); }
inline void bf16(const uint8_t* in, float* out) { *out = bfloat_to_float(read_u16(in)); }
inline void q8_0(const uint8_t* in, float* out) {  // d, i8[32]
  const float d = read_half(in);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * d;
}
inline void q4_0(const uint8_t* in, float* out) {  // d, nibbles[16]
  const float d = read_half(in);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((in[2 + j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((in[2 + j] >> 4) - 8) * d;
  }
}
inline void q4_1(const uint8_t* in, float* out) {  // d, m, nibbles[16]
  const float d = read_half(in), m = read_half(in + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(in[4 + j] & 15) * d + m;
    out[j + 16] = static_cast<float>(in[4 + j] >> 4) * d + m;
  }
}
// 6-bit scale and minimum of group g of Q4_K and Q5_K.
inline void k_scale(const uint8_t* sc, int g, int& scale, int& minimum) {
  scale = g < 4 ? sc[g] & 63 : (sc[g + 4] & 15) | ((sc[g - 4] >> 6) << 4);
  minimum = g < 4 ? sc[g + 4] & 63 : (sc[g + 4] >> 4) | ((sc[g] >> 6) << 4);
}
inline void k_groups(const uint8_t* in, const uint8_t* high, const uint8_t* nibbles, float* out) {
  const float d = read_half(in), dmin = read_half(in + 2);
  for (int g = 0; g < 8; ++g) {
    int scale = 0, minimum = 0;
    k_scale(in + 4, g, scale, minimum);
    const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      int q = (nibbles[32 * (g / 2) + i] >> (4 * (g & 1))) & 15;
      if (high) q += ((high[i] >> g) & 1) << 4;
      out[32 * g + i] = ds * static_cast<float>(q) - dm;
    }
  }
}
inline void q4_k(const uint8_t* in, float* out) { k_groups(in, nullptr, in + 16, out); }  // d, dmin, sc12, qs128
inline void q5_k(const uint8_t* in, float* out) { k_groups(in, in + 16, in + 48, out); }  // d, dmin, sc12, qh32, qs128
inline void q6_k(const uint8_t* in, float* out) {                                         // ql128, qh64, i8 sc16, d
  const float d = read_half(in + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, k = i % 128 / 32, l = i % 32;
    const int low = (in[64 * half + l + 32 * (k & 1)] >> (k < 2 ? 0 : 4)) & 15;
    const int q = (low | ((in[128 + 32 * half + l] >> (2 * k)) & 3) << 4) - 32;
    const auto scale = static_cast<int8_t>(in[192 + 8 * half + 2 * k + l / 16]);
    out[i] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}
inline void mxfp4(const uint8_t* in, float* out) {  // exponent, nibbles[16]; codes are doubled E2M1
  static constexpr float kCodes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0F, in[0] - 128);
  for (int j = 0; j < 16; ++j) {
    out[j] = kCodes[in[1 + j] & 15] * d;
    out[j + 16] = kCodes[in[1 + j] >> 4] * d;
  }
}

using BlockDecoder = void (*)(const uint8_t* block, float* out);
inline BlockDecoder find_decoder(uint32_t format) {
  switch (format) {
    case MH_FORMAT_F32:
      return f32;
    case MH_FORMAT_F16:
      return f16;
    case MH_FORMAT_BF16:
      return bf16;
    case MH_FORMAT_Q8_0:
      return q8_0;
    case MH_FORMAT_Q4_0:
      return q4_0;
    case MH_FORMAT_Q4_1:
      return q4_1;
    case MH_FORMAT_Q4_K:
      return q4_k;
    case MH_FORMAT_Q5_K:
      return q5_k;
    case MH_FORMAT_Q6_K:
      return q6_k;
    case MH_FORMAT_MXFP4:
      return mxfp4;
    default:
      return nullptr;
  }
}

}  // namespace codec

// Formats that decode_row knows.
inline bool can_decode(uint32_t format) { return codec::find_decoder(format) != nullptr; }
inline constexpr const char* kDecodedFormats = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q4_K Q5_K Q6_K MXFP4";

// bytes: [row_bytes(format, cols)], any alignment, of a format that can_decode. out: [cols].
inline void decode_row(uint32_t format, const void* bytes, uint64_t cols, float* out) {
  if (format == MH_FORMAT_F32) {
    std::memcpy(out, bytes, cols * sizeof(float));
    return;
  }
  const FormatInfo& f = *find_format(format);
  const codec::BlockDecoder decode = codec::find_decoder(format);
  const auto* in = static_cast<const uint8_t*>(bytes);
  for (uint64_t c = 0; c < cols; c += f.block_elements, in += f.block_bytes) decode(in, out + c);
}

// values: [cols] to F32, F16 or BF16, nearest even. out: [row_bytes(format, cols)], any alignment.
inline void encode_row(uint32_t format, const float* values, uint64_t cols, void* out) {
  if (format == MH_FORMAT_F32) {
    std::memcpy(out, values, cols * sizeof(float));
    return;
  }
  auto* to = static_cast<uint8_t*>(out);
  for (uint64_t c = 0; c < cols; ++c) {
    const uint16_t bits = format == MH_FORMAT_F16 ? float_to_half(values[c]) : float_to_bfloat(values[c]);
    std::memcpy(to + 2 * c, &bits, sizeof bits);
  }
}

}  // namespace mh
#pragma GCC visibility pop

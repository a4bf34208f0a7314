// Block codecs: one function a format and direction, found in one table. Floor 2.
// Layouts and formulas: GGUF block types. n elements a block; "nibbles": byte j holds element j low, j + 16 high.
#include "core/format/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "core/base/checked.h"
#include "core/format/dtype.h"

namespace moehost {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are little-endian");
using Byte = uint8_t;

template <class T>
T load(const Byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(Byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
float load_half(const Byte* from) { return half_to_float(load<uint16_t>(from)); }
void store_half(Byte* to, float value) { store(to, float_to_half(value)); }

// a * b rounded to f32 on its own. A double holds the product exactly and the conversion stands between it and a sum,
// so no compiler fuses the two, whatever the flags.
float product(float a, float b) { return static_cast<float>(static_cast<double>(a) * b); }

// value[i] of 32 nibbles at `nibbles`.
template <class Value>
void decode_nibbles(const Byte* nibbles, float* out, Value value) {
  for (int j = 0; j < 16; ++j) {
    out[j] = value(nibbles[j] & 15);
    out[j + 16] = value(nibbles[j] >> 4);
  }
}
template <class Code>
void encode_nibbles(const float* in, Byte* nibbles, Code code) {
  for (int j = 0; j < 16; ++j) nibbles[j] = static_cast<Byte>(code(in[j]) | code(in[j + 16]) << 4);
}
// The reference quantisers divide by the scale through its reciprocal, and leave a zero scale at zero.
float reciprocal(float scale) { return scale != 0 ? 1 / scale : 0; }
// Whole part of a scaled value; 0 where the scale was so small that its reciprocal is infinite (it is stored as 0).
int to_code(float scaled) { return std::isfinite(scaled) ? static_cast<int>(scaled) : 0; }
float largest_magnitude(const float* in) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(in[i]));
  return largest;
}

void decode_f32(const Byte* block, float* out) { *out = load<float>(block); }
void encode_f32(const float* in, Byte* block) { store(block, *in); }
void decode_f16(const Byte* block, float* out) { *out = load_half(block); }
void encode_f16(const float* in, Byte* block) { store_half(block, *in); }
void decode_bf16(const Byte* block, float* out) { *out = bfloat_to_float(load<uint16_t>(block)); }
void encode_bf16(const float* in, Byte* block) { store(block, float_to_bfloat(*in)); }

// Q8_0: d f16, 32 i8; d q.
void decode_q8_0(const Byte* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<int8_t>(block[2 + i]);
}
void encode_q8_0(const float* in, Byte* block) {
  const float d = largest_magnitude(in) / 127, inverse = reciprocal(d);
  store_half(block, d);
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<Byte>(to_code(std::round(in[i] * inverse)));
}

// Q4_0: d f16, nibbles; d (q - 8). The value of the largest magnitude becomes -8.
void decode_q4_0(const Byte* block, float* out) {
  const float d = load_half(block);
  decode_nibbles(block + 2, out, [&](int q) { return d * static_cast<float>(q - 8); });
}
void encode_q4_0(const float* in, Byte* block) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  }
  const float d = extreme / -8, inverse = reciprocal(d);
  store_half(block, d);
  encode_nibbles(in, block + 2, [&](float x) { return std::min(15, to_code(product(x, inverse) + 8.5f)); });
}

// Q4_1: d, m f16, nibbles; d q + m.
void decode_q4_1(const Byte* block, float* out) {
  const float d = load_half(block), m = load_half(block + 2);
  decode_nibbles(block + 4, out, [&](int q) { return product(d, static_cast<float>(q)) + m; });
}
void encode_q4_1(const float* in, Byte* block) {
  const auto [low, high] = std::minmax_element(in, in + 32);
  const float m = *low, d = (*high - m) / 15, inverse = reciprocal(d);
  store_half(block, d);
  store_half(block + 2, m);
  encode_nibbles(in, block + 4, [&](float x) { return std::min(15, to_code(product(x - m, inverse) + 0.5f)); });
}

// Q4_K and Q5_K: d, dmin f16, 12 bytes of 6-bit scales and minima of 8 groups of 32; d scale q - dmin min.
struct ScaleMin {
  int scale, min;
};
ScaleMin group_scale_min(const Byte* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4, (packed[group + 4] >> 4) | (packed[group] >> 6)
                                                                                                   << 4};
}
// high: null, or 32 bytes whose bit `group` is bit 4 of the group's codes.
void decode_k_groups(const Byte* block, const Byte* high, const Byte* codes, float* out) {
  const float d = load_half(block), dmin = load_half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = group_scale_min(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale), min = product(dmin, static_cast<float>(packed.min));
    for (int i = 0; i < 32; ++i) {
      int q = codes[32 * (group / 2) + i] >> (group % 2 ? 4 : 0) & 15;
      if (high) q |= (high[i] >> group & 1) << 4;
      out[32 * group + i] = product(scale, static_cast<float>(q)) - min;
    }
  }
}
void decode_q4_k(const Byte* block, float* out) { decode_k_groups(block, nullptr, block + 16, out); }
void decode_q5_k(const Byte* block, float* out) { decode_k_groups(block, block + 16, block + 48, out); }

// Q6_K: low 4 bits 128, high 2 bits 64, i8 scales 16 (one a group of 16), d f16; d scale (q - 32).
void decode_q6_k(const Byte* block, float* out) {
  const Byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = load_half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int q = (low[64 * half + 32 * (quarter & 1) + l] >> (quarter < 2 ? 0 : 4) & 15) |
                  (high[32 * half + l] >> (2 * quarter) & 3) << 4;
    out[i] = d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(q - 32);
  }
}

// MXFP4: exponent e8m0, nibbles; T[q] 2^(e - 128). T is twice the values of E2M1.
constexpr float kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
float half_e8m0(int exponent) { return std::ldexp(1.0f, exponent - 128); }
void decode_mxfp4(const Byte* block, float* out) {
  const float d = half_e8m0(block[0]);
  decode_nibbles(block + 1, out, [&](int q) { return d * kTwiceE2m1[q]; });
}
void encode_mxfp4(const float* in, Byte* block) {
  // The largest magnitude falls into E2M1's top binade, 4 to 6. The f32 logarithm is the reference's; so is that the
  // exponent wraps below 2^-125, where every code becomes 0.
  const float largest = largest_magnitude(in);
  block[0] = largest > 0 ? static_cast<Byte>(static_cast<int>(std::floor(std::log2(largest))) - 2 + 127) : Byte{0};
  const float d = half_e8m0(block[0]);
  encode_nibbles(in, block + 1, [&](float x) {
    const auto error = [&](float code) { return std::fabs(product(code, d) - x); };
    return static_cast<int>(std::ranges::min_element(kTwiceE2m1, {}, error) - kTwiceE2m1);
  });
}

using Decoder = void (*)(const Byte* blocks, size_t count, float* out);
using Encoder = void (*)(const float* in, size_t count, Byte* blocks);
struct Codec {
  uint32_t format;
  Decoder decode;
  Encoder encode;  // null: no encoder
};
// The loops over blocks, one a format, so that single values (F16) are not a call each.
template <auto kOne, size_t kElements, size_t kBytes>
void decode_each(const Byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) kOne(blocks + i * kBytes, out + i * kElements);
}
template <auto kOne, size_t kElements, size_t kBytes>
void encode_each(const float* in, size_t count, Byte* blocks) {
  for (size_t i = 0; i < count; ++i) kOne(in + i * kElements, blocks + i * kBytes);
}
constexpr auto kCodecs = std::to_array<Codec>({
    {MH_FORMAT_F32, decode_each<decode_f32, 1, 4>, encode_each<encode_f32, 1, 4>},
    {MH_FORMAT_F16, decode_each<decode_f16, 1, 2>, encode_each<encode_f16, 1, 2>},
    {MH_FORMAT_BF16, decode_each<decode_bf16, 1, 2>, encode_each<encode_bf16, 1, 2>},
    {MH_FORMAT_Q8_0, decode_each<decode_q8_0, 32, 34>, encode_each<encode_q8_0, 32, 34>},
    {MH_FORMAT_Q4_0, decode_each<decode_q4_0, 32, 18>, encode_each<encode_q4_0, 32, 18>},
    {MH_FORMAT_Q4_1, decode_each<decode_q4_1, 32, 20>, encode_each<encode_q4_1, 32, 20>},
    {MH_FORMAT_Q4_K, decode_each<decode_q4_k, 256, 144>, nullptr},
    {MH_FORMAT_Q5_K, decode_each<decode_q5_k, 256, 176>, nullptr},
    {MH_FORMAT_Q6_K, decode_each<decode_q6_k, 256, 210>, nullptr},
    {MH_FORMAT_MXFP4, decode_each<decode_mxfp4, 32, 17>, encode_each<encode_mxfp4, 32, 17>},
});

const Codec* find_codec(uint32_t format) {
  const auto found = std::ranges::find(kCodecs, format, &Codec::format);
  return found == kCodecs.end() ? nullptr : &*found;
}

// Number of blocks, when `values` values and `bytes` bytes are the same whole number of them.
Result<size_t> count_blocks(uint32_t format, size_t values, size_t bytes) {
  const FormatInfo& info = *find_format(format);
  if (bytes % info.bytes != 0 || checked_mul(bytes / info.bytes, info.elements) != values) {
    return fail(Code::kBadModel, info.name, ": ", values, " values and ", bytes, " bytes; a block is ", info.elements,
                " values in ", info.bytes, " bytes");
  }
  return bytes / info.bytes;
}

// What `member` of the codecs can do, for the message about a format that cannot.
template <class Member>
Status refuse_format(uint32_t format, const char* what, Member member) {
  std::string known;
  for (const Codec& codec : kCodecs) {
    if (codec.*member) known.append(known.empty() ? "" : " ").append(format_name(codec.format));
  }
  return fail(Code::kBadModel, format_name(format), " cannot be ", what, "; these can: ", known);
}

}  // namespace

Status decode_blocks(uint32_t format, std::span<const std::byte> blocks, std::span<float> out) {
  const Codec* codec = find_codec(format);
  if (!codec) return refuse_format(format, "decoded", &Codec::decode);
  MOEHOST_ASSIGN(const size_t count, count_blocks(format, out.size(), blocks.size()));
  codec->decode(reinterpret_cast<const Byte*>(blocks.data()), count, out.data());
  return {};
}

Status encode_blocks(uint32_t format, std::span<const float> values, std::span<std::byte> out) {
  const Codec* codec = find_codec(format);
  if (!codec || !codec->encode) return refuse_format(format, "encoded", &Codec::encode);
  MOEHOST_ASSIGN(const size_t count, count_blocks(format, values.size(), out.size()));
  // The quantisers turn scaled values into small integers, which has no meaning for NaN and infinity.
  if (find_format(format)->elements > 1) {
    const auto wrong = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (wrong != values.end()) {
      return fail(Code::kBadModel, "value ", wrong - values.begin(), " is ", *wrong, ": ", format_name(format),
                  " takes finite values only");
    }
  }
  codec->encode(values.data(), count, reinterpret_cast<Byte*>(out.data()));
  return {};
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // halfway from the largest half on: infinity
  if (magnitude < 0x1p-14f) {  // subnormal: the sum with 2^-1 rounds to multiples of 2^-24, to nearest even
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rebased = (bits & 0x7fffffff) - (UINT32_C(112) << 23);  // exponent bias 127 to 15
  return static_cast<uint16_t>(sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays a NaN whatever bits are cut
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace moehost

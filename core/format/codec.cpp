// Block codecs: decoding is the SDK's (moehost/codec.hpp), encoding is here, one function a format in one table. Floor 2.
// Layouts and formulas: GGUF block types. "Nibbles": byte j holds element j low, j + 16 high.
#include "core/format/codec.h"

#include <algorithm>
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
void store(Byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
void store_half(Byte* to, float value) { store(to, float_to_half(value)); }

// a * b rounded to f32 on its own. A double holds the product exactly and the conversion stands between it and a sum,
// so no compiler fuses the two, whatever the flags.
float product(float a, float b) { return static_cast<float>(static_cast<double>(a) * b); }

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

void encode_f32(const float* in, Byte* block) { store(block, *in); }
void encode_f16(const float* in, Byte* block) { store_half(block, *in); }
void encode_bf16(const float* in, Byte* block) { store(block, float_to_bfloat(*in)); }

// Q8_0: d f16, 32 i8; d q.
void encode_q8_0(const float* in, Byte* block) {
  const float d = largest_magnitude(in) / 127, inverse = reciprocal(d);
  store_half(block, d);
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<Byte>(to_code(std::round(in[i] * inverse)));
}

// Q4_0: d f16, nibbles; d (q - 8). The value of the largest magnitude becomes -8.
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
void encode_q4_1(const float* in, Byte* block) {
  const auto [low, high] = std::minmax_element(in, in + 32);
  const float m = *low, d = (*high - m) / 15, inverse = reciprocal(d);
  store_half(block, d);
  store_half(block + 2, m);
  encode_nibbles(in, block + 4, [&](float x) { return std::min(15, to_code(product(x - m, inverse) + 0.5f)); });
}

// MXFP4: exponent e8m0, nibbles; T[q] 2^(e - 128). T is twice the values of E2M1.
constexpr float kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
float half_e8m0(int exponent) { return std::ldexp(1.0f, exponent - 128); }
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

struct Codec {
  uint32_t format;
  void (*encode)(const float* in, Byte* block);
};
constexpr Codec kEncoders[] = {{MH_FORMAT_F32, encode_f32},   {MH_FORMAT_F16, encode_f16},   {MH_FORMAT_BF16, encode_bf16},
                               {MH_FORMAT_Q8_0, encode_q8_0}, {MH_FORMAT_Q4_0, encode_q4_0}, {MH_FORMAT_Q4_1, encode_q4_1},
                               {MH_FORMAT_MXFP4, encode_mxfp4}};

// Number of blocks, when `values` values and `bytes` bytes are the same whole number of them.
Result<size_t> count_blocks(uint32_t format, size_t values, size_t bytes) {
  const FormatInfo& info = *find_format(format);
  if (bytes % info.bytes != 0 || checked_mul(bytes / info.bytes, info.elements) != values) {
    return fail(Code::kBadModel, info.name, ": ", values, " values and ", bytes, " bytes; a block is ", info.elements,
                " values in ", info.bytes, " bytes");
  }
  return bytes / info.bytes;
}

}  // namespace

Status decode_blocks(uint32_t format, std::span<const std::byte> blocks, std::span<float> out) {
  if (!mh::can_decode(format))
    return fail(Code::kBadModel, format_name(format), " cannot be decoded; these can: ", mh::kDecodedFormats);
  MOEHOST_RETURN_IF_ERROR(count_blocks(format, out.size(), blocks.size()).status());
  mh::decode_row(format, blocks.data(), out.size(), out.data());
  return {};
}

Status encode_blocks(uint32_t format, std::span<const float> values, std::span<std::byte> out) {
  const auto* codec = std::ranges::find(kEncoders, format, &Codec::format);
  if (codec == std::end(kEncoders)) {
    std::string known;
    for (const Codec& c : kEncoders) known += cat(known.empty() ? "" : " ", format_name(c.format));
    return fail(Code::kBadModel, format_name(format), " cannot be encoded; these can: ", known);
  }
  MOEHOST_ASSIGN(const size_t count, count_blocks(format, values.size(), out.size()));
  // The quantisers turn scaled values into small integers, which has no meaning for NaN and infinity.
  if (find_format(format)->elements > 1) {
    const auto wrong = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (wrong != values.end()) {
      return fail(Code::kBadModel, "value ", wrong - values.begin(), " is ", *wrong, ": ", format_name(format),
                  " takes finite values only");
    }
  }
  const FormatInfo& info = *find_format(format);
  for (size_t i = 0; i < count; ++i)
    codec->encode(values.data() + i * info.elements, reinterpret_cast<Byte*>(out.data()) + i * info.bytes);
  return {};
}

}  // namespace moehost

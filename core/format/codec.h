// Block codecs: bytes of a storage format to f32 and back, exact to the bit. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "moehost/codec.hpp"

namespace moehost {

// Decodes whole blocks. blocks: [n * block bytes], out: [n * block elements] f32. The multiply and the subtraction of
// d*q - m are rounded separately (no FMA), as the format's reference decoder does. Formats: F32 F16 BF16 Q8_0 Q4_0
// Q4_1 Q4_K Q5_K Q6_K MXFP4. Errors: kBadModel for another format, or sizes that do not match. [any thread]
Status decode_blocks(uint32_t format, std::span<const std::byte> blocks, std::span<float> out);

// Encodes rows of f32, to the bytes of the format's reference quantiser. Formats: F32 F16 BF16 Q8_0 Q4_0 Q4_1 MXFP4.
// Errors: kBadModel as above, and for values that are not finite in a format of blocks. [any thread]
Status encode_blocks(uint32_t format, std::span<const float> values, std::span<std::byte> out);

// IEEE binary16 and the upper half of an f32; to nearest, ties to even. [any thread]
using mh::bfloat_to_float;
using mh::float_to_bfloat;
using mh::float_to_half;
using mh::half_to_float;

}  // namespace moehost

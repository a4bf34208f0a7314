// Codecs against vectors of the formats' reference implementation: the committed sample, and all of them where present.
#include "core/format/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/format/dtype.h"
#include "core/format/safetensors.h"

namespace moehost {
namespace {

constexpr uint32_t kDecoded[] = {MH_FORMAT_F16,  MH_FORMAT_BF16, MH_FORMAT_Q8_0, MH_FORMAT_Q4_0, MH_FORMAT_Q4_1,
                                 MH_FORMAT_Q4_K, MH_FORMAT_Q5_K, MH_FORMAT_Q6_K, MH_FORMAT_MXFP4};
constexpr uint32_t kEncoded[] = {MH_FORMAT_F16,  MH_FORMAT_BF16, MH_FORMAT_Q8_0,
                                 MH_FORMAT_Q4_0, MH_FORMAT_Q4_1, MH_FORMAT_MXFP4};

void expect_decodes(const SafetensorsFile& file, const std::string& prefix, uint32_t format) {
  const auto* blocks = file.find(prefix + "blocks");
  const auto values = file.floats(prefix + "values");
  ASSERT_TRUE(blocks && values.ok()) << prefix;
  std::vector<float> decoded(values->size());
  ASSERT_TRUE(decode_blocks(format, blocks->data, decoded).ok());
  for (size_t i = 0; i < decoded.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>((*values)[i]))
        << format_name(format) << " value " << i << ": " << decoded[i] << ", expected " << (*values)[i];
  }
}

void expect_encodes(const SafetensorsFile& file, const std::string& rows_name, const std::string& blocks_name,
                    uint32_t format) {
  const auto rows = file.floats(rows_name);
  const auto* blocks = file.find(blocks_name);
  ASSERT_TRUE(blocks && rows.ok()) << blocks_name;
  std::vector<std::byte> encoded(blocks->data.size());
  ASSERT_TRUE(encode_blocks(format, *rows, encoded).ok());
  for (size_t i = 0; i < encoded.size(); ++i) {
    ASSERT_EQ(encoded[i], blocks->data[i]) << format_name(format) << " byte " << i;
  }
}

TEST(Codec, EqualsTheCommittedSampleOfReferenceVectors) {
  const auto file = SafetensorsFile::open(MOEHOST_SOURCE_DIR "/tests/data/blocks.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const uint32_t format : kDecoded) expect_decodes(*file, format_name(format) + ".", format);
  for (const uint32_t format : kEncoded) expect_encodes(*file, "rows", format_name(format) + ".encoded", format);
}

TEST(Codec, EqualsAllReferenceVectorsBitForBit) {
  const std::string folder = MOEHOST_SHARED_DIR "/data/blocks/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  for (const uint32_t format : kDecoded) {
    const auto file = SafetensorsFile::open(folder + format_name(format) + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    expect_decodes(*file, "", format);
  }
  for (const uint32_t format : kEncoded) {
    const auto file = SafetensorsFile::open(folder + "quantize_" + format_name(format) + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    expect_encodes(*file, "rows", "blocks_ggml", format);
  }
}

TEST(Codec, EveryHalfAndBfloatSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    const float half = half_to_float(stored), bfloat = bfloat_to_float(stored);
    ASSERT_TRUE(std::isnan(half) || float_to_half(half) == stored) << bits;
    ASSERT_TRUE(std::isnan(bfloat) || float_to_bfloat(bfloat) == stored) << bits;
  }
}

TEST(Codec, HalvesRoundToNearestEvenAtEveryMidpoint) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {  // all finite positive halves but the last
    const float low = half_to_float(bits), high = half_to_float(bits + 1), middle = (low + high) / 2;
    const uint16_t even = bits % 2 ? bits + 1 : bits;
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, low)), bits);
    ASSERT_EQ(float_to_half(std::nextafter(middle, high)), bits + 1);
    ASSERT_EQ(float_to_half(-middle), 0x8000 | even);
  }
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
}

TEST(Codec, NansStayNansAndInfinitiesInfinities) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float signalling = std::bit_cast<float>(0x7f800001u);  // its set bit would be cut off
  for (const float x : {nan, -nan, signalling}) {
    EXPECT_TRUE(std::isnan(half_to_float(float_to_half(x))));
    EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(x))));
  }
  EXPECT_EQ(half_to_float(float_to_half(-infinity)), -infinity);
  EXPECT_EQ(bfloat_to_float(float_to_bfloat(infinity)), infinity);
}

TEST(Codec, RefusesSizesThatAreNoWholeBlocks) {
  std::vector<std::byte> bytes(34);
  std::vector<float> values(33);
  EXPECT_EQ(decode_blocks(MH_FORMAT_Q8_0, bytes, values).message(),
            "Q8_0: 33 values and 34 bytes; a block is 32 values in 34 bytes");
  EXPECT_EQ(encode_blocks(MH_FORMAT_Q8_0, values, bytes).code(), Code::kBadModel);
}

TEST(Codec, RefusesFormatsItDoesNotKnowAndSaysWhichItDoes) {
  EXPECT_EQ(encode_blocks(MH_FORMAT_Q4_K, {}, {}).message(),
            "Q4_K cannot be encoded; these can: F32 F16 BF16 Q8_0 Q4_0 Q4_1 MXFP4");
  const Status status = decode_blocks(77, {}, {});
  EXPECT_EQ(status.code(), Code::kBadModel);
  EXPECT_NE(status.message().find("format 77"), std::string::npos);
}

TEST(Codec, RefusesToQuantiseWhatIsNotFinite) {
  std::vector<float> values(32, 1.0f);
  std::vector<std::byte> bytes(34);
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_blocks(MH_FORMAT_Q8_0, values, bytes).message(), "value 3 is inf: Q8_0 takes finite values only");
}

TEST(Formats, RowBytesCountsWholeBlocksAndNothingElse) {
  EXPECT_EQ(row_bytes(MH_FORMAT_Q4_K, 512), std::optional<uint64_t>(288));
  EXPECT_EQ(row_bytes(MH_FORMAT_Q4_K, 100), std::nullopt);
  EXPECT_EQ(row_bytes(MH_FORMAT_F32, UINT64_MAX / 2), std::nullopt);
  EXPECT_EQ(row_bytes(77, 32), std::nullopt);
  EXPECT_EQ(format_name(MH_FORMAT_MXFP4), "MXFP4");
  ASSERT_NE(find_format("Q5_K"), nullptr);
  EXPECT_EQ(find_format("Q5_K")->number, 13u);
  EXPECT_EQ(find_format("Q9"), nullptr);
}

}  // namespace
}  // namespace moehost

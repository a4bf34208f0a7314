// The codecs of the SDK against stored vectors, bit for bit, and f16 and bf16 against all their values.
#include "moehost/codec.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sdk_test {
namespace {

// The bytes of one tensor of a safetensors file.
std::vector<uint8_t> tensor(const std::string& path, const char* name) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const auto offsets = nlohmann::json::parse(header).at(name).at("data_offsets");
  std::vector<uint8_t> bytes(offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>());
  file.seekg(static_cast<std::streamoff>(8 + header_bytes + offsets[0].get<uint64_t>()));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

TEST(Codec, DecodesTheVectorsOfEveryFormatBitForBit) {
  const std::string folder = MOEHOST_SHARED_DIR "/data/blocks/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no block vectors in " << folder;
  for (const char* name : {"F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"}) {
    const std::string path = folder + name + ".safetensors";
    const auto blocks = tensor(path, "blocks"), values = tensor(path, "values");
    const mh::FormatInfo* format = nullptr;
    for (uint32_t n = 0; n < 64 && !format; ++n)
      if (const mh::FormatInfo* f = mh::find_format(n); f && !std::strcmp(f->name, name)) format = f;
    ASSERT_NE(format, nullptr) << name;
    const uint64_t count = values.size() / sizeof(float);
    ASSERT_EQ(mh::row_bytes(format->number, count), blocks.size()) << name;
    std::vector<float> decoded(count);
    mh::decode_row(format->number, blocks.data(), count, decoded.data());
    EXPECT_EQ(std::memcmp(decoded.data(), values.data(), values.size()), 0) << name;
  }
}

TEST(Codec, HalfAndBfloatSurviveTheWayThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const float half = mh::half_to_float(b), bfloat = mh::bfloat_to_float(b);
    ASSERT_TRUE(std::isnan(half) || mh::float_to_half(half) == b) << bits;
    ASSERT_TRUE(std::isnan(bfloat) || mh::float_to_bfloat(bfloat) == b) << bits;
  }
}

TEST(Codec, RoundsToTheNearestHalfAndBfloatAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // every finite half and the one above it
    const float low = mh::half_to_float(static_cast<uint16_t>(bits)),
                high = mh::half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(mh::float_to_half(middle), bits + (bits & 1)) << middle;
    ASSERT_EQ(mh::float_to_half(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(mh::float_to_half(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(mh::float_to_half(65520), 0x7c00) << "half way to 65536 is infinity";
  EXPECT_EQ(mh::float_to_bfloat(mh::bits_to_float(0x3f808000)), 0x3f80);
  EXPECT_EQ(mh::float_to_bfloat(mh::bits_to_float(0x3f818000)), 0x3f82);
}

}  // namespace
}  // namespace sdk_test

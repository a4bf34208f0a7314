// The packed layout: exact both ways for every format.
#include <gtest/gtest.h>

#include "variants.h"

namespace mh_cpu {
namespace {

class Packing : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Packing, ::testing::Range(0u, kFormatCount),
                         [](const auto& test) { return std::string(format_at(test.param).name); });

TEST_P(Packing, ComesBackBitForBitWhateverTheBytes) {
  const Format& f = format_at(GetParam());
  std::mt19937 random(1);
  const uint32_t cols = 3 * f.elements, row_bytes = 3 * f.bytes, stride = row_bytes + 6;
  for (const uint32_t rows : {16u, 5u}) {
    std::vector<std::byte> source(stride * rows), back(source.size());
    for (std::byte& b : source) b = static_cast<std::byte>(random());
    std::vector<uint8_t> group(group_bytes(f, cols), 0xab);
    pack_group(f, source.data(), stride, rows, cols, group.data());
    unpack_group(f, group.data(), rows, cols, back.data(), stride);
    for (uint32_t r = 0; r < rows; ++r)
      EXPECT_EQ(std::memcmp(back.data() + r * stride, source.data() + r * stride, row_bytes), 0) << "row " << r;
  }
}

TEST_P(Packing, TakesTheBytesOfTheFormatPlusWhatByteScalesNeed) {
  const Format& f = format_at(GetParam());
  // 6-bit sub-scales and minimums become bytes: 16 of them take 16 bytes instead of 12 a row.
  const uint64_t growth = f.scales == Scales::kSub6Min ? 16 * 4 : 0;
  EXPECT_EQ(group_bytes(f, f.elements), 16u * f.bytes + growth);
}

TEST_P(Packing, RegistryAgrees) {
  const Format& f = format_at(GetParam());
  const mh::FormatInfo* info = mh::find_format(f.id);
  ASSERT_NE(info, nullptr);
  EXPECT_STREQ(info->name, f.name);
  EXPECT_EQ(info->block_elements, f.elements);
  EXPECT_EQ(info->block_bytes, f.bytes);
  EXPECT_EQ(format_index(f.id), static_cast<int>(GetParam()));
}

}  // namespace
}  // namespace mh_cpu

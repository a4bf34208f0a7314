// Kernels over packed weights: right within f32 rounding, and the same bits from every instruction set.
#include <gtest/gtest.h>

#include "variants.h"

namespace mh_cpu {
namespace {

using namespace mh_cpu_test;

struct Case {
  const KernelTable* table;
  uint32_t format;
};
class WeightKernels : public ::testing::TestWithParam<Case> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
  const KernelTable& scalar() const { return *mh_cpu_kernels_scalar(); }
  const Format& format() const { return format_at(GetParam().format); }
  // Inputs: two blocks, or an odd number where the format allows.
  uint32_t inputs() const {
    return is_plain(format()) ? 137 : 2 * format().elements + (format().elements == 32 ? 32 : 0);
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KernelTable* t : tables())
    for (uint32_t f = 0; f < kFormatCount; ++f) all.push_back({t, f});
  return all;
}
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.table->name) + "_" + format_at(info.param.format).name;
}
INSTANTIATE_TEST_SUITE_P(All, WeightKernels, ::testing::ValuesIn(cases()), case_name);

std::vector<const float*> pointers(const std::vector<float>& x, uint32_t tokens, uint32_t stride) {
  std::vector<const float*> p;
  for (uint32_t t = 0; t < tokens; ++t) p.push_back(x.data() + size_t{t} * stride);
  return p;
}

// What a row of w times x must be, and by how much f32 sums over n terms may differ from it: every term and partial
// sum is rounded, so the error is below n * 2^-24 * sum |w x| with a factor for the few roundings a term takes.
void expect_product(const Weights& w, uint32_t row, const float* x, float got) {
  double sum = 0, size = 0;
  for (uint32_t k = 0; k < w.cols; ++k) {
    const double term = double{w.values[size_t{row} * w.cols + k]} * double{x[k]};
    sum += term, size += std::fabs(term);
  }
  // K-quants subtract a minimum of the same size as the product: the parts may be larger than the values.
  ASSERT_NEAR(got, sum, 8 * w.cols * 0x1p-24 * size) << "row " << row;
}

TEST_P(WeightKernels, MatvecIsTheProductWithinRounding) {
  std::mt19937 random(1);
  const Weights w(random, format(), 16 * 6 + 3, inputs());
  const auto x = normals(random, 7 * w.cols);
  std::vector<float> y(7 * w.groups * 16);
  table().matvec[GetParam().format](w.packed.data(), w.groups, w.cols, pointers(x, 7, w.cols).data(), 7, y.data(),
                                    w.groups * 16);
  for (uint32_t t = 0; t < 7; ++t)
    for (uint32_t r = 0; r < w.rows; ++r) expect_product(w, r, x.data() + t * w.cols, y[t * w.groups * 16 + r]);
}

TEST_P(WeightKernels, MatvecGivesTheBitsOfTheScalarKernelWhateverTheNumberOfTokens) {
  std::mt19937 random(2);
  const Weights w(random, format(), 16 * 5, inputs());
  const auto x = normals(random, 7 * w.cols);
  std::vector<float> one(w.groups * 16), many(7 * w.groups * 16);
  for (const uint32_t tokens : {1u, 2u, 3u, 4u, 7u}) {
    table().matvec[GetParam().format](w.packed.data(), w.groups, w.cols, pointers(x, tokens, w.cols).data(), tokens,
                                      many.data(), w.groups * 16);
    for (uint32_t t = 0; t < tokens; ++t) {
      const float* xt = x.data() + t * w.cols;
      scalar().matvec[GetParam().format](w.packed.data(), w.groups, w.cols, &xt, 1, one.data(), 0);
      ASSERT_EQ(std::memcmp(one.data(), many.data() + t * one.size(), one.size() * sizeof(float)), 0)
          << t << " of " << tokens;
    }
  }
}

TEST_P(WeightKernels, UnpackGivesTheValuesOfTheFormat) {
  std::mt19937 random(3);
  const Weights w(random, format(), 16, inputs());
  const uint32_t first = is_plain(format()) ? 5 : format().elements, count = w.cols - first, stride = 32;
  std::vector<float> panel(size_t{count} * stride), expected(panel.size());
  table().unpack[GetParam().format](w.packed.data(), first, count, panel.data(), stride);
  scalar().unpack[GetParam().format](w.packed.data(), first, count, expected.data(), stride);
  EXPECT_EQ(std::memcmp(panel.data(), expected.data(), panel.size() * sizeof(float)), 0);
  for (uint32_t k = 0; k < count; ++k)
    for (uint32_t r = 0; r < 16; ++r) {
      const float value = w.values[r * w.cols + first + k];
      // Formats with a minimum: code * scale - minimum is rounded once here and twice in the codec.
      const float tolerance = has_min(format()) ? 0x1p-23f * (std::fabs(value) + 64 * 0.02f * 63) : 0;
      ASSERT_NEAR(panel[k * stride + r], value, tolerance) << k << " " << r;
    }
}

class Tables : public ::testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(All, Tables, ::testing::ValuesIn(tables()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(Tables, ScalesOfMxfp4AreExactDownToSubnormals) {
  const Format& f = kMxfp4;
  std::mt19937 random(4);
  for (int exponent = 0; exponent < 252; ++exponent) {
    auto rows = random_rows(random, f, 16, 32);
    for (uint32_t r = 0; r < 16; ++r) rows[r * f.bytes] = static_cast<std::byte>(exponent);
    std::vector<uint8_t> packed(group_bytes(f, 32));
    pack_group(f, rows.data(), f.bytes, 16, 32, packed.data());
    std::vector<float> panel(32 * 16), values(32);
    GetParam()->unpack[format_index(f.id)](packed.data(), 0, 32, panel.data(), 16);
    for (uint32_t r = 0; r < 16; ++r) {
      mh::decode_row(f.id, rows.data() + r * f.bytes, 32, values.data());
      for (uint32_t k = 0; k < 32; ++k) ASSERT_EQ(panel[k * 16 + r], values[k]) << "e " << exponent << ", input " << k;
    }
  }
}

TEST_P(Tables, TileIsTheProductAndEveryTokenHasTheBitsOfTheScalarKernel) {
  std::mt19937 random(5);
  for (const uint32_t cols : {16u, 32u, 48u, 64u}) {
    constexpr uint32_t kInputs = 61;
    const auto panel = normals(random, kInputs * cols), x = normals(random, 27 * kInputs),
               before = normals(random, 27 * cols);
    for (const uint32_t tokens : {1u, 5u, 6u, 12u, 13u, 27u})
      for (const bool add : {false, true}) {
        auto y = before, one = before;
        GetParam()->tile(panel.data(), cols, kInputs, cols, pointers(x, tokens, kInputs).data(), tokens, y.data(), cols,
                         add);
        for (uint32_t t = 0; t < tokens; ++t) {
          const float* xt = x.data() + t * kInputs;
          mh_cpu_kernels_scalar()->tile(panel.data(), cols, kInputs, cols, &xt, 1, one.data() + t * cols, cols, add);
          ASSERT_EQ(std::memcmp(y.data() + t * cols, one.data() + t * cols, cols * sizeof(float)), 0)
              << tokens << " " << t;
          for (uint32_t c = 0; c < cols; ++c) {
            double sum = add ? before[t * cols + c] : 0, size = std::fabs(sum);
            for (uint32_t k = 0; k < kInputs; ++k) {
              const double term = double{panel[k * cols + c]} * double{xt[k]};
              sum += term, size += std::fabs(term);
            }
            ASSERT_NEAR(y[t * cols + c], sum, kInputs * 0x1p-24 * size);
          }
        }
        for (size_t i = tokens * cols; i < y.size(); ++i) ASSERT_EQ(y[i], before[i]) << "written past the tokens";
      }
  }
}

}  // namespace
}  // namespace mh_cpu

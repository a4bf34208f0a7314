// Kernels over rows of floats: right within rounding, and the same bits from every instruction set.
#include <gtest/gtest.h>

#include "moehost/ops.h"
#include "variants.h"

namespace mh_cpu {
namespace {

using namespace mh_cpu_test;

class RowKernels : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
  const KernelTable& scalar() const { return *mh_cpu_kernels_scalar(); }
};
INSTANTIATE_TEST_SUITE_P(All, RowKernels, ::testing::ValuesIn(tables()),
                         [](const auto& test) { return std::string(test.param->name); });

constexpr uint32_t kSizes[] = {1, 7, 16, 33, 130};
constexpr double kUlp = 0x1p-23;

double reference_activation(uint32_t kind, double a, double b, double limit, double alpha) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  switch (kind) {
    case MH_ACT_SILU:
      return a * sigmoid(a) * b;
    case MH_ACT_GELU_TANH:  // (1 + tanh z) / 2 = sigmoid(2 z), which keeps its digits for negative z
      return a * sigmoid(2 * std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)) * b;
    case MH_ACT_CLAMPED_SWIGLU: {
      const double g = std::min(a, limit);
      return g * sigmoid(alpha * g) * (std::max(-limit, std::min(b, limit)) + 1);
    }
    case MH_ACT_RELU_SQUARED:
      return std::max(a, 0.0) * std::max(a, 0.0) * b;
    default:
      return sigmoid(a) * b;
  }
}

TEST_P(RowKernels, ActivationsAreRightWithinAFewUlp) {
  std::mt19937 random(1);
  for (const uint32_t n : kSizes)
    for (const uint32_t kind : {uint32_t{MH_ACT_SILU}, uint32_t{MH_ACT_GELU_TANH}, uint32_t{MH_ACT_CLAMPED_SWIGLU},
                                uint32_t{MH_ACT_RELU_SQUARED}, kSigmoidTimes}) {
      auto a = normals(random, n);
      const auto b = normals(random, n);
      for (float& v : a) v *= 6;
      std::vector<float> y(n), expected(n);
      table().activate(kind, a.data(), b.data(), n, 5, 1.702f, y.data());
      scalar().activate(kind, a.data(), b.data(), n, 5, 1.702f, expected.data());
      EXPECT_EQ(std::memcmp(y.data(), expected.data(), n * sizeof(float)), 0);
      for (uint32_t i = 0; i < n; ++i) {
        const double want = reference_activation(kind, a[i], b[i], 5, 1.702f);
        // The argument of the exponential is rounded: an error of |a| ulp in it is one of |a| ulp in the result.
        ASSERT_NEAR(y[i], want, (8 + 4 * std::fabs(a[i] * a[i])) * kUlp * std::fabs(want) + 1e-30)
            << kind << " " << a[i] << " " << b[i];
      }
    }
}

TEST_P(RowKernels, ActivationsWithoutASecondInputAreTheFirstFactor) {
  const float a[] = {-100, -3, -0.5f, 0, 0.5f, 3, 100};
  float y[7];
  table().activate(MH_ACT_SILU, a, nullptr, 7, 0, 0, y);
  for (int i = 0; i < 7; ++i)
    EXPECT_NEAR(y[i], reference_activation(MH_ACT_SILU, a[i], 1, 0, 0), 16 * kUlp * std::fabs(a[i]));
}

TEST_P(RowKernels, SoftmaxPartsAreRightAndMinusInfinityIsNobody) {
  std::mt19937 random(2);
  for (const uint32_t n : kSizes) {
    auto v = normals(random, n + 1);
    for (float& x : v) x *= 20;
    v[n] = -INFINITY;
    auto twin = v;
    const auto before = v;
    const float max = table().max_row(v.data(), n + 1), sum = table().exp_row(v.data(), n + 1, max);
    EXPECT_EQ(max, *std::max_element(before.begin(), before.end()));
    EXPECT_EQ(sum, scalar().exp_row(twin.data(), n + 1, max));
    EXPECT_EQ(std::memcmp(v.data(), twin.data(), v.size() * sizeof(float)), 0);
    double exact = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const double want = std::exp(double{before[i]} - double{max});
      exact += want;
      ASSERT_NEAR(v[i], want, (2 + std::fabs(before[i] - max)) * kUlp * want + 1.2e-38);
    }
    EXPECT_EQ(v[n], 0);
    EXPECT_NEAR(sum, exact, (n + 100) * kUlp * exact);
  }
}

TEST_P(RowKernels, NotANumberStaysNotANumber) {
  float v[] = {1, NAN, 2}, y[3];
  table().activate(MH_ACT_SILU, v, nullptr, 3, 0, 0, y);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(table().exp_row(v, 3, 2)));
}

TEST_P(RowKernels, RmsNormIsRightWithAndWithoutWeight) {
  std::mt19937 random(3);
  for (const uint32_t n : kSizes) {
    const auto x = normals(random, n), w = normals(random, n);
    double squares = 0;
    for (const float v : x) squares += double{v} * double{v};
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    for (const float* weight : {static_cast<const float*>(nullptr), w.data()}) {
      std::vector<float> y(n), twin(n);
      table().rms_norm(x.data(), weight, n, 1e-5f, y.data());
      scalar().rms_norm(x.data(), weight, n, 1e-5f, twin.data());
      EXPECT_EQ(std::memcmp(y.data(), twin.data(), n * sizeof(float)), 0);
      for (uint32_t i = 0; i < n; ++i) {
        const double want = double{x[i]} * factor * (weight ? double{w[i]} : 1);
        ASSERT_NEAR(y[i], want, (8 + n / 16) * kUlp * std::fabs(want));
      }
    }
  }
}

TEST_P(RowKernels, SoftcapScaleAndSumsAreRight) {
  std::mt19937 random(4);
  for (const uint32_t n : kSizes) {
    const auto x = normals(random, n), add = normals(random, n);
    auto capped = x, scaled = x, sum = x;
    for (float& v : capped) v *= 40;
    const auto before = capped;
    table().softcap(capped.data(), n, 30);
    table().scale(scaled.data(), n, 0.3f);
    table().add_scaled(sum.data(), add.data(), n, 0.7f);
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(capped[i], 30 * std::tanh(double{before[i]} / 30), 30 * 4 * kUlp);
      EXPECT_EQ(scaled[i], x[i] * 0.3f);
      EXPECT_EQ(sum[i], x[i] + add[i] * 0.7f);
    }
  }
}

TEST_P(RowKernels, HalvesOfEqualValuesAddUpToTheValue) {
  std::mt19937 random(5);
  const auto y = normals(random, 1000);
  std::vector<float> sum(y.size());
  table().add_scaled(sum.data(), y.data(), static_cast<uint32_t>(y.size()), 0.5f);
  table().add_scaled(sum.data(), y.data(), static_cast<uint32_t>(y.size()), 0.5f);
  EXPECT_EQ(sum, y);
}

constexpr uint32_t kCacheFormats[] = {MH_FORMAT_F32, MH_FORMAT_F16, MH_FORMAT_BF16};

TEST_P(RowKernels, CacheRowsAreThoseOfTheCodec) {
  std::mt19937 random(6);
  for (int f = 0; f < 3; ++f) {
    auto row = normals(random, 130);
    for (size_t i = 0; i < row.size(); ++i) row[i] = std::ldexp(row[i], static_cast<int>(i) % 48 - 30);
    row[0] = 65519.996f, row[1] = 65520, row[2] = -INFINITY, row[3] = -0.0f, row[4] = 6e-8f, row[5] = 1e-40f;
    std::vector<std::byte> bytes(row.size() * 4), expected(row.size() * 4);
    mh::encode_row(kCacheFormats[f], row.data(), row.size(), expected.data());
    table().store_row[f](row.data(), static_cast<uint32_t>(row.size()), bytes.data());
    EXPECT_EQ(bytes, expected) << "format " << kCacheFormats[f];
    std::vector<float> back(row.size()), want(row.size());
    mh::decode_row(kCacheFormats[f], bytes.data(), row.size(), want.data());
    table().load_row[f](bytes.data(), static_cast<uint32_t>(row.size()), back.data());
    EXPECT_EQ(std::memcmp(back.data(), want.data(), want.size() * sizeof(float)), 0);
  }
}

TEST_P(RowKernels, TransposeTurnsRowsToColumnsAndAbsentRowsToZeros) {
  std::mt19937 random(7);
  constexpr uint32_t kCols = 37, kStride = 48;
  for (int f = 0; f < 3; ++f) {
    std::vector<std::vector<std::byte>> bytes(16, std::vector<std::byte>(kCols * 4));
    std::vector<std::vector<float>> values(16, std::vector<float>(kCols));
    const void* rows[16];
    for (int r = 0; r < 16; ++r) {
      mh::encode_row(kCacheFormats[f], normals(random, kCols).data(), kCols, bytes[r].data());
      mh::decode_row(kCacheFormats[f], bytes[r].data(), kCols, values[r].data());
      rows[r] = r == 5 ? nullptr : bytes[r].data();
    }
    values[5].assign(kCols, 0);
    std::vector<float> panel(kCols * kStride);
    table().transpose[f](rows, kCols, panel.data(), kStride);
    for (uint32_t k = 0; k < kCols; ++k)
      for (int r = 0; r < 16; ++r) ASSERT_EQ(panel[k * kStride + r], values[r][k]);
  }
}

}  // namespace
}  // namespace mh_cpu

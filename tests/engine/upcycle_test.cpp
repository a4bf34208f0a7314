// A dense model turned into experts answers as before: to the last bit on the reference, whatever the weight type.
#include "core/format/upcycle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/log.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/random_model.h"

namespace moehost {
namespace {

using namespace testing_support;

std::vector<float> logits_of(const std::string& model, const std::string& device) {
  Config config = tiny_config(device, device);
  config.model = model;
  const auto engine = load_or_fail(config);
  if (!engine) return {};
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 48; ++i) ids.push_back((i * 37 + 5) % 64);
  const auto logits = engine->logits(ids);
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? *logits : std::vector<float>();
}

class Upcycle : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { log::set_level(log::Level::kError); }
  void TearDown() override { log::set_level(log::Level::kInfo); }
};

TEST_P(Upcycle, TheExpertsOfADenseModelGiveItsLogits) {
  ModelShape shape;
  shape.format = GetParam(), shape.layers = 3;
  const std::string dense = testing::TempDir() + "/dense.gguf", experts = testing::TempDir() + "/experts.gguf";
  ASSERT_TRUE(random_model(shape).write(dense).ok());
  const Status converted = upcycle_gguf(dense, experts, {.num_experts = 8, .experts_per_token = 2});
  ASSERT_TRUE(converted.ok()) << converted.message();
  for (const char* device : {"reference", "cpu"}) {
    const std::vector<float> a = logits_of(dense, device), b = logits_of(experts, device);
    ASSERT_EQ(a.size(), 48u * 64);
    ASSERT_EQ(b.size(), a.size());
    if (std::string(device) == "reference") {
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "not bit for bit";
    }
    double square = 0, worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
      square += double{a[i]} * a[i], worst = std::max(worst, std::abs(double{a[i]} - b[i]));
    EXPECT_GT(square, 1) << "the model says nothing";
    EXPECT_LE(worst, 1e-4 * std::sqrt(square / static_cast<double>(a.size()))) << device;  // f32 sums in another order
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, Upcycle,
                         testing::Values(MH_FORMAT_F32, MH_FORMAT_BF16, MH_FORMAT_Q8_0, MH_FORMAT_Q4_1,
                                         MH_FORMAT_MXFP4));

}  // namespace
}  // namespace moehost

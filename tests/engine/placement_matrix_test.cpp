// Whatever runs where, the answer is the same, and the bytes are those that were planned.
#include <cmath>

#include "core/base/log.h"
#include "tests/engine/engine_fixture.h"

namespace moehost {
namespace {

using namespace testing_support;

std::vector<TokenId> answer(Engine& engine) {
  // Long enough that every chunk size cuts it into several steps.
  const std::string prompt =
      std::string(kPrompt) + " Paris. Two and two make four. The sun rises in the east. " + kPrompt;
  const auto result = engine.generate(greedy(engine, 64, prompt));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->ids : std::vector<TokenId>();
}

void expect_planned_bytes(const Engine& engine) {
  const auto allocated = engine.allocated_bytes();
  ASSERT_TRUE(allocated.ok()) << allocated.status().message();
  for (size_t d = 0; d < allocated->size(); ++d) {
    const DevicePlan& plan = engine.plan().devices[d];
    EXPECT_EQ((*allocated)[d].first, plan.name);
    EXPECT_EQ((*allocated)[d].second, plan.weight_bytes + plan.kv_bytes + plan.workspace_bytes) << plan.name;
  }
}

class PlacementMatrix : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    log::set_level(log::Level::kWarning);
    const auto engine = load_or_fail(tiny_config("reference", "reference"));
    ASSERT_NE(engine, nullptr);
    expected_ = answer(*engine);
    ASSERT_EQ(expected_.size(), 64u);
  }
  static void TearDownTestSuite() { log::set_level(log::Level::kInfo); }
  static void expect_same(Config config, const std::string& what) {
    const auto engine = load_or_fail(config);
    ASSERT_NE(engine, nullptr) << what;
    EXPECT_EQ(answer(*engine), expected_) << what;
    expect_planned_bytes(*engine);
  }
  static inline std::vector<TokenId> expected_;
};

constexpr const char* kDevices[] = {"reference", "cpu", "fake:0", "fake:1"};
constexpr uint32_t kChunks[] = {1, 2, 7, 16, 33};

TEST_F(PlacementMatrix, EveryPairOfDevicesAndEveryChunkGivesTheSameTokens) {
  for (const char* dense : kDevices) {
    for (const char* experts : kDevices) {
      for (const uint32_t chunk : kChunks) {
        Config config = tiny_config(dense, experts);
        config.context.prefill_chunk = chunk;
        expect_same(std::move(config), cat("dense ", dense, ", experts ", experts, ", chunk ", chunk));
      }
    }
  }
}

TEST_F(PlacementMatrix, EverySplitOfTheExpertsGivesTheSameTokens) {
  for (const char* split : {"layers", "experts", "columns"}) {
    for (const char* shares : {"{reference: 1, cpu: 1}", "{fake:0: 1, fake:1: 1}", "{cpu: 2, fake:0: 1, reference: 1}",
                               "{fake:0: 3, cpu: 1}"}) {
      expect_same(tiny_config("cpu", cat("{split: ", split, ", shares: ", shares, "}")), cat(split, " ", shares));
    }
  }
}

TEST_F(PlacementMatrix, LayersDealtOverDevicesGiveTheSameTokens) {
  expect_same(tiny_config("{reference: 1, cpu: 2, fake:0: 1}", "{fake:1: 1, cpu: 1}"), "every layer elsewhere");
}

TEST_F(PlacementMatrix, TheCacheMayLieOnAnotherDevice) {
  for (const char* kv : kDevices) {
    Config config = tiny_config("cpu", "reference");
    config.device_map.kv_cache = *parse_device(kv);
    expect_same(std::move(config), cat("cache on ", kv));
  }
}

TEST_F(PlacementMatrix, RulesMoveSingleExperts) {
  expect_same(
      tiny_config(
          "cpu",
          "{shares: {cpu: 1}, rules: [{layers: 1-2, device: fake:0}, {layers: 2, experts: 0-3, device: reference}]}"),
      "rules");
}

TEST_F(PlacementMatrix, DevicesThatCannotWaitOrSignalAreRelayed) {  // fake:2 cannot wait, fake:3 can do neither
  for (const uint32_t chunk : kChunks) {
    Config config = tiny_config("cpu", "{split: experts, shares: {fake:2: 1, reference: 1, fake:3: 1}}");
    config.context.prefill_chunk = chunk;
    expect_same(std::move(config), cat("experts on relayed devices, chunk ", chunk));
  }
  expect_same(tiny_config("fake:3", "{fake:2: 1, cpu: 1}"), "everything else on a relayed device");
}

TEST_F(PlacementMatrix, ReducedCacheFormatsStayCloseToF32) {
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kBF16}) {
    Config config = tiny_config("reference", "cpu");
    config.context.kv_dtype = dtype;
    const auto engine = load_or_fail(config);
    ASSERT_NE(engine, nullptr);
    expect_planned_bytes(*engine);
    const auto reference = load_or_fail(tiny_config("reference", "cpu"));
    ASSERT_NE(reference, nullptr);
    const std::vector<TokenId> ids = engine->tokenizer()->encode(kPrompt);
    const auto a = engine->logits(ids), b = reference->logits(ids);
    ASSERT_TRUE(a.ok() && b.ok());
    double difference = 0, square = 0;
    for (size_t i = 0; i < a->size(); ++i) difference += std::pow((*a)[i] - (*b)[i], 2), square += std::pow((*b)[i], 2);
    EXPECT_GT(difference, 0) << "the cache format made no difference: is it used?";
    EXPECT_LT(std::sqrt(difference / square), dtype == KvDtype::kF16 ? 2e-3 : 2e-2);
  }
}

}  // namespace
}  // namespace moehost

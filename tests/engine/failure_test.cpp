// A device that fails ends one request, and what does not fit is refused with the numbers.
#include "core/base/log.h"
#include "tests/engine/engine_fixture.h"

namespace moehost {
namespace {

using namespace testing_support;

class Failure : public testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::kError); }
  void TearDown() override { log::set_level(log::Level::kInfo); }
};

Config on_fake(const std::string& device, const std::string& knob, const std::string& value) {
  Config config = tiny_config("cpu", device);
  config.device_options[device]["backend_fake." + knob] = value;
  return config;
}

// Call N fails; the engine recovers and answers as if nothing had been.
void expect_one_failure(const Config& config, const std::string& says, EngineOptions options = test_options()) {
  const auto engine = load_or_fail(config, options);
  ASSERT_NE(engine, nullptr);
  const auto failed = engine->generate(greedy(*engine, 16));
  ASSERT_FALSE(failed.ok()) << "the fault did not show";
  EXPECT_NE(failed.status().message().find(says), std::string::npos) << failed.status().message();
  const auto after = engine->generate(greedy(*engine, 16));
  ASSERT_TRUE(after.ok()) << after.status().message();
  const auto reference = load_or_fail(tiny_config("reference", "reference"));
  EXPECT_EQ(after->ids, reference->generate(greedy(*reference, 16))->ids);
}

TEST_F(Failure, AnErrorInAnOpEndsOneRequestAndNamesDeviceAndOp) {
  for (const char* call : {"1", "2", "9"}) {
    expect_one_failure(on_fake("fake:0", "error_at", call), "fake:0, blk.");
  }
}

TEST_F(Failure, AnExceptionInAPluginEndsOneRequest) {
  expect_one_failure(on_fake("fake:1", "throw_at", "3"), "fake:1");
}

TEST_F(Failure, ADeviceThatHangsIsAbortedAndGoesOn) {
  EngineOptions options = test_options();
  options.step_timeout_s = 0.5;
  for (const char* device : {"fake:1", "fake:2"})
    expect_one_failure(on_fake(device, "hang_at", "5"), "did not finish", options);
}

TEST_F(Failure, ARelayedDeviceThatFailsEndsOneRequest) {
  expect_one_failure(on_fake("fake:3", "error_at", "2"), "fake:3");
}

TEST_F(Failure, NaNFromADeviceIsAnErrorAndNotTokenZero) {
  const auto engine = load_or_fail(on_fake("fake:0", "nan_at", "2"));
  ASSERT_NE(engine, nullptr);
  const auto result = engine->generate(greedy(*engine, 16));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("NaN"), std::string::npos) << result.status().message();
}

TEST_F(Failure, AModelThatDoesNotFitIsRefusedWithTheNumbers) {
  Config config = tiny_config("cpu", "fake:0");
  config.device_options["fake:0"]["memory_limit"] = "65536";
  const auto plan = Engine::plan(config, test_options());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_FALSE(plan->fits);
  const auto engine = Engine::load(config, test_options());
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kNoResource);
  EXPECT_NE(engine.status().message().find("fake:0 needs"), std::string::npos) << engine.status().message();
  EXPECT_NE(engine.status().message().find("free: 64.0 KiB"), std::string::npos) << engine.status().message();
}

TEST_F(Failure, AMapThatMatchesNothingIsABadConfig) {
  const auto rule =
      Engine::plan(tiny_config("cpu", "{shares: {cpu: 1}, rules: [{layers: 90, device: cpu}]}"), test_options());
  EXPECT_EQ(rule.status().code(), Code::kBadConfig);
  const auto shares =
      Engine::plan(tiny_config("cpu", "{cpu: 1, reference: 1, fake:0: 1, fake:1: 1, fake:2: 1}"), test_options());
  EXPECT_EQ(shares.status().code(), Code::kBadConfig) << "five devices for four layers";
  const auto unknown = Engine::plan(tiny_config("cpu", "tpu"), test_options());
  EXPECT_EQ(unknown.status().code(), Code::kUnavailable);
}

TEST_F(Failure, PromptsThatCannotBeAreRefusedAndNameTheCounts) {
  Config config = tiny_config("cpu", "cpu");
  config.context.max_tokens = 64;
  const auto engine = load_or_fail(config);
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = greedy(*engine, 1);
  request.prompt.assign(65, 1);
  EXPECT_NE(engine->generate(request).status().message().find("65 tokens, the context holds 64"), std::string::npos);
  request.prompt = {};
  EXPECT_EQ(engine->generate(request).status().code(), Code::kUsage);
  request.prompt = {1 << 20};
  EXPECT_EQ(engine->generate(request).status().code(), Code::kUsage);
  request.prompt.assign(64, 1);
  request.max_tokens = 100;
  const auto full = engine->generate(request);
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_EQ(full->ids.size(), 1u) << "a full context has room for one more token";
}

TEST_F(Failure, CancellingStopsAtTheNextToken) {
  const auto engine = load_or_fail(tiny_config("cpu", "cpu"));
  ASSERT_NE(engine, nullptr);
  uint32_t seen = 0;
  const auto result = engine->generate(greedy(*engine, 50), [&](TokenId, const std::string&) { return ++seen < 3; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, "cancelled");
  EXPECT_EQ(result->ids.size(), 3u);
}

}  // namespace
}  // namespace moehost

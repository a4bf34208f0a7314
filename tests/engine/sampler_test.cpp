// Sampling and KV blocks.
#include "core/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/engine/blocks.h"

namespace moehost {
namespace {

SamplingParams all() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1, .seed = 7};
}

std::map<TokenId, int> draw(const SamplingParams& params, std::vector<float> logits, int times = 4000) {
  Sampler sampler(params);
  std::map<TokenId, int> counts;
  for (int i = 0; i < times; ++i) {
    std::vector<float> copy = logits;
    ++counts[*sampler.sample(copy, {})];
  }
  return counts;
}

TEST(Sampler, TemperatureZeroTakesTheHighestAndTheLowestIdOfATie) {
  SamplingParams p = all();
  p.temperature = 0;
  std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(*Sampler(p).sample(logits, {}), 1);
}

TEST(Sampler, DrawsInTheRatioOfTheProbabilities) {
  const auto counts = draw(all(), {std::log(1.f), std::log(2.f), std::log(5.f)});
  EXPECT_NEAR(counts.at(0), 500, 80);
  EXPECT_NEAR(counts.at(1), 1000, 110);
  EXPECT_NEAR(counts.at(2), 2500, 130);
}

TEST(Sampler, TopKTopPAndMinPCutTheTail) {
  const std::vector<float> logits = {std::log(5.f), std::log(3.f), std::log(1.5f), std::log(0.5f)};
  SamplingParams p = all();
  p.top_k = 2;
  EXPECT_EQ(draw(p, logits).size(), 2u);
  p = all(), p.top_p = 0.75;  // 0.5 + 0.3 reach it
  EXPECT_EQ(draw(p, logits).size(), 2u);
  p = all(), p.min_p = 0.25;  // of 0.5: 0.3 and 0.15 stay
  EXPECT_EQ(draw(p, logits).size(), 3u);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  SamplingParams other = all();
  other.seed = 8;
  const std::vector<float> logits(100, 0.f);
  EXPECT_EQ(draw(all(), logits, 50), draw(all(), logits, 50));
  EXPECT_NE(draw(all(), logits, 50), draw(other, logits, 50));
}

TEST(Sampler, ThePenaltyLowersSeenTokensOfEitherSign) {
  SamplingParams p = all();
  p.temperature = 0, p.repetition_penalty = 2;
  std::vector<float> logits = {3, 2, -1, -1.5f};
  const TokenId seen[] = {0, 2, 0, 900};
  EXPECT_EQ(*Sampler(p).sample(logits, seen), 1);
  EXPECT_EQ(logits, (std::vector<float>{1.5f, 2, -2, -1.5f}));
}

TEST(Sampler, BrokenLogitsAndParametersAreErrors) {
  std::vector<float> nan = {0, NAN}, none = {-INFINITY, -INFINITY};
  EXPECT_EQ(Sampler(all()).sample(nan, {}).status().code(), Code::kInternal);
  EXPECT_EQ(Sampler(all()).sample(none, {}).status().code(), Code::kInternal);
  SamplingParams p = all();
  p.temperature = NAN;
  EXPECT_EQ(check_sampling(p).code(), Code::kUsage);
  p = all(), p.top_p = 1.5;
  EXPECT_NE(check_sampling(p).message().find("top_p is 1.5"), std::string::npos);
}

TEST(Blocks, ATableTakesWhatItNeedsAndGivesItBack) {
  BlockPool pool(4, 16);
  {
    BlockTable table(pool);
    ASSERT_TRUE(table.grow(17).ok());
    EXPECT_EQ(table.blocks().size(), 2u);
    ASSERT_TRUE(table.grow(5).ok());
    EXPECT_EQ(table.blocks().size(), 2u) << "it never shrinks";
    EXPECT_EQ(table.grow(65).code(), Code::kNoResource);
    EXPECT_EQ(pool.free_blocks(), 2u) << "a failure takes nothing";
  }
  EXPECT_EQ(pool.free_blocks(), 4u);
}

}  // namespace
}  // namespace moehost

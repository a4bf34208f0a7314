// The operator's map against a model.
#include "core/placement/device_map.h"

#include <gtest/gtest.h>

#include "tests/placement/toy_program.h"

namespace moehost {
namespace {

using testing_support::toy_program;

DeviceName device(const char* text) { return *parse_device(text); }

Result<ResolvedMap> resolve(const DeviceMap& map, uint32_t layers = 10, uint32_t experts = 8,
                            uint32_t dense_layers = 0) {
  return resolve_device_map(map, toy_program(layers, experts, dense_layers), device("fast"));
}

TEST(Apportion, GivesEveryShareAtLeastOneAndTheRestInRatio) {
  EXPECT_EQ(apportion(20, {1, 19}), (std::vector<uint32_t>{1, 19}));
  EXPECT_EQ(apportion(5, {1, 100}), (std::vector<uint32_t>{1, 4}));
  EXPECT_EQ(apportion(10, {1, 1, 1}), (std::vector<uint32_t>{4, 3, 3}));
  EXPECT_TRUE(apportion(2, {1, 1, 1}).empty());
}

TEST(DeviceMap, WithoutAMapExpertsGoToTheCpuAndTheRestToTheFastDevice) {
  const auto map = resolve({});
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->layers[3].dense.text(), "fast:0");
  EXPECT_EQ(map->layers[3].attention.text(), "fast:0");
  ASSERT_EQ(map->layers[3].experts.size(), 1u);
  EXPECT_EQ(map->layers[3].experts[0].device.text(), "cpu:0");
  EXPECT_EQ(map->layers[3].experts[0].experts.size(), 8u);
}

TEST(DeviceMap, SharesByLayerCountFromTheFirstMoeLayer) {
  DeviceMap map;
  map.expert_layers.shares = {{device("a"), 1}, {device("b"), 3}};
  const auto resolved = resolve(map, 10, 8, 2);
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  EXPECT_TRUE(resolved->layers[1].experts.empty()) << "a dense layer";
  EXPECT_EQ(resolved->layers[3].experts[0].device.text(), "a:0");
  EXPECT_EQ(resolved->layers[4].experts[0].device.text(), "b:0");
}

TEST(DeviceMap, SharesByExpertAndByColumnCoverEveryExpertOnce) {
  DeviceMap map;
  map.expert_layers.split = Split::kExperts;
  map.expert_layers.shares = {{device("a"), 1}, {device("b"), 3}};
  auto resolved = resolve(map);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->layers[0].experts[0].experts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(resolved->layers[0].experts[1].experts, (std::vector<int32_t>{2, 3, 4, 5, 6, 7}));
  map.expert_layers.split = Split::kColumns;
  resolved = resolve(map);
  ASSERT_TRUE(resolved.ok());
  const auto& parts = resolved->layers[0].experts;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].column_share, 1);
  EXPECT_EQ(parts[1].column_share, 3);
  EXPECT_EQ(parts[1].experts.size(), 8u);
}

TEST(DeviceMap, LaterRulesWinAndARuleThatMatchesNothingIsAnError) {
  DeviceMap map;
  map.expert_layers.shares = {{device("a"), 1}};
  map.expert_layers.rules.push_back({IdRange{0, 3}, {}, device("b"), ""});
  map.expert_layers.rules.push_back({IdRange{3, 3}, IdRange{0, 1}, device("c"), ""});
  const auto resolved = resolve(map);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->layers[2].experts[0].device.text(), "b:0");
  ASSERT_EQ(resolved->layers[3].experts.size(), 2u);
  EXPECT_EQ(resolved->layers[3].experts[1].device.text(), "c:0");
  EXPECT_EQ(resolved->layers[3].experts[1].experts, (std::vector<int32_t>{0, 1}));
  map.expert_layers.rules.push_back({IdRange{10, 12}, {}, device("b"), "x.yaml:7:5"});
  const auto none = resolve(map);
  EXPECT_EQ(none.status().code(), Code::kBadConfig);
  EXPECT_EQ(none.status().message().find("x.yaml:7:5: this rule matches no expert"), 0u) << none.status().message();
}

TEST(DeviceMap, MoreDevicesThanUnitsIsAnError) {
  DeviceMap map;
  map.non_expert_layers = {{device("a"), 1}, {device("b"), 1}, {device("c"), 1}};
  EXPECT_EQ(resolve(map, 2).status().code(), Code::kBadConfig);
  EXPECT_TRUE(resolve(map, 3).ok());
}

}  // namespace
}  // namespace moehost

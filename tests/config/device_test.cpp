// Device names: the grammar of docs/configuration.md.
#include <gtest/gtest.h>

#include "core/config/config.h"

namespace moehost {
namespace {

TEST(DeviceName, CanonicalTextHasTheIndex) {
  const std::pair<const char*, const char*> cases[] = {
      {"cpu", "cpu:0"},
      {"cpu:0", "cpu:0"},
      {"cuda", "cuda:0"},
      {"cuda:1", "cuda:1"},
      {"cuda:65535", "cuda:65535"},
      {"reference", "reference:0"},
      {"my-npu_2:3", "my-npu_2:3"},
      {"multi:1", "multi:1"},
      {"multicuda:0,1", "multicuda:0,1"},
      {"multicuda:0:3,1:3,cpu:2", "multicuda:0:3,1:3,cpu:2"},
      {"multicuda:0:0.5,cpu", "multicuda:0:0.5,cpu"},
      {"multicuda:0:1", "multicuda:0"},
      {"multinpu:2,cpu:1e3", "multinpu:2,cpu:1000"},
  };
  for (const auto& [written, canonical] : cases) {
    const Result<DeviceName> device = parse_device(written);
    ASSERT_TRUE(device.ok()) << written << ": " << device.status().message();
    EXPECT_EQ(device->text(), canonical);
    EXPECT_EQ(*parse_device(device->text()), *device) << "the canonical text reads back";
  }
}

TEST(DeviceName, MembersOfACompositeHaveKindIndexAndWeight) {
  const DeviceName device = *parse_device("multicuda:0:3,2,cpu:2.5");
  EXPECT_EQ(device.kind, "multicuda");
  ASSERT_EQ(device.members.size(), 3u);
  EXPECT_EQ(device.members[0].kind, "cuda");
  EXPECT_EQ(device.members[0].weight, 3);
  EXPECT_EQ(device.members[1].index, 2u);
  EXPECT_EQ(device.members[1].weight, 1);
  EXPECT_EQ(device.members[2].kind, "cpu");
  EXPECT_EQ(device.members[2].weight, 2.5);
}

TEST(DeviceName, RefusesWhatIsNoDeviceAndSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "kind"},
      {":0", "kind"},
      {"CPU", "kind"},
      {"1", "kind"},
      {"cu da", "kind"},
      {"../cuda", "kind"},
      {"auto", "not supported by this version"},
      {"auto:0", "not supported by this version"},
      {"cuda:", "index"},
      {"cuda:x", "index"},
      {"cuda:01", "index"},
      {"cuda:-1", "index"},
      {"cuda:1.5", "index"},
      {"cuda:65536", "index"},
      {"cuda:99999999999999999999", "index"},
      {"cuda:0:1", "index"},
      {"cuda:0,1", "index"},
      {"multicuda", "members"},
      {"multicuda:", "index"},
      {"multicuda:0,", "index"},
      {"multicuda:,0", "index"},
      {"multicuda:0,0", "named twice"},
      {"multicuda:0,cuda:2", "named twice"},
      {"multicuda:cpu,cpu:2", "named twice"},
      {"multicuda:0:0", "weight"},
      {"multicuda:0:-1", "weight"},
      {"multicuda:0:", "weight"},
      {"multicuda:0:nan", "weight"},
      {"multicuda:0:1:2", "weight"},
      {"multicuda:0:2e9", "weight"},
      {"multicuda:multicuda", "one device"},
      {"multicuda:auto", "one device"},
  };
  for (const auto& [written, reason] : cases) {
    const Result<DeviceName> device = parse_device(written);
    ASSERT_FALSE(device.ok()) << written;
    EXPECT_EQ(device.status().code(), Code::kBadConfig);
    EXPECT_NE(device.status().message().find(reason), std::string::npos) << device.status().message();
    EXPECT_NE(device.status().message().find(std::string("'") + written), std::string::npos);
  }
}

TEST(DeviceName, RefusesMoreMembersThanAnyMachineHas) {
  std::string many = "multicuda:0";
  for (int i = 1; i < 64; ++i) many += cat(",", i);
  EXPECT_TRUE(parse_device(many).ok());
  EXPECT_FALSE(parse_device(many + ",64").ok());
}

}  // namespace
}  // namespace moehost

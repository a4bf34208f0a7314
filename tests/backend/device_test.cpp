#include <thread>

#include "tests/backend/plugin_folder.h"

namespace moehost {
namespace {

// A toy device that tells the lie fault.
std::shared_ptr<Device> open_toy(Registry& registry, const std::string& fault = "", uint32_t index = 0) {
  DeviceSpec spec{.kind = "toy", .index = index};
  if (!fault.empty()) spec.options = {{"fault", fault}};
  auto device = registry.open(spec);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return *device;
}

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() { folder_.add_plain("toy", "toy"); }
  PluginFolder folder_;
};

TEST_F(DeviceTest, LivesFromInitToShutdownWithEveryObjectFreed) {
  {
    auto registry = folder_.registry();
    auto device = open_toy(*registry);
    registry.reset();  // the device keeps it
    EXPECT_EQ(device->name(), "toy:0");
    EXPECT_STREQ(device->info().name, "toy 0");
    EXPECT_TRUE(device->has(MH_DEVICE_HOST_MEMORY));
    EXPECT_FALSE(device->has(MH_DEVICE_WAITS));
    EXPECT_FALSE(device->has_kv());
    EXPECT_EQ(device->plugin().version, "1.0");
    alignas(64) char memory[64];
    auto buffer = device->import_buffer(memory, sizeof memory);
    auto op = device->load_op({});
    auto queue = device->create_queue();
    ASSERT_TRUE(buffer.ok() && op.ok() && queue.ok());
    auto program = (*queue)->create_program({});
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE((*queue)->submit(program->get()).ok());
    EXPECT_TRUE((*queue)->wait(1).status.ok());
    EXPECT_EQ((*queue)->wait(0).mh_code, MH_TIMEOUT);
    EXPECT_EQ(folder_.counters("toy").objects, 4);
    EXPECT_EQ(folder_.counters("toy").shutdowns, 0);
  }
  const ToyCounters& counters = folder_.counters("toy");  // never unloaded
  EXPECT_EQ(counters.objects, 0);
  EXPECT_EQ(counters.inits, 1);
  EXPECT_EQ(counters.opens, 1);
  EXPECT_EQ(counters.closes, 1);
  EXPECT_EQ(counters.shutdowns, 1);
}

}  // namespace
}  // namespace moehost

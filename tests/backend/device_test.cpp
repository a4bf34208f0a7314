// Devices and queues: what a plugin answers is checked, what it makes is freed, and composites share its members in
// turn.
#include <thread>
#include <vector>

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

TEST_F(DeviceTest, IsOpenedOnceANameAndAgainAfterItWasClosed) {
  auto registry = folder_.registry();
  auto first = open_toy(*registry);
  EXPECT_EQ(open_toy(*registry), first);
  EXPECT_NE(open_toy(*registry, "", 1), first);
  ToyCounters& counters = folder_.counters("toy");
  EXPECT_EQ(counters.opens, 2);
  first.reset();
  EXPECT_EQ(counters.closes, 2);
  open_toy(*registry);
  EXPECT_EQ(counters.opens, 3);
  EXPECT_EQ(counters.inits, 1);
}

TEST_F(DeviceTest, ThatDoesNotExistNamesHowManyThereAre) {
  auto registry = folder_.registry();
  const Status index = registry->open({.kind = "toy", .index = 2}).status();
  EXPECT_EQ(index.code(), Code::kUnavailable);
  EXPECT_EQ(index.message(), "device 'toy:2': toy has 2 devices of kind 'toy', counted from 0");
  const Status kind = registry->open({.kind = "cuda"}).status();
  EXPECT_EQ(kind.code(), Code::kUnavailable);
  EXPECT_EQ(kind.message(), "no plugin for devices of kind 'cuda'; there are toy");
  DeviceSpec option{.kind = "toy", .options = {{"speed", "9"}}};
  EXPECT_EQ(registry->open(option).status().code(), Code::kBadConfig);
}

TEST_F(DeviceTest, AnswersThatCannotBeTrueAreFailuresThatNameThem) {
  struct Case {
    const char *fault, *text;
    Code code = Code::kUnavailable;
  };
  const std::string endless = "op.cost: " + std::string(sizeof(mh_error::text), 'x') + " (internal error)";
  const Case cases[] = {
      {"nan", "toy:0 (toy) op.cost: estimated time nan us is no time"},
      {"verdict", "toy:0 (toy) op.cost: verdict 7 is neither native (0) nor slow (1)"},
      {"huge", "resident_bytes 18446744073709551615 is more than any machine has"},
      {"unknown code", "toy:0 (toy) op.cost: from the future (internal error, unknown code -77)"},
      {"positive code", "toy:0 (toy) op.cost: failed without an explanation (internal error, unknown code 5)"},
      {"throws", "threw an exception across the ABI (internal error)"},
      {"no memory", "device memory: 9 bytes asked, 4 free (no memory)", Code::kNoResource},
      {"unsupported", "toy:0 (toy) op.cost: no scale here\\nuse add (unsupported)"},
      {"endless text", endless.c_str()},
  };
  for (const auto& [fault, text, code] : cases) {
    auto registry = folder_.registry();
    const Status status = open_toy(*registry, fault)->op_cost({}).status();
    EXPECT_EQ(status.code(), code) << fault;
    EXPECT_NE(status.message().find(text), std::string::npos) << fault << ": " << status.message();
  }
}

TEST_F(DeviceTest, AnAnswerWithoutAnObjectIsAFailure) {
  auto registry = folder_.registry();
  auto device = open_toy(*registry, "no object");
  const auto refuses = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("answered ok without an object"), std::string::npos) << status.message();
  };
  refuses(device->load_op({}).status());
  refuses(device->import_buffer(nullptr, 0).status());
  refuses(device->create_queue().status());
  device.reset();
  const Status open = registry->open({.kind = "toy", .options = {{"fault", "no device"}}}).status();
  EXPECT_EQ(open.message(), "device 'toy:0' (toy): open answered ok without a device");
}

TEST_F(DeviceTest, ImpossibleAmountsOfMemoryAreFailures) {
  auto registry = folder_.registry();
  EXPECT_EQ(open_toy(*registry)->memory()->free_bytes, 1000u);
  EXPECT_EQ(open_toy(*registry)->program_cost({})->workspace_bytes, 640u);
  auto device = open_toy(*registry, "huge");
  EXPECT_FALSE(device->memory().ok());
  EXPECT_FALSE(device->program_cost({}).ok());
}

TEST_F(DeviceTest, WithoutCachesSaysSo) {
  auto registry = folder_.registry();
  auto device = open_toy(*registry);
  EXPECT_NE(device->kv_cost({}).status().message().find("keeps no caches"), std::string::npos);
  EXPECT_NE(device->create_kv({}).status().message().find("keeps no caches"), std::string::npos);
}

TEST_F(DeviceTest, OnceLostOnlyFreesReachThePlugin) {
  auto registry = folder_.registry();
  auto device = open_toy(*registry, "lost");
  ASSERT_TRUE(device->load_op({}).ok());
  auto queue = device->create_queue();
  ASSERT_TRUE(queue.ok());
  EXPECT_NE(device->import_buffer(nullptr, 0).status().message().find("fell off the bus"), std::string::npos);
  const Status status = device->import_buffer(nullptr, 0).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("the device was lost"), std::string::npos);
  EXPECT_FALSE((*queue)->reset().ok());
  EXPECT_EQ((*queue)->wait(1).mh_code, MH_DEVICE_LOST);
  ToyCounters& counters = folder_.counters("toy");
  EXPECT_EQ(counters.objects, 1);
  *queue = nullptr;
  device.reset();
  EXPECT_EQ(counters.objects, 0);
  EXPECT_EQ(counters.closes, 1);
  EXPECT_EQ(counters.calls_after_loss, 0);
}

TEST_F(DeviceTest, AbandonedIsNeitherFreedNorClosedNorShutDown) {
  {
    auto registry = folder_.registry();
    auto device = open_toy(*registry);
    auto op = device->load_op({});
    auto queue = device->create_queue();
    device->abandon();
    EXPECT_FALSE(device->memory().ok());
  }
  const ToyCounters& counters = folder_.counters("toy");
  EXPECT_EQ(counters.objects, 2);
  EXPECT_EQ(counters.closes, 0);
  EXPECT_EQ(counters.shutdowns, 0);
}

TEST_F(DeviceTest, TheBlamedItemIsOneOfTheProgram) {
  mh_program_desc desc{.size = sizeof desc};
  desc.item_count = 3;
  for (const auto& [fault, item] : {std::pair("item 1", 1), std::pair("item 9", -1)}) {
    auto registry = folder_.registry();
    auto queue = open_toy(*registry, fault)->create_queue();
    ASSERT_TRUE(queue.ok());
    auto program = (*queue)->create_program(desc);
    const QueueError error = (*queue)->wait(1);
    EXPECT_EQ(error.mh_code, MH_INTERNAL);
    EXPECT_EQ(error.item, item) << fault;
    EXPECT_NE(error.status.message().find("kernel failed"), std::string::npos);
  }
}

TEST_F(DeviceTest, LoadsRunBesideEachOther) {
  auto registry = folder_.registry();
  auto device = open_toy(*registry, "rendezvous");  // a load ends when a second one has begun
  bool other = false;
  std::thread thread([&] { other = device->load_op({}).ok(); });
  EXPECT_TRUE(device->load_op({}).ok());
  thread.join();
  EXPECT_TRUE(other);
}

class CompositeTest : public DeviceTest {
 protected:
  CompositeTest() {
    folder_.add("toy_composite", "toy_composite",
                PluginFolder::manifest("toy_composite", "multitoy", 10, R"(, "member_kind": "toy")"));
  }
  static DeviceSpec pair() {
    return {.kind = "multitoy", .members = {{"toy:0", 3}, {"toy", 2}, {"toy:1", 1}}, .name = "multitoy:0:3,0:2,1:1"};
  }
};

TEST_F(CompositeTest, GetsItsMembersAndSharesAndGivesThemBack) {
  auto registry = folder_.registry();
  auto member = open_toy(*registry);
  DeviceSpec spec = pair();
  spec.options = {{"fault", "members"}};
  auto device = registry->open(spec);
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->name(), "multitoy:0:3,0:2,1:1");
  EXPECT_NE((*device)->op_cost({}).status().message().find("toy:0=3 toy=2 toy:1=1 "), std::string::npos);
  ToyCounters& counters = folder_.counters("toy");
  EXPECT_EQ(counters.opens, 2);  // toy:0 was open, "toy" is the same
  *device = nullptr;
  EXPECT_EQ(counters.closes, 1);  // toy:0 is still in use here
}

TEST_F(CompositeTest, SharesItsMembersControlFunctionsInTurn) {
  auto registry = folder_.registry();
  auto member = open_toy(*registry);
  auto composite = registry->open(pair());
  ASSERT_TRUE(composite.ok()) << composite.status().message();
  const auto import = [](Device& device) {
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(device.import_buffer(nullptr, 0).ok());
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { import(*member); });
    threads.emplace_back([&] { import(**composite); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(folder_.counters("toy").overlaps, 0);
  EXPECT_EQ(folder_.counters("toy_composite").overlaps, 0);
  EXPECT_EQ(folder_.counters("toy").objects, 0);
}

TEST_F(CompositeTest, AMemberThatIsLostIsLostForAll) {
  auto registry = folder_.registry();
  auto member = open_toy(*registry, "lost");
  auto composite = registry->open(pair());
  ASSERT_TRUE(composite.ok()) << composite.status().message();
  EXPECT_FALSE((*composite)->import_buffer(nullptr, 0).ok());
  EXPECT_NE(member->memory().status().message().find("the device was lost"), std::string::npos);
  EXPECT_FALSE((*composite)->import_buffer(nullptr, 0).ok());
  EXPECT_EQ(folder_.counters("toy").calls_after_loss, 0);
}

TEST_F(CompositeTest, ThatWouldContainItselfIsRefusedWithTheChain) {
  auto registry = folder_.registry();
  DeviceSpec spec = pair();
  spec.members = {{"toy:0", 1}, {spec.name, 1}};
  const Status status = registry->open(spec).status();
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.message().find("would contain itself: multitoy:0:3,0:2,1:1 > multitoy:0:3,0:2,1:1"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(folder_.counters("toy").opens, folder_.counters("toy").closes);
  EXPECT_TRUE(registry->open(pair()).ok());  // and it can be opened as it should be
}

TEST_F(CompositeTest, RefusesMembersThatCannotBe) {
  auto registry = folder_.registry();
  const auto refusal = [&](const std::vector<DeviceMember>& members) {
    DeviceSpec spec{.kind = "multitoy", .members = members, .name = "multitoy:x"};
    return registry->open(spec).status().message();
  };
  EXPECT_NE(refusal({}).find("needs members"), std::string::npos);
  EXPECT_NE(refusal({{"toy:0", 0}}).find("share 0 of toy:0 is not above 0"), std::string::npos);
  EXPECT_NE(refusal({{"toy:0", 1}, {"toy:7", 1}}).find("toy has 2 devices"), std::string::npos);
  EXPECT_NE(refusal({{"nothing", 1}}).find("no plugin for devices of kind 'nothing'"), std::string::npos);
  EXPECT_NE(refusal({{"toy:-1", 1}}).find("no device 'toy:-1'"), std::string::npos);
  EXPECT_NE(registry->open({.kind = "toy", .members = {{"toy:1", 1}}, .name = "x"})
                .status()
                .message()
                .find("takes no members"),
            std::string::npos);
  EXPECT_EQ(folder_.counters("toy").opens, folder_.counters("toy").closes);
}

}  // namespace
}  // namespace moehost

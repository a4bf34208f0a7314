// Asking for "cpu" takes the best plugin that this machine can run.
#include <gtest/gtest.h>

#include "core/backend/backend.h"

namespace moehost {
namespace {

TEST(CpuChoice, AsksForCpuAndGetsTheBestThatRunsHere) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (!avx2) GTEST_SKIP() << "this processor has no AVX2: no CPU plugin runs here";
  RegistryOptions options;
  options.folder = MOEHOST_PLUGIN_DIR;
  options.allowed = {"backend_cpu_avx2", "backend_cpu_avx512"};
  auto registry = Registry::discover(options);
  ASSERT_TRUE(registry.ok()) << registry.status().message();
  DeviceSpec spec;
  spec.kind = "cpu", spec.name = "cpu:0";
  auto device = (*registry)->open(spec);
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->plugin().id, avx512 ? "backend_cpu_avx512" : "backend_cpu_avx2");
  for (const PluginInfo& plugin : (*registry)->plugins()) {
    EXPECT_FALSE(plugin.reason.empty()) << plugin.id;
    EXPECT_EQ(plugin.taken, plugin.id == (*device)->plugin().id) << plugin.reason;
  }
}

}  // namespace
}  // namespace moehost

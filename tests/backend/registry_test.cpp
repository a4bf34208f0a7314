// Discovery: which plugins are taken, which are passed over, and that each says why.
#include <cstdlib>

#include "core/backend/manifest.h"
#include "tests/backend/plugin_folder.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;

TEST(Registry, TakesTheHighestPriorityAndSaysWhoHasPrecedence) {
  PluginFolder folder;
  folder.add("low", "toy_init_fails", PluginFolder::manifest("low", "toy", 5));
  folder.add("toy", "toy", PluginFolder::manifest("toy", "toy", 20));
  auto registry = folder.registry();
  EXPECT_TRUE(info_of(*registry, "toy").taken);
  EXPECT_EQ(info_of(*registry, "toy").reason, "answers to toy (priority 20)");
  EXPECT_FALSE(info_of(*registry, "low").taken);
  EXPECT_EQ(info_of(*registry, "low").reason, "priority 5, toy has 20 for toy");
  auto devices = registry->devices();
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].name, "toy:1");
  EXPECT_EQ((*devices)[1].plugin, "toy");
  EXPECT_STREQ((*devices)[1].info.name, "toy 1");
}

TEST(Registry, FallsToTheNextPluginOnlyWhenTheBestCannotBeLoadedAndKeepsTheReason) {
  PluginFolder folder;
  folder.add("toy_init_fails", "toy_init_fails", PluginFolder::manifest("toy_init_fails", "toy", 30));
  folder.add("toy", "toy", PluginFolder::manifest("toy", "toy", 20));
  auto registry = folder.registry();
  EXPECT_TRUE(info_of(*registry, "toy_init_fails").taken);
  auto device = registry->open({.kind = "toy"});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->plugin().id, "toy");
  EXPECT_FALSE(info_of(*registry, "toy_init_fails").taken);
  EXPECT_EQ(info_of(*registry, "toy_init_fails").reason, "init: no driver, install one (unsupported)");
  EXPECT_TRUE(info_of(*registry, "toy").taken);
}

TEST(Registry, SaysWhyAPluginCannotBeLoaded) {
  struct Case {
    const char *module, *reason;
  };
  const Case cases[] = {
      {"no_entry", "exports no moehost_plugin_v1: not a moehost plugin"},
      {"undefined", "undefined symbol: moehost_test_absent"},
      {"toy_no_common_abi", "refuses this core: it speaks ABI 1.0 to 1.0, the plugin needs another"},
      {"toy_short_plugin", "plugin table has 32 bytes, at least "},
      {"toy_short_table", "queue table has 16 bytes, at least "},
      {"toy_null_function", "function 1 of the op table is NULL"},
      {"toy_init_fails", "init: no driver, install one (unsupported)"},
      {"not_elf", "cannot be loaded: not an ELF shared object"},
      {"garbage", "cannot be loaded: not an ELF shared object"},
      {"other_name", "calls itself 'toy', its manifest 'other_name'"},
  };
  PluginFolder folder;
  const std::string garbage(4096, 'x');
  folder.write("not_elf.so", "not a shared object");
  folder.write("garbage.so", garbage);
  fs::copy_file(cat(TEST_PLUGIN_DIR, "/toy.so"), folder.path("other_name.so"));
  for (const auto& [module, reason] : cases) {
    if (fs::exists(folder.path(cat(module, ".so")))) {
      folder.write(cat(module, ".json"), PluginFolder::manifest(module, module));
    } else {
      folder.add_plain(module, module);
    }
  }
  auto registry = folder.registry();
  for (const auto& [module, reason] : cases) {
    EXPECT_TRUE(info_of(*registry, module).taken) << module;  // as far as the manifest says
    const Status status = registry->open({.kind = module}).status();
    EXPECT_EQ(status.code(), Code::kUnavailable) << module;
    EXPECT_NE(status.message().find(reason), std::string::npos) << module << ": " << status.message();
    EXPECT_FALSE(info_of(*registry, module).taken) << module;
    EXPECT_NE(info_of(*registry, module).reason.find(reason), std::string::npos) << info_of(*registry, module).reason;
  }
  EXPECT_TRUE(registry->devices()->empty());
}

TEST(Registry, ATruncatedPluginIsRefusedWhereverItEnds) {
  // The last of the four segments that are loaded begins on the fourth page or later: all of this cuts something off.
  for (uintmax_t bytes = 0; bytes < 3 * 4096; bytes += 500) {
    PluginFolder folder;
    folder.add_plain("toy", "toy");
    fs::resize_file(folder.path("toy.so"), bytes);
    const Status status = folder.registry()->open({.kind = "toy"}).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("cannot be loaded: "), std::string::npos) << bytes << ": " << status.message();
  }
}

TEST(Registry, APluginWhoseFactsCannotBeTrueIsPassedOverForTheNext) {
  const std::string wrong = "toy_long_name device.info of 0: device info is wrong: name does not end within 64 bytes";
  PluginFolder folder;
  folder.add_plain("toy_long_name", "toy");
  {
    auto registry = folder.registry();
    EXPECT_EQ(registry->open({.kind = "toy"}).status().message(), wrong);
    EXPECT_TRUE(registry->devices()->empty());
    EXPECT_EQ(info_of(*registry, "toy_long_name").reason, wrong);
  }
  folder.add("toy", "toy", PluginFolder::manifest("toy", "toy", 1));
  auto registry = folder.registry();
  EXPECT_EQ(registry->devices()->size(), 2u);
  EXPECT_EQ((*registry->open({.kind = "toy"}))->plugin().id, "toy");
}

TEST(Registry, SaysWhatIsWrongWithAManifest) {
  struct Case {
    std::string name, manifest, reason;
  };
  const auto with = [](const std::string& rest) { return PluginFolder::manifest("x", "x", 1, rest); };
  const Case cases[] = {
      {"text", "kinds: [toy]", "malformed manifest: not a JSON object"},
      {"list", "[]", "malformed manifest: not a JSON object"},
      {"no_id", R"({"kinds": ["x"], "abi": [0, 0]})", "malformed manifest: 'id' is missing"},
      {"no_abi", R"({"id": "x", "kinds": ["x"]})", "malformed manifest: 'abi' is missing"},
      {"no_kinds", R"({"id": "x", "kinds": [], "abi": [0, 0]})", "malformed manifest: 'kinds' is empty"},
      {"path_id", R"({"id": "../x", "kinds": ["x"], "abi": [0, 0]})", "'id' must be a name of letters"},
      {"kind_type", R"({"id": "x", "kinds": "x", "abi": [0, 0]})", "'kinds' must be a list of at most"},
      {"kind_colon", R"({"id": "x", "kinds": ["x:0"], "abi": [0, 0]})", "'kinds' must be a list of at most"},
      {"abi_order", R"({"id": "x", "kinds": ["x"], "abi": [2, 1]})", "'abi' must be [lowest minor, highest minor]"},
      {"abi_sign", R"({"id": "x", "kinds": ["x"], "abi": [-1, 1]})", "'abi' must be [lowest minor, highest minor]"},
      {"priority", R"({"id": "x", "kinds": ["x"], "abi": [0, 0], "priority": 1e30})", "'priority' must be a whole"},
      {"misspelt", with(R"(, "cpu_feature": ["avx2"])"), "unknown key 'cpu_feature'"},
      {"future_abi", R"({"id": "x", "kinds": ["x"], "abi": [7, 9]})", "needs ABI 1.7 or newer; this core speaks 1.0"},
      {"feature", with(R"(, "cpu_features": ["sse4.2", "avx9000"])"), "this core knows no CPU feature avx9000"},
      {"huge", with(std::string(64 << 10, ' ')), "at most 65536"},
  };
  for (const auto& [name, manifest, reason] : cases) {
    PluginFolder folder;
    folder.add(name, "toy", manifest);
    auto registry = folder.registry();
    const PluginInfo info = registry->plugins().at(0);
    EXPECT_FALSE(info.taken) << name;
    EXPECT_NE(info.reason.find(reason), std::string::npos) << name << ": " << info.reason;
  }
}

TEST(Registry, PassesOverAPluginWhoseCpuFeatureThisMachineLacks) {
  for (const char* feature : {"avx2", "avx512f", "avx512vnni", "amx_tile", "avx512-fp16"}) {
    PluginFolder folder;
    folder.add("toy", "toy", PluginFolder::manifest("toy", "toy", 1, cat(R"(, "cpu_features": [")", feature, R"("])")));
    auto registry = folder.registry();
    bool known = false;
    const bool here = has_cpu_feature(feature, &known);
    EXPECT_TRUE(known) << feature;
    EXPECT_EQ(info_of(*registry, "toy").taken, here) << feature;
    EXPECT_EQ(registry->open({.kind = "toy"}).ok(), here);
    const std::string reason =
        here ? "answers to toy (priority 1)" : cat("this machine lacks the CPU feature ", feature);
    EXPECT_EQ(info_of(*registry, "toy").reason, reason);
  }
}

#if defined(__x86_64__)
TEST(CpuFeatures, AreWhatTheCompilersRuntimeSees) {
  bool known = false;
  EXPECT_EQ(has_cpu_feature("sse4.2", &known), __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(has_cpu_feature("popcnt", &known), __builtin_cpu_supports("popcnt") != 0);
  EXPECT_EQ(has_cpu_feature("fma", &known), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(has_cpu_feature("avx", &known), __builtin_cpu_supports("avx") != 0);
  EXPECT_EQ(has_cpu_feature("avx2", &known), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(has_cpu_feature("bmi", &known), __builtin_cpu_supports("bmi") != 0);
  EXPECT_EQ(has_cpu_feature("bmi2", &known), __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(has_cpu_feature("avx512f", &known), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(has_cpu_feature("avx512dq", &known), __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(has_cpu_feature("avx512cd", &known), __builtin_cpu_supports("avx512cd") != 0);
  EXPECT_EQ(has_cpu_feature("avx512bw", &known), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(has_cpu_feature("avx512vl", &known), __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(has_cpu_feature("avx512vbmi", &known), __builtin_cpu_supports("avx512vbmi") != 0);
  EXPECT_EQ(has_cpu_feature("avx512vnni", &known), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(has_cpu_feature("avx512_bf16", &known), __builtin_cpu_supports("avx512bf16") != 0);
}
#endif

TEST(Registry, OfTwoPluginsWithOneIdTheSecondIsPassedOver) {
  PluginFolder folder, extra;
  folder.add("a", "toy", PluginFolder::manifest("toy", "toy", 1));
  folder.add("b", "toy", PluginFolder::manifest("toy", "toy", 9));
  extra.add("c", "toy", PluginFolder::manifest("toy", "toy", 9));
  auto registry = folder.registry({.extra_folders = {extra.path()}});
  const std::vector<PluginInfo> plugins = registry->plugins();
  ASSERT_EQ(plugins.size(), 3u);
  EXPECT_TRUE(plugins[0].taken);
  EXPECT_EQ(plugins[1].reason, cat("the id is taken by ", folder.path("a.so")));
  EXPECT_EQ(plugins[2].reason, cat("the id is taken by ", folder.path("a.so")));
}

TEST(Registry, TakesOnlyWhatIsAllowedAndRefusesAnIdThatIsNotThere) {
  PluginFolder folder;
  folder.add_plain("toy", "toy");
  folder.add("other", "toy", PluginFolder::manifest("other", "toy", 99));
  auto registry = folder.registry({.allowed = {"toy"}});
  EXPECT_EQ(info_of(*registry, "other").reason, "not in the list of plugins");
  EXPECT_TRUE(info_of(*registry, "toy").taken);
  const Status status = folder.discover({.allowed = {"toi"}}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(),
            cat("plugin 'toi' is not in ", folder.path(), "; there are other, toy; did you mean 'toy'?"));
}

TEST(Registry, LeavesAloneWhatALinkBringsInFromOutside) {
  PluginFolder folder, outside;
  outside.add_plain("toy", "toy");
  folder.write("linked_so.json", PluginFolder::manifest("linked_so", "toy"));
  fs::create_symlink(outside.path("toy.so"), folder.path("linked_so.so"));
  fs::create_symlink(outside.path("toy.json"), folder.path("linked_json.json"));
  folder.write("missing.json", PluginFolder::manifest("missing", "toy"));
  folder.add_plain("toy_init_fails", "toy");
  fs::create_symlink("toy_init_fails.so", folder.path("inside.so"));
  folder.write("inside.json", PluginFolder::manifest("inside", "toy", 99));
  auto registry = folder.registry();
  EXPECT_NE(info_of(*registry, "linked_so").reason.find("is a link out of the plugin folder"), std::string::npos);
  EXPECT_NE(info_of(*registry, "linked_json").reason.find("is a link out of the plugin folder"), std::string::npos);
  EXPECT_EQ(info_of(*registry, "missing").reason, cat("no file ", folder.path("missing.so")));
  EXPECT_TRUE(info_of(*registry, "inside").taken);
}

TEST(Registry, NeedsAnAbsoluteFolderThatExists) {
  EXPECT_EQ(Registry::discover({.folder = "lib/moehost"}).status().code(), Code::kBadConfig);
  EXPECT_EQ(Registry::discover({.folder = ""}).status().code(), Code::kBadConfig);
  const Status status = Registry::discover({.folder = "/nowhere/moehost"}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "plugin folder /nowhere/moehost: No such file or directory");
}

TEST(Registry, IsSharedWhileItLivesAndAPluginBelongsToOne) {
  PluginFolder folder;
  folder.add_plain("toy", "toy");
  auto first = folder.registry();
  EXPECT_EQ(folder.registry(), first);
  ASSERT_TRUE(first->open({.kind = "toy"}).ok());
  auto other = folder.registry({.allowed = {"toy"}});
  EXPECT_NE(other, first);
  EXPECT_NE(other->open({.kind = "toy"}).status().message().find("in use by another registry"), std::string::npos);
  first.reset();
  other.reset();
  EXPECT_TRUE(folder.registry()->open({.kind = "toy"}).ok());  // a new life of the same library
  EXPECT_EQ(folder.counters("toy").inits, 2);
  EXPECT_EQ(folder.counters("toy").shutdowns, 2);
}

TEST(Registry, TheDefaultFolderIsBesideTheProgramUnlessTheEnvironmentSaysOtherwise) {
  const char* before = std::getenv("MOEHOST_PLUGIN_DIR");
  const std::string saved = before ? before : "";
  unsetenv("MOEHOST_PLUGIN_DIR");
  EXPECT_EQ(default_plugin_folder(), cat(MOEHOST_BINARY_DIR, "/lib/moehost"));
  setenv("MOEHOST_PLUGIN_DIR", "/opt/plugins", 1);
  EXPECT_EQ(default_plugin_folder(), "/opt/plugins");
  if (before)
    setenv("MOEHOST_PLUGIN_DIR", saved.c_str(), 1);
  else
    unsetenv("MOEHOST_PLUGIN_DIR");
}

}  // namespace
}  // namespace moehost

// Files, environment and --set: precedence, relative paths, and where every value came from.
#include <gtest/gtest.h>

#include "tests/config/helpers.h"

namespace moehost {
namespace {

using test::joined;
using test::load;

ConfigSources environment(const std::string& name, const std::string& value) { return {{}, {{name, value}}, {}}; }
ConfigSources set(const std::string& path, const std::string& value) { return {{}, {}, {{path, value}}}; }

std::string origin(const ConfigResult& result, const std::string& path) {
  for (const ConfigResult::Origin& o : result.origins) {
    if (o.path == path) return cat(o.value, " <- ", o.origin);
  }
  return "not listed";
}

TEST(ConfigSources, LaterAndNearerSourcesWin) {
  ConfigSources sources;
  const auto port = [&] {
    const ConfigResult result =
        load({{"a.yaml", "server: {port: 1, host: h}"}, {"b.yaml", "server: {port: 2}"}}, sources);
    EXPECT_TRUE(result.errors.empty()) << joined(result.errors);
    EXPECT_EQ(result.config.server.host, "h");
    return origin(result, "server.port");
  };
  EXPECT_EQ(port(), "2 <- b.yaml:1:16");
  sources.environment = {{"MOEHOST_SERVER__PORT", "3"}};
  EXPECT_EQ(port(), "3 <- MOEHOST_SERVER__PORT");
  sources.sets = {{"server.port", "4"}};
  EXPECT_EQ(port(), "4 <- --set");
  sources.sets.push_back({"server.port", "5"});
  EXPECT_EQ(port(), "5 <- --set");
}

TEST(ConfigSources, ALaterMapOfSharesReplacesTheEarlierOne) {
  const ConfigResult result = load({{"a.yaml", "device_map: {expert_layers: {cuda:0: 1, cpu: 19}}"},
                                    {"b.yaml", "device_map: {expert_layers: {reference: 2}}"}});
  ASSERT_TRUE(result.errors.empty()) << joined(result.errors);
  ASSERT_EQ(result.config.device_map.expert_layers.shares.size(), 1u);
  EXPECT_EQ(result.config.device_map.expert_layers.shares[0].first.text(), "reference:0");
}

TEST(ConfigSources, TheShortFormReplacesRulesAndTheLongFormOnlyWhatItNames) {
  const std::string file =
      "device_map: {expert_layers: {split: experts, shares: {cpu: 1}, rules: [{layers: 1, device: reference}]}}";
  const ExpertMap shorter =
      load({{"a.yaml", file}}, set("device_map.expert_layers", "cuda")).config.device_map.expert_layers;
  EXPECT_EQ(shorter.split, Split::kLayers);
  EXPECT_TRUE(shorter.rules.empty());
  EXPECT_EQ(shorter.shares[0].first.text(), "cuda:0");
  const ExpertMap longer =
      load({{"a.yaml", file}}, set("device_map.expert_layers.split", "columns")).config.device_map.expert_layers;
  EXPECT_EQ(longer.split, Split::kColumns);
  EXPECT_EQ(longer.rules.size(), 1u);
  EXPECT_EQ(longer.shares[0].first.text(), "cpu:0");
}

TEST(ConfigSources, SetTakesTheSameValuesAsAFile) {
  const std::pair<std::string, std::string> sets[] = {
      {"device_map.expert_layers", "{cuda:0: 1, cpu: 19}"},
      {"device_map.expert_layers", "{'cuda':1,'cpu':19}"},
      {"device_map.expert_layers", "{'multicuda:0:3,1:3,cpu:2':15,'cpu':85}"},
      {"device_map.expert_layers", "multicuda:0:3,1:3,cpu:2"},
      {"device_map.expert_layers.shares", "{cpu: 1}"},
      {"device_map.expert_layers.rules", "[{layers: 0-3, device: cpu}]"},
      {"device_map", "{kv_cache: cpu}"},
      {"device_map.kv_cache", "cpu"},
      {"max_sequence_length", "100"},
      {"context.max_tokens", "auto"},
      {"plugins", "[a, b]"},
      {"model", "a b=c.gguf"},
      {"device_options.cuda:1.arena", "2"},
      {"sampling.temperature", "0"},
  };
  for (const auto& [path, value] : sets) {
    const ConfigResult result = load({}, set(path, value));
    EXPECT_TRUE(result.errors.empty()) << joined(result.errors);
  }
}

TEST(ConfigSources, ErrorsInSetShowTheArgument) {
  const ConfigResult result = load({}, set("device_map.kv_cache", "cuda:x"));
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0],
            "--set: error: device 'cuda:x': the index must be a whole number from 0 to 65535, not 'x'\n"
            "      | device_map.kv_cache=cuda:x\n"
            "      |                     ^~~~~~");
  const std::pair<std::string, std::string> bad[] = {
      {"", "1"},
      {".", "1"},
      {"server", "1"},
      {"server.", "1"},
      {"server.prot", "1"},
      {"server.port", ""},
      {"server.port.x", "1"},
      {"a.b.c.d.e", "1"},
      {"server.port", "{"},
      {"server.port", "1\n---\n2"},
      {"a=b", "1"},
      {"device_options.cpu", "1"},
  };
  for (const auto& [path, value] : bad) {
    const ConfigResult refused = load({}, set(path, value));
    ASSERT_EQ(refused.errors.size(), 1u) << path << "=" << value << joined(refused.errors);
    EXPECT_TRUE(refused.errors[0].starts_with("--set: error: ")) << refused.errors[0];
    EXPECT_NE(refused.errors[0].find("^"), std::string::npos);
  }
}

TEST(ConfigSources, ASetOfManyDotsIsRefusedWithoutRecursion) {
  EXPECT_EQ(load({}, set(std::string(200000, '.'), "1")).errors.size(), 1u);
}

TEST(ConfigSources, EnvironmentNamesKeysInUpperCase) {
  EXPECT_EQ(load({}, environment("MOEHOST_DEVICE_MAP__KV_CACHE", "cpu")).config.device_map.kv_cache->text(), "cpu:0");
  EXPECT_EQ(load({}, environment("MOEHOST_MODEL", "m.gguf")).config.model, "m.gguf");
  EXPECT_EQ(load({}, environment("MOEHOST_MAX_SEQUENCE_LENGTH", "9")).config.context.max_tokens, 9u);
  EXPECT_EQ(load({}, environment("MOEHOST_DEVICE_OPTIONS__CPU__PIN", "1")).config.device_options.at("cpu:0").at("pin"),
            "1");
}

TEST(ConfigSources, UnknownVariablesAreErrorsExceptThoseOfOthers) {
  EXPECT_TRUE(load({}, environment("MOEHOST_PLUGIN_DIR", "x")).errors.empty());
  EXPECT_TRUE(load({}, environment("MOEHOST_LOG", "debug")).errors.empty());
  EXPECT_TRUE(load({}, environment("PATH", "x")).errors.empty());
  for (const char* name : {"MOEHOST_", "MOEHOST_FOO", "MOEHOST_SERVER_PORT", "MOEHOST___", "MOEHOST_SERVER__PORTS"}) {
    const ConfigResult result = load({}, environment(name, "1"));
    ASSERT_EQ(result.errors.size(), 1u) << name;
    EXPECT_TRUE(result.errors[0].starts_with(cat(name, ": error: unknown key"))) << result.errors[0];
  }
}

TEST(ConfigSources, PathsOfAFileAreRelativeToThatFile) {
  const std::string text = "model: ../m.gguf\nplugin_folder: /abs";
  EXPECT_EQ(load({{"conf/a.yaml", text}}).config.model, "conf/../m.gguf");
  EXPECT_EQ(load({{"conf/a.yaml", text}}).config.plugin_folder, "/abs");
  EXPECT_EQ(load({{"a.yaml", text}}).config.model, "../m.gguf");
  EXPECT_EQ(load({{"conf/a.yaml", text}}, set("model", "other.gguf")).config.model, "other.gguf");
}

TEST(ConfigSources, EveryKeyHasAnOrigin) {
  const ConfigResult result = load("server:\n  port: 1\ndevice_options: {cpu: {a: x}}\nmodel: m.gguf");
  EXPECT_EQ(origin(result, "server.port"), "1 <- t.yaml:2:9");
  EXPECT_EQ(origin(result, "device_options.cpu:0.a"), "x <- t.yaml:3:27");
  EXPECT_EQ(origin(result, "model"), "m.gguf <- t.yaml:4:8");
  EXPECT_EQ(origin(result, "server.host"), "127.0.0.1 <- default");
  EXPECT_EQ(origin(result, "cpu_moe_options.num_threads"), "auto <- default");
  EXPECT_EQ(origin(result, "device_map.expert_layers.shares"), "cpu <- default");
  EXPECT_EQ(origin(load("max_sequence_length: 7"), "context.max_tokens"), "7 <- t.yaml:1:22");
}

TEST(ConfigSources, TheErrorsOfAllSourcesAreReported) {
  ConfigSources sources = set("server.port", "x");
  sources.environment = {{"MOEHOST_FOO", "1"}};
  const ConfigResult result = load({{"a.yaml", "modle: x"}, {"b.yaml", "{"}}, sources);
  ASSERT_EQ(result.errors.size(), 4u) << joined(result.errors);
  EXPECT_TRUE(result.errors[0].starts_with("a.yaml:1:1: "));
  EXPECT_TRUE(result.errors[1].starts_with("b.yaml:1:2: "));
  EXPECT_TRUE(result.errors[2].starts_with("MOEHOST_FOO: "));
  EXPECT_TRUE(result.errors[3].starts_with("--set: "));
}

}  // namespace
}  // namespace moehost

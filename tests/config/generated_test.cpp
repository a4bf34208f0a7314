// What is made from the schema table: docs/configuration.md, the JSON Schema, and the example configurations against
// it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/config/document.h"
#include "core/config/number.h"
#include "core/config/schema.h"
#include "tests/config/helpers.h"

namespace moehost {
namespace {

using Json = nlohmann::json;
using test::joined;
using test::load;

const std::string kExamples = MOEHOST_SOURCE_DIR "/configs";

std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

std::vector<std::string> example_files() {
  std::vector<std::string> out;
  for (const auto& file : std::filesystem::directory_iterator(kExamples)) out.push_back(file.path().string());
  return out;
}

// Whether node has the shape that schema asks for, of the words of JSON Schema that config_json_schema uses.
bool accepts(const Json& schema, const Node& node) {
  if (schema.contains("anyOf")) {
    const auto& any = schema["anyOf"];
    return std::any_of(any.begin(), any.end(), [&](const Json& one) { return accepts(one, node); });
  }
  if (schema.contains("const")) return schema["const"] == node.text;
  if (schema.contains("enum")) return schema["enum"].dump().find(cat('"', node.text, '"')) != std::string::npos;
  if (schema["type"] == "object") {
    if (node.kind != Node::Kind::kMap) return false;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string& key = node.keys[i].text;
      const bool named = schema.contains("properties") && schema["properties"].contains(key);
      const Json& child = named ? schema["properties"][key] : schema["additionalProperties"];
      if (child == false || !accepts(child, node.items[i])) return false;
    }
    return true;
  }
  if (schema["type"] == "array") {
    const auto fits = [&](const Node& item) { return accepts(schema["items"], item); };
    return node.kind == Node::Kind::kList && std::all_of(node.items.begin(), node.items.end(), fits);
  }
  if (node.kind != Node::Kind::kScalar) return false;
  if (schema["type"] == "integer") {
    const auto value = parse_whole(node.text);
    return value && *value >= schema["minimum"].get<uint64_t>() && *value <= schema["maximum"].get<uint64_t>();
  }
  return schema["type"] != "number" || parse_real(node.text).has_value();
}

bool schema_accepts(const std::string& text) {
  const Source source{"t.yaml", text, true, ""};
  Diagnostics errors(source);
  const std::optional<Node> root = read_document(0, errors);
  return root && errors.count() == 0 && accepts(Json::parse(config_json_schema()), *root);
}

TEST(GeneratedConfig, DocumentationIsThatOfTheTable) {
  const std::string path = MOEHOST_SOURCE_DIR "/docs/configuration.md";
  if (std::getenv("MOEHOST_UPDATE")) std::ofstream(path) << config_markdown();
  EXPECT_EQ(read_file(path), config_markdown())
      << "regenerate it: moehost check --docs > docs/configuration.md (or run this test with MOEHOST_UPDATE=1)";
}

TEST(GeneratedConfig, EveryKeyIsDocumentedOnceWithAHelpLine) {
  const std::string text = config_markdown();
  for (const Entry& entry : schema()) {
    const std::string row =
        cat("| `", entry.path, "` | ", allowed(entry), " | ", entry.default_text, " | ", entry.help);
    const size_t at = text.find(row);
    EXPECT_NE(at, std::string::npos) << entry.path;
    EXPECT_EQ(text.find(row, at + 1), std::string::npos) << entry.path;
    EXPECT_TRUE(entry.help.ends_with(".")) << entry.path;
  }
}

TEST(GeneratedConfig, ADefaultThatIsAValueIsTakenByItsKey) {
  for (const Entry& entry : schema()) {
    if (entry.default_text.find(' ') != std::string::npos || entry.default_text == "none") continue;  // in words
    ConfigSources sources;
    sources.sets = {{entry.path, entry.default_text}};
    EXPECT_TRUE(load_config(sources).errors.empty()) << entry.path;
  }
}

TEST(GeneratedConfig, TheExamplesAreValidForParserAndSchema) {
  const std::vector<std::string> files = example_files();
  EXPECT_GE(files.size(), 4u);
  for (const std::string& path : files) {
    const ConfigResult result = load_config({{path}, {}, {}});
    EXPECT_TRUE(result.errors.empty()) << joined(result.errors);
    EXPECT_TRUE(schema_accepts(read_file(path))) << path;
  }
}

TEST(GeneratedConfig, TheDeepSeekExampleSaysWhatTheDesignSays) {
  const Config config = load_config({{kExamples + "/deepseek.yaml"}, {}, {}}).config;
  EXPECT_EQ(config.model, kExamples + "/../models/DeepSeek-V3-Q4_K_M-00001-of-00009.gguf");
  EXPECT_EQ(config.plugins, (std::vector<std::string>{"backend_cuda", "backend_cpu_avx512"}));
  EXPECT_EQ(config.device_map.expert_layers.shares.size(), 2u);
  EXPECT_EQ(config.device_map.expert_layers.shares[1].second, 19);
  EXPECT_EQ(config.context.max_tokens, 32768u);
  EXPECT_EQ(config.context.max_sequences, 8u);
  EXPECT_EQ(config.sampling.temperature, 0.6);
}

TEST(GeneratedConfig, SchemaAndParserAgreeOnShapes) {
  const std::pair<const char*, bool> cases[] = {
      {"max_sequence_length: 5", true},
      {"modle: a", false},
      {"server: {prot: 1}", false},
      {"server: {port: 70000}", false},
      {"server: {port: abc}", false},
      {"server: 1", false},
      {"context: {kv_dtype: f8}", false},
      {"plugins: a", false},
      {"cpu_moe_options: {num_threads: auto}", true},
      {"cpu_moe_options: {num_threads: many}", false},
      {"device_map: {expert_layers: {cuda:0: 1, cpu: 19}}", true},
      {"device_map: {expert_layers: cpu}", true},
      {"device_map: {expert_layers: {cpu: x}}", false},
      {"device_map: {expert_layers: {split: experts, shares: {cpu: 1}, rules: [{layers: 0-3, device: cpu}]}}", true},
      {"device_map: {expert_layers: {split: experts, share: {cpu: 1}}}", false},
      {"device_options: {cpu: {pin: no}}", true},
      {"device_options: {cpu: 1}", false},
  };
  for (const auto& [text, valid] : cases) {
    EXPECT_EQ(schema_accepts(text), valid) << text;
    EXPECT_EQ(load(text).errors.empty(), valid) << text;
  }
}

}  // namespace
}  // namespace moehost

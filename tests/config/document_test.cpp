// What YAML, or yaml-cpp, would let pass or answer badly; and how errors look.
#include <gtest/gtest.h>

#include "tests/config/helpers.h"

namespace moehost {
namespace {

using test::expect_error;
using test::joined;
using test::load;

void expect_model(const std::string& text, const std::string& model) {
  const ConfigResult result = load(text);
  EXPECT_TRUE(result.errors.empty()) << joined(result.errors);
  EXPECT_EQ(result.config.model, model);
}

TEST(ConfigDocument, ErrorsLookAsDesigned) {
  const ConfigResult result = load("context:\n    max_contxt: 32768\n");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0],
            "t.yaml:2:5: error: unknown key 'max_contxt' in 'context'\n"
            "    2 |     max_contxt: 32768\n"
            "      |     ^~~~~~~~~~ did you mean 'max_tokens'?");
}

TEST(ConfigDocument, SevenMistakesAreSevenErrorsInOrder) {
  const std::string path = MOEHOST_SOURCE_DIR "/tests/config/data/seven-mistakes.yaml";
  const ConfigResult result = load_config({{path}, {}, {}});
  const char* places[] = {"4:1", "6:22", "7:35", "11:9", "12:3", "14:15", "15:5"};
  ASSERT_EQ(result.errors.size(), std::size(places)) << joined(result.errors);
  for (size_t i = 0; i < std::size(places); ++i)
    EXPECT_TRUE(result.errors[i].starts_with(cat(path, ":", places[i], ": error: "))) << result.errors[i];
}

TEST(ConfigDocument, RefusesDuplicateKeys) {
  expect_error("model: a\nmodel: b\n", "2:1", "'model' is given twice");
  expect_error("server: {port: 1, port: 1}", "1:19", "'port' is given twice");
  expect_error("{\"model\": \"a\", \"model\": \"b\"}", "1:16", "'model' is given twice");
  expect_error("device_map: {expert_layers: {cpu: 1, cpu: 2}}", "1:38", "'cpu' is given twice");
}

TEST(ConfigDocument, RefusesASecondDocument) {
  expect_error("model: a\n---\nmodel: b\n", "2:1", "a second document");
  expect_error("model: a\n---\n", "2:1", "a second document");
  expect_error("model: a\n...\nmodel: b\n", "3:1", "a second document");
  expect_error("{model: a}\n}", "2:1", "not valid YAML");
  expect_model("---\nmodel: a\n...\n", "a");
}

TEST(ConfigDocument, RefusesAnchorsAliasesAndTags) {
  expect_error("plugins: &x [a]", "1:10", "anchors (&)");
  expect_error("model: &m a", "1:8", "anchors (&)");
  expect_error("model: !!str 1", "1:8", "tags are not read");
  expect_error("server: !custom {port: 1}", "1:9", "tags are not read");
  expect_error("model: *nowhere", "1:8", "not valid YAML");
  const ConfigResult cycle = load("plugins: &x [a, *x]");
  EXPECT_EQ(cycle.errors.size(), 2u) << joined(cycle.errors);
  const ConfigResult merge = load("server: &s {port: 1}\nsampling: {<<: *s}");
  EXPECT_EQ(merge.errors.size(), 3u) << joined(merge.errors) << "anchor, key '<<', alias";
}

TEST(ConfigDocument, RefusesABombOfAliasesAtOnce) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) text += cat("a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  EXPECT_FALSE(load(text).errors.empty());
}

TEST(ConfigDocument, RefusesKeysThatAreNotText) {
  expect_error("? [a]\n: b\n", "1:3", "a key must be text");
  expect_error("? {a: b}\n: c\n", "1:3", "a key must be text");
  expect_error("~: a", "1:1", "a key must be text");
  expect_error(": a", "1:1", "a key must be text");
}

TEST(ConfigDocument, RefusesAFileThatSaysNothing) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "~", "\xef\xbb\xbf", "   "})
    expect_error(text, "1:1", "the file says nothing");
}

TEST(ConfigDocument, SkipsAByteOrderMark) {
  expect_model("\xef\xbb\xbfmodel: a", "a");
  expect_error("\xef\xbb\xbfmodle: a", "1:1", "unknown key 'modle'");
}

TEST(ConfigDocument, RefusesWhatIsNotUtf8Text) {
  expect_error("model: a\xff", "1:9", "not valid UTF-8");
  expect_error("# comment\nmodel: \xc3\n", "2:8", "not valid UTF-8");
  expect_error("model: \xed\xa0\x80", "1:8", "not valid UTF-8");         // a surrogate
  expect_error("model: \xc0\xaf", "1:8", "not valid UTF-8");             // '/' in two bytes
  expect_error("model: \xf4\x90\x80\x80", "1:8", "not valid UTF-8");     // beyond U+10FFFF
  expect_error("model: \xf0\x9f\x98", "1:8", "not valid UTF-8");         // cut short
  expect_error(std::string("m\0o\0", 4), "1:2", "control character 0");  // UTF-16
  expect_error("model: a\x1b[31m", "1:9", "control character 27");
  expect_error("model: a\x7f", "1:9", "control character 127");
  expect_error("\xff\xfem", "1:1", "not valid UTF-8");
}

TEST(ConfigDocument, NamesATabInTheIndentation) {
  expect_error("server:\n\tport: 1\n", "2:1", "indented with a tab");
  expect_error("server:\n  host: a\n  \tport: 1\n", "3:3", "indented with a tab");
  expect_error("\tmodel: a", "1:1", "indented with a tab");
  expect_error("{\n\t\"model\": @\n}", "2:11", "unknown token");  // in braces a tab is as good as a space
}

TEST(ConfigDocument, LocatesSyntaxErrors) {
  expect_error("model: a: b", "1:9", "not valid YAML");
  expect_error("server: {port: 1", "1:17", "not valid YAML");
  expect_error("server: {port: 1\n\n\n", "1:17", "not valid YAML");
  expect_error("plugins: [a, b}", "1:15", "not valid YAML");
  expect_error("model: 'a", "1:10", "not valid YAML");
  expect_error("model: \"\\q\"", "1:11", "not valid YAML");
  expect_error("model: @a", "1:8", "not valid YAML");
  expect_error("model: a\n- b\n", "2:1", "not valid YAML");
  expect_error("%YAML 9.0\n---\nmodel: a", "1:1", "not valid YAML");
  expect_error("model: a\n  server: b\n", "2:9", "not valid YAML");
}

TEST(ConfigDocument, LimitsDepthAndSize) {
  std::string block;
  for (int i = 0; i < 100; ++i) block += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  expect_error(block, "17:17", "nested deeper than 16 levels");
  for (const char open : {'[', '{'}) {
    const ConfigResult result = load(std::string(100000, open));
    ASSERT_EQ(result.errors.size(), 1u);
    EXPECT_NE(result.errors[0].find("nested deeper than 16 levels"), std::string::npos) << result.errors[0];
  }
  expect_error("# " + std::string(1 << 20, 'x'), "1:1", "1048576 bytes");
  expect_model("model: a\n#" + std::string((1 << 20) - 10, 'x'), "a");
}

TEST(ConfigDocument, OfMoreThanAHundredMistakesTheFirstAreShown) {
  std::string text;
  for (int i = 0; i < 1024; ++i) text += cat("key", i, ": 1\n");
  const std::vector<std::string> errors = load(text).errors;
  ASSERT_EQ(errors.size(), 101u);
  EXPECT_EQ(errors.back(), "t.yaml: error: 924 more errors");
  expect_error(text + "key: 1\n", "1025:1", "more than 1024 entries");
}

TEST(ConfigDocument, CountsColumnsInCharactersAndKeepsTheCaretBelow) {
  const ConfigResult result = load("server: {host: größe, prot: 1}");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0],
            "t.yaml:1:23: error: unknown key 'prot' in 'server'\n"
            "    1 | server: {host: größe, prot: 1}\n"
            "      |                       ^~~~ did you mean 'port'?");
}

TEST(ConfigDocument, ShowsAPartOfAVeryLongLine) {
  const ConfigResult result = load("server: {host: " + std::string(5000, 'x') + ", prot: 1}");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_LT(result.errors[0].size(), 400u);
  EXPECT_NE(result.errors[0].find("prot: 1}\n"), std::string::npos);
}

TEST(ConfigDocument, ReadsWindowsLineEnds) {
  expect_model("version: 1\r\nmodel: a\r\n", "a");
  expect_error("version: 1\r\nmodle: a\r\n", "2:1", "modle: a\n");
}

TEST(ConfigDocument, ReadsJsonUnchanged) {
  const ConfigResult result = load(
      "{\n\t\"version\": 1,\n\t\"model\": \"\\/models\\/a\\u00e9.gguf\",\n"
      "\t\"device_map\": {\"expert_layers\":{\"cuda:0\":1,\"cpu\":19}},\n"
      "\t\"cpu_moe_options\": {\"num_threads\": \"auto\"},\n\t\"sampling\": {\"temperature\": 0.0}\n}\n");
  ASSERT_TRUE(result.errors.empty()) << joined(result.errors);
  EXPECT_EQ(result.config.model, "/models/a\xc3\xa9.gguf");
  EXPECT_EQ(result.config.device_map.expert_layers.shares.size(), 2u);
  EXPECT_EQ(result.config.sampling.temperature, 0.0);
}

TEST(ConfigDocument, FilesThatCannotBeReadAreNamed) {
  const ConfigResult missing = load_config({{"nowhere/x.yaml"}, {}, {}});
  ASSERT_EQ(missing.errors.size(), 1u);
  EXPECT_NE(missing.errors[0].find("nowhere/x.yaml: No such file"), std::string::npos) << missing.errors[0];
  const ConfigResult folder = load_config({{MOEHOST_SOURCE_DIR "/tests"}, {}, {}});
  ASSERT_EQ(folder.errors.size(), 1u);
  EXPECT_NE(folder.errors[0].find("not a regular file"), std::string::npos) << folder.errors[0];
}

}  // namespace
}  // namespace moehost

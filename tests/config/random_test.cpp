// Configurations made at random from a fixed seed: mistakes are counted and placed, and nothing crashes.
#include <gtest/gtest.h>

#include <random>

#include "tests/config/helpers.h"

namespace moehost {
namespace {

using test::joined;
using test::load;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t below(size_t limit) { return engine_() % limit; }
  template <class T, size_t N>
  const T& of(const T (&choices)[N]) {
    return choices[below(N)];
  }

 private:
  std::mt19937_64 engine_;
};

struct Line {
  const char* good;
  const char* bad;  // one mistake, on this line
};
struct Section {
  const char* header;  // "": top level
  std::vector<Line> lines;
};

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"",
       {{"version: 1", "version: one"}, {"model: a.gguf", "modle: a.gguf"}, {"plugins: [a, b]", "plugins: [a, a]"}}},
      {"device_map:",
       {{"  non_expert_layers: cuda", "  non_expert_layers: cuda:01"},
        {"  expert_layers: {cuda:0: 1, cpu: 19}", "  expert_layers: {cuda:0: 1, cpu: 0}"},
        {"  kv_cache: cpu", "  kv_cache: &a cpu"}}},
      {"cpu_moe_options:", {{"  num_threads: auto", "  num_threads: -1"}, {"  batch_size: 8", "  batch_size: 0x8"}}},
      {"context:",
       {{"  max_tokens: 77", "  max_token: 77"},
        {"  kv_dtype: bf16", "  kv_dtype: bf61"},
        {"  prefill_chunk: 7", "  prefill_chunk: .inf"}}},
      {"server:", {{"  host: localhost", "  host: [localhost]"}, {"  port: 80", "  port: 080"}}},
      {"sampling:", {{"  temperature: 0.5", "  temperature: yes"}, {"  top_p: 0.9", "  top_p: !!float 0.9"}}},
  };
  return all;
}

TEST(RandomConfig, EveryMistakeIsOneErrorOnItsLine) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    size_t line = 0;
    std::vector<size_t> wrong;
    for (const Section& section : sections()) {
      if (*section.header) text += cat(section.header, "\n"), ++line;
      for (const Line& choice : section.lines) {
        const size_t what = random.below(4);  // half good, a quarter bad, a quarter a comment
        text += cat(what == 0   ? choice.bad
                    : what == 1 ? "  # nothing"
                                : choice.good,
                    random.below(8) ? "\n" : "  # c\n");
        ++line;
        if (what == 0) wrong.push_back(line);
      }
    }
    text += "device_options: {}\n";  // never a file that says nothing
    const std::vector<std::string> errors = load(text).errors;
    ASSERT_EQ(errors.size(), wrong.size()) << text << joined(errors);
    for (size_t i = 0; i < wrong.size(); ++i)
      ASSERT_TRUE(errors[i].starts_with(cat("t.yaml:", wrong[i], ":"))) << text << joined(errors);
  }
}

// A node of any shape: keys and values that mean something somewhere, in block or flow style.
std::string random_node(Random& random, int depth, bool flow, const std::string& indent) {
  static const char* scalars[] = {
      "1",      "0",    "010",   "-3",  "1.5", ".nan",  "no",    "~",  "auto",
      "cpu",    "cuda", "'cpu'", "f16", "0-3", "\"é\"", "&a 1",  "*a", "!!int 2",
      "layers", "a: b", "",      "[1",  "}",   "@",     "1e999", "'",  "multicuda:0:3,1,cpu:2",
      "# c",    "\t",   "|"};
  static const char* keys[] = {"model",
                               "version",
                               "server",
                               "port",
                               "device_map",
                               "expert_layers",
                               "shares",
                               "split",
                               "rules",
                               "layers",
                               "device",
                               "context",
                               "kv_dtype",
                               "cuda:0",
                               "cpu",
                               "sampling",
                               "top_k",
                               "device_options",
                               "plugins",
                               "balance",
                               "<<",
                               "? [a]",
                               "'quoted key'",
                               "",
                               "max_sequence_length"};
  const size_t kind = depth == 0 ? 0 : random.below(3);
  if (kind == 0) return random.of(scalars);
  const size_t count = random.below(4);
  std::string out = flow ? (kind == 1 ? "{" : "[") : "";
  for (size_t i = 0; i < count; ++i) {
    const bool inner_flow = flow || random.below(2);
    const std::string deeper = indent + "  ";
    const std::string head = kind == 1 ? cat(random.of(keys), random.below(20) ? ": " : ":") : flow ? "" : "- ";
    const std::string node = random_node(random, depth - 1, inner_flow, deeper);
    out += flow ? cat(head, node, ", ") : cat("\n", indent, head, node);
  }
  return out + (flow ? (kind == 1 ? "}" : "]") : "");
}

// Every error of one file names it, shows a line of it and puts a caret below.
void expect_located(const std::string& text) {
  for (const std::string& error : load(text).errors) {
    ASSERT_TRUE(error.starts_with("t.yaml:")) << text << "\n" << error;
    ASSERT_NE(error.find(": error: "), std::string::npos) << text << "\n" << error;
    ASSERT_EQ(std::count(error.begin(), error.end(), '\n'), 2) << text << "\n" << error;
    ASSERT_NE(error.find("| ", error.rfind('\n')), std::string::npos) << text << "\n" << error;
    ASSERT_NE(error.find('^', error.rfind('\n')), std::string::npos) << text << "\n" << error;
  }
}

TEST(RandomConfig, AnyNestingOfKeysAndValuesIsReadOrRefusedWithAPlace) {
  Random random(2);
  for (int round = 0; round < 5000; ++round) {
    const std::string text = random_node(random, 5, random.below(2), "");
    expect_located(text);
    if (HasFatalFailure()) return;
  }
}

TEST(RandomConfig, AnyDamageToAFileIsReadOrRefusedWithAPlace) {
  const std::string whole =
      "version: 1\nmodel: größe.gguf\nplugins: [a, 'b']\ndevice_map:\n  non_expert_layers: {cuda:0: 1, cuda:1: 2}\n"
      "  expert_layers:\n    split: layers\n    shares: {\"cpu\":1}\n    rules:\n      - {layers: 0-3, device: cpu}\n"
      "context: {kv_dtype: f16} # comment\nsampling: {temperature: 0.5}\n";
  static const char* pieces[] = {"\n",    " ",   "\t", ":",    "{",        "}",  "[", "]",   ",",  "'",
                                 "\"",    "&a ", "*a", "!",    "|",        ">",  "%", "@",   "\\", "#",
                                 "---\n", "- ",  "? ", "\xc3", "\xf0\x9f", "\r", "0", "\x01"};
  Random random(3);
  for (int round = 0; round < 5000; ++round) {
    std::string text = whole;
    for (size_t edits = 1 + random.below(4); edits > 0; --edits) {
      const size_t at = random.below(text.size());
      if (random.below(2))
        text.erase(at, random.below(20));
      else
        text.insert(at, random.of(pieces));
      if (text.empty()) break;
    }
    expect_located(text);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace moehost

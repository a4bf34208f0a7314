// The committed TINY model and the script that writes it agree.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/format/gguf.h"
#include "moehost/ops.h"

namespace moehost {
namespace {

constexpr const char* kCommitted = MOEHOST_SOURCE_DIR "/tests/data/tiny.gguf";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The file that make_tiny_model.py writes with the arguments; empty where Python or numpy are not here.
std::string write_variant(const std::string& arguments) {
  if (std::system("python3 -c 'import numpy' > /dev/null 2>&1") != 0) return "";
  const std::string path = testing::TempDir() + "/tiny_variant.gguf";
  const std::string command = "python3 " MOEHOST_SOURCE_DIR "/tests/tools/make_tiny_model.py " + path + " " + arguments;
  EXPECT_EQ(std::system((command + " > /dev/null").c_str()), 0) << command;
  return path;
}

TEST(Tiny, TheScriptWritesTheCommittedFile) {
  const std::string path = write_variant("");
  if (path.empty()) GTEST_SKIP() << "python3 with numpy is not here";
  EXPECT_TRUE(contents(path) == contents(kCommitted));
}

TEST(Tiny, TheVariantsHaveTheirTensors) {
  struct Variant {
    const char* arguments;
    size_t tensors;
    const char* tensor;  // one of them
    uint32_t format;
    bool has_experts;
  };
  const Variant variants[] = {{"--type F32", 43, "blk.3.ffn_up_exps.weight", MH_FORMAT_F32, true},
                              {"--type BF16 --separate-experts", 127, "blk.3.ffn_down.7.weight", MH_FORMAT_BF16, true},
                              {"--type Q4_1 --dense", 39, "blk.0.ffn_gate.weight", MH_FORMAT_Q4_1, false},
                              {"--type MXFP4", 43, "blk.0.ffn_gate_exps.weight", MH_FORMAT_MXFP4, true},
                              {"--random 5", 43, "blk.0.ffn_gate_inp.weight", MH_FORMAT_F32, true}};
  for (const Variant& one : variants) {
    const std::string path = write_variant(one.arguments);
    if (path.empty()) GTEST_SKIP() << "python3 with numpy is not here";
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->tensors().size(), one.tensors) << one.arguments;
    const GgufTensor* tensor = file->tensor(one.tensor);
    ASSERT_NE(tensor, nullptr) << one.arguments;
    EXPECT_EQ(tensor->format, one.format) << one.arguments;
    EXPECT_EQ(file->find("llama.expert_count") != nullptr, one.has_experts) << one.arguments;
  }
  const auto vocabulary = GgufFile::open(write_variant("--vocab-only"));
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  EXPECT_TRUE(vocabulary->tensors().empty());
  EXPECT_EQ((**vocabulary->get_strings("tokenizer.ggml.tokens")).size(), 512u);
}

}  // namespace
}  // namespace moehost

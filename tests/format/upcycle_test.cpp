// Upcycling against the reference script where it can run, and against values it gave.
#include "core/format/upcycle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/format/gguf.h"
#include "moehost/ops.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;
using Metadata = std::vector<std::pair<std::string, GgufValue>>;

std::string temporary(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A tensor of given bytes, none like another.
GgufOut tensor_of(const std::string& name, uint32_t format, std::vector<uint64_t> shape, size_t bytes) {
  return {name, format, std::move(shape), [=](const auto& sink) {
            std::string data(bytes, '\0');
            for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 7 + name.size() + name.back() + name[4]);
            return sink(std::as_bytes(std::span(data)));
          }};
}

Metadata dense_metadata() {
  return {{"general.architecture", {std::string("llama"), kGgufString}},
          {"llama.block_count", {uint64_t{2}, kGgufU32}},
          {"llama.embedding_length", {uint64_t{32}, kGgufU32}},
          {"llama.feed_forward_length", {uint64_t{64}, kGgufU32}},
          {"tokenizer.ggml.tokens", {GgufValue::Strings{"a", "b\u00e9"}, kGgufArray, kGgufString}},
          {"tokenizer.ggml.token_type", {std::vector<int64_t>{1, 3}, kGgufArray, kGgufI32}},
          {"tokenizer.ggml.add_bos_token", {false, kGgufBool}}};
}

std::string write_dense(const std::string& name, const Metadata& metadata) {
  std::vector<GgufOut> tensors = {tensor_of("token_embd.weight", MH_FORMAT_Q8_0, {32, 2}, 68)};
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    tensors.push_back(tensor_of(layer + "ffn_norm.weight", MH_FORMAT_F32, {32}, 128));
    tensors.push_back(tensor_of(layer + "ffn_down.weight", MH_FORMAT_Q4_1, {64, 32}, 1280));
    tensors.push_back(tensor_of(layer + "ffn_gate.weight", MH_FORMAT_Q8_0, {32, 64}, 2176));
    tensors.push_back(tensor_of(layer + "ffn_up.weight", MH_FORMAT_F16, {32, 64}, 4096));
  }
  const std::string path = temporary(name);
  const Status status = write_gguf(path, metadata, tensors);
  EXPECT_TRUE(status.ok()) << status.message();
  return path;
}

std::vector<float> floats_of(const GgufTensor& tensor) {
  std::vector<float> out(tensor.bytes / sizeof(float));
  std::memcpy(out.data(), tensor.data, tensor.bytes);
  return out;
}

TEST(Upcycle, EveryExpertIsACopyAndRouterRowsAreEqualWithinGroups) {
  const std::string in = write_dense("dense.gguf", dense_metadata()), out = temporary("experts.gguf");
  const Status status = upcycle_gguf(in, out, {});
  ASSERT_TRUE(status.ok()) << status.message();
  const auto dense = GgufFile::open(in), experts = GgufFile::open(out);
  ASSERT_TRUE(dense.ok() && experts.ok()) << experts.status().message();
  EXPECT_EQ(**experts->get_uint("llama.expert_count"), 4u);
  EXPECT_EQ(**experts->get_uint("llama.expert_used_count"), 2u);
  for (size_t i = 0; i < dense->metadata().size(); ++i)
    EXPECT_EQ(experts->metadata()[i].first, dense->metadata()[i].first);
  EXPECT_EQ(experts->tensors().size(), dense->tensors().size() + 2);
  for (const char* part : {"gate", "up", "down"}) {
    const GgufTensor& one = *dense->tensor(cat("blk.1.ffn_", part, ".weight"));
    const GgufTensor* all = experts->tensor(cat("blk.1.ffn_", part, "_exps.weight"));
    ASSERT_NE(all, nullptr);
    EXPECT_EQ(all->shape, (std::array<uint64_t, 4>{one.shape[0], one.shape[1], 4, 1}));
    for (int e = 0; e < 4; ++e) EXPECT_EQ(std::memcmp(all->data + e * one.bytes, one.data, one.bytes), 0);
  }
  const GgufTensor* router = experts->tensor("blk.1.ffn_gate_inp.weight");
  ASSERT_NE(router, nullptr);
  EXPECT_EQ(router->format, uint32_t{MH_FORMAT_F32});
  const std::vector<float> rows = floats_of(*router);
  ASSERT_EQ(rows.size(), 4u * 32);
  EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 32, rows.begin() + 32));
  EXPECT_TRUE(std::equal(rows.begin() + 64, rows.begin() + 96, rows.begin() + 96));
  // From the reference script: layer 1, rows 0 and 1, columns 0 and 31.
  EXPECT_EQ(rows[0], -0.00751054659f);
  EXPECT_EQ(rows[31], 0.00447882432f);
  EXPECT_EQ(rows[64], -0.00635369681f);
  EXPECT_EQ(rows[95], -0.00860563014f);
}

TEST(Upcycle, WritesTheBytesOfTheReferenceScript) {
  const std::string script = MOEHOST_SHARED_DIR "/tools/upcycle_reference.py";
  if (!fs::exists(script)) GTEST_SKIP() << script << " is not here";
  if (std::system("python3 -c 'import gguf' > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "the Python package gguf is not here";
  const std::string in = write_dense("dense.gguf", dense_metadata());
  const std::string own = temporary("own.gguf"), reference = temporary("reference.gguf");
  struct Case {
    UpcycleOptions options;
    std::string arguments;
  };
  const Case cases[] = {
      {{}, ""},
      {{6, 3, UpcycleRouter::kAuto, 0.01}, "--num-experts 6 --experts-per-token 3"},
      {{8, 4, UpcycleRouter::kGrouped, 0.5}, "--num-experts 8 --experts-per-token 4 --router grouped --noise 0.5"},
      {{4, 2, UpcycleRouter::kNoise, 0.02}, "--router noise --noise 0.02"},
      {{1, 1, UpcycleRouter::kAuto, 0.01}, "--num-experts 1 --experts-per-token 1"}};
  for (const Case& one : cases) {
    ASSERT_EQ(std::system(cat("python3 ", script, " ", in, " ", reference, " ", one.arguments, " > /dev/null").c_str()),
              0);
    ASSERT_TRUE(upcycle_gguf(in, own, one.options).ok());
    EXPECT_TRUE(contents(own) == contents(reference)) << one.arguments;
  }
}

TEST(Upcycle, RefusesOptionsThatCannotBeMeant) {
  const std::string in = write_dense("dense.gguf", dense_metadata()), out = temporary("refused.gguf");
  const auto code = [&](UpcycleOptions options) { return upcycle_gguf(in, out, options).code(); };
  EXPECT_EQ(code({4, 5}), Code::kUsage);
  EXPECT_EQ(code({4, 0}), Code::kUsage);
  EXPECT_EQ(code({0, 0}), Code::kUsage);
  EXPECT_EQ(code({100000, 2}), Code::kUsage);
  EXPECT_EQ(code({6, 3, UpcycleRouter::kGrouped}), Code::kUsage);
  EXPECT_EQ(code({4, 2, UpcycleRouter::kAuto, INFINITY}), Code::kUsage);
  EXPECT_FALSE(fs::exists(out));
}

TEST(Upcycle, RefusesModelsThatAreNotDenseLlama) {
  const std::string out = temporary("refused.gguf");
  const auto refused = [&](Metadata metadata) {
    const Status status = upcycle_gguf(write_dense("other.gguf", metadata), out, {});
    EXPECT_EQ(status.code(), Code::kBadModel);
    return status.message();
  };
  Metadata other = dense_metadata();
  other[0].second.data = std::string("qwen2");
  EXPECT_NE(refused(other).find("this is qwen2"), std::string::npos);
  Metadata experts = dense_metadata();
  experts.push_back({"llama.expert_count", {uint64_t{8}, kGgufU32}});
  EXPECT_NE(refused(experts).find("has experts already"), std::string::npos);
  Metadata wide = dense_metadata();
  wide[2].second.data = uint64_t{64};
  EXPECT_NE(refused(wide).find("blk.0.ffn_gate.weight"), std::string::npos);
  Metadata absent = dense_metadata();
  absent.erase(absent.begin() + 2);
  EXPECT_NE(refused(absent).find("is absent"), std::string::npos);
}

}  // namespace
}  // namespace moehost

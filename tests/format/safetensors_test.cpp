// safetensors: what is written is read back, and every rule of the format is checked.
#include "core/format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace moehost {
namespace {

namespace fs = std::filesystem;

std::string temporary(const std::string& name) { return testing::TempDir() + "/" + name; }

// A file of a header (its size in front) and `data_bytes` bytes of data.
std::string write_raw(const std::string& header, size_t data_bytes) {
  const std::string path = temporary("raw.safetensors");
  const uint64_t size = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header << std::string(data_bytes, '\1');
  return path;
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::string path = temporary("written.safetensors");
  const float floats[] = {1.5f, -2.0f, 3.0f};
  const int32_t ints[] = {7, -8};
  ASSERT_TRUE(write_safetensors(path, {{"x", "F32", {3, 1}, std::as_bytes(std::span(floats))},
                                       {"empty", "F32", {0, 4}, {}},
                                       {"y", "I32", {2}, std::as_bytes(std::span(ints))}})
                  .ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 3u);
  const auto x = file->floats("x"), empty = file->floats("empty");
  ASSERT_TRUE(x.ok()) << x.status().message();
  EXPECT_TRUE(std::ranges::equal(*x, floats));
  EXPECT_EQ(file->find("x")->shape, (std::vector<uint64_t>{3, 1}));
  EXPECT_TRUE(empty.ok() && empty->empty());
  const auto y = file->ints("y");
  ASSERT_TRUE(y.ok());
  EXPECT_TRUE(std::ranges::equal(*y, ints));
  EXPECT_EQ(file->floats("y").status().message(), path + ": y is I32, not F32");
  EXPECT_EQ(file->ints("z").status().message(), path + ": no tensor z");
  EXPECT_EQ(file->find("z"), nullptr);
}

TEST(Safetensors, AnyOrderOfTheHeaderAndItsMetadataAreRead) {
  const auto file = SafetensorsFile::open(write_raw(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[2,4]},"c":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}  )",
      6));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->find("a")->data.size(), 2u);
  EXPECT_EQ(file->find("b")->data.data() - file->find("c")->data.data(), 4);
}

struct Malformed {
  const char* why;
  const char* header;
  size_t data_bytes;
};

TEST(Safetensors, EveryRuleOfTheFormatIsChecked) {
  const Malformed cases[] = {
      {"empty header", "", 0},
      {"space before the brace", R"( {})", 0},
      {"list", R"([])", 0},
      {"no JSON", R"({"a":)", 0},
      {"text after it", R"({}x)", 0},
      {"comment", R"({}/**/)", 0},
      {"not UTF-8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
      {"name twice",
       R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0},
      {"member twice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1},
      {"deep", R"({"a":[[[[[[[[]]]]]]]]})", 0},
      {"entry is a list", R"({"a":["U8",[1],[0,1]]})", 1},
      {"no dtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1},
      {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1},
      {"no offsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1},
      {"a member more", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1},
      {"dtype is a number", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1},
      {"unknown dtype", R"({"a":{"dtype":"U7","shape":[1],"data_offsets":[0,1]}})", 1},
      {"negative dimension", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1},
      {"dimension is a fraction", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1},
      {"dimension beyond 64 bits", R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})", 1},
      {"17 dimensions", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1},
      {"product wraps to 0", R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0},
      {"bits wrap", R"({"a":{"dtype":"F64","shape":[288230376151711745],"data_offsets":[0,8]}})", 8},
      {"half a byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1},
      {"shape is no list", R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1},
      {"one offset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1},
      {"three offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1},
      {"offsets turned round", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1},
      {"offset negative", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1},
      {"past the end", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1},
      {"far past the end",
       R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}})", 1},
      {"size and shape disagree", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}})", 2},
      {"hole before", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2},
      {"hole between",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3},
      {"same place",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1},
      {"empty one inside another",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2},
      {"bytes after the last", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2},
      {"data without tensors", R"({})", 1},
      {"metadata is a string", R"({"__metadata__":"x"})", 0},
      {"metadata of a number", R"({"__metadata__":{"x":1}})", 0}};
  for (const Malformed& one : cases) {
    const std::string path = write_raw(one.header, one.data_bytes);
    const auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.ok()) << one.why;
    EXPECT_EQ(file.status().code(), Code::kBadModel);
    EXPECT_TRUE(file.status().message().starts_with(path + ":byte ")) << file.status().message();
  }
}

TEST(Safetensors, ATruncatedHeaderOrSizeIsRefused) {
  const std::string path = temporary("cut.safetensors");
  for (const std::string& bytes :
       {std::string(), std::string(7, '\0'), std::string(8, '\xff') + "{}", std::string("\3\0\0\0\0\0\0\0{}", 10)}) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(SafetensorsFile::open(path).status().code(), Code::kBadModel) << bytes.size();
  }
  EXPECT_EQ(SafetensorsFile::open(testing::TempDir()).status().code(), Code::kBadModel);
}

TEST(Safetensors, ValuesThatAreNotAlignedAreNotHandedOutAsFloats) {
  const auto file = SafetensorsFile::open(write_raw(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      5));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_NE(file->floats("b").status().message().find("not aligned"), std::string::npos);
}

TEST(Safetensors, TheWriterRefusesSizesAndNamesThatDoNotFit) {
  const std::string path = temporary("never.safetensors");
  const float values[] = {1, 2};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(write_safetensors(path, {{"x", "F32", {3}, bytes}}).code(), Code::kUsage);
  EXPECT_EQ(write_safetensors(path, {{"x", "F33", {2}, bytes}}).code(), Code::kUsage);
  EXPECT_EQ(write_safetensors(path, {{"x", "F32", {2}, bytes}, {"x", "F32", {2}, bytes}}).code(), Code::kUsage);
  EXPECT_FALSE(fs::exists(path));
}

TEST(Safetensors, OpensEveryFileOfTheSharedData) {
  const std::string folder = MOEHOST_SHARED_DIR "/data";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::open(entry.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_FALSE(file->tensors().empty());
    ++count;
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace moehost

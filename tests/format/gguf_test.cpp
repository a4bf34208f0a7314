// GgufFile on files that are as they should be; what is malformed is in malformed_test.cpp.
#include "core/format/gguf.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/format/dtype.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;
using Metadata = std::vector<std::pair<std::string, GgufValue>>;

std::string temporary(const std::string& name) { return testing::TempDir() + "/" + name; }

GgufOut tensor_of(const std::string& name, std::vector<uint64_t> shape, float first) {
  uint64_t count = 1;
  for (const uint64_t dimension : shape) count *= dimension;
  return {name, MH_FORMAT_F32, std::move(shape), [=](const auto& sink) -> Status {
            for (uint64_t i = 0; i < count; ++i) {  // in many pieces
              const float value = first + static_cast<float>(i);
              MOEHOST_RETURN_IF_ERROR(sink(std::as_bytes(std::span(&value, 1))));
            }
            return {};
          }};
}

Metadata one_of_each_type() {
  return {{"u8", {uint64_t{200}, kGgufU8}},
          {"i8", {int64_t{-3}, kGgufI8}},
          {"u16", {uint64_t{60000}, kGgufU16}},
          {"i16", {int64_t{-30000}, kGgufI16}},
          {"u32", {uint64_t{4000000000}, kGgufU32}},
          {"i32", {int64_t{-2000000000}, kGgufI32}},
          {"f32", {0.5, kGgufF32}},
          {"bool", {true, kGgufBool}},
          {"string", {std::string("h\u00e9"), kGgufString}},
          {"u64", {UINT64_MAX, kGgufU64}},
          {"i64", {INT64_MIN, kGgufI64}},
          {"f64", {0.1, kGgufF64}},
          {"strings", {GgufValue::Strings{"a", "", "b c"}, kGgufArray, kGgufString}},
          {"bools", {std::vector<bool>{true, false}, kGgufArray, kGgufBool}},
          {"floats", {std::vector<float>{1.5f, -2.0f}, kGgufArray, kGgufF32}},
          {"doubles", {std::vector<double>{0.25}, kGgufArray, kGgufF64}},
          {"ints", {std::vector<int64_t>{-1, 7}, kGgufArray, kGgufI32}},
          {"uints", {std::vector<uint64_t>{1, 2, 3}, kGgufArray, kGgufU16}}};
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const std::string path = temporary("written.gguf");
  const Metadata metadata = one_of_each_type();
  ASSERT_TRUE(write_gguf(path, metadata, {tensor_of("a", {3}, 1), tensor_of("b", {2, 3, 2}, 10)}).ok());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->version(), 3u);
  ASSERT_EQ(file->metadata().size(), metadata.size());
  for (size_t i = 0; i < metadata.size(); ++i) {
    EXPECT_EQ(file->metadata()[i].first, metadata[i].first);
    EXPECT_EQ(file->metadata()[i].second.data, metadata[i].second.data) << metadata[i].first;
    EXPECT_EQ(file->metadata()[i].second.type, metadata[i].second.type);
    EXPECT_EQ(file->metadata()[i].second.element_type, metadata[i].second.element_type);
  }
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor* b = file->tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::array<uint64_t, 4>{2, 3, 2, 1}));
  EXPECT_EQ(b->dimensions, 3u);
  EXPECT_EQ(b->bytes, 48u);
  EXPECT_EQ(b->offset % 32, 0u);
  float last;
  std::memcpy(&last, b->data + 44, sizeof last);
  EXPECT_EQ(last, 21.0f);
  EXPECT_EQ(file->tensor("c"), nullptr);
}

TEST(Gguf, TypedReadingConvertsIntegersAndNamesKeyTypeAndRange) {
  const std::string path = temporary("typed.gguf");
  Metadata metadata = one_of_each_type();
  metadata.push_back({"nan", {std::numeric_limits<double>::quiet_NaN(), kGgufF32}});
  metadata.push_back({"nans", {std::vector<float>{0, std::numeric_limits<float>::infinity()}, kGgufArray, kGgufF32}});
  ASSERT_TRUE(write_gguf(path, metadata, {}).ok());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(**file->get_uint("u8"), 200u);
  EXPECT_EQ(**file->get_float("i8"), -3.0);
  EXPECT_EQ(**file->get_float("f32"), 0.5);
  EXPECT_EQ(**file->get_bool("bool"), true);
  EXPECT_EQ(**file->get_string("string"), "h\u00e9");
  EXPECT_EQ((**file->get_strings("strings")).at(2), "b c");
  EXPECT_EQ(**file->get_floats("doubles"), std::vector<float>{0.25f});
  EXPECT_EQ(**file->get_ints("ints"), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(**file->get_ints("uints"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(*file->get_uint("absent"), std::nullopt);

  const auto message = [](const auto& result) { return result.status().message(); };
  const auto ends = [](const std::string& text, const std::string& end) { return text.ends_with(end); };
  EXPECT_TRUE(ends(message(file->get_uint("i8")), ": i8 (i8) is -3; 0 or more is allowed"))
      << message(file->get_uint("i8"));
  EXPECT_TRUE(message(file->get_uint("i8")).starts_with(path + ":byte "));
  EXPECT_TRUE(ends(message(file->get_uint("f32")), ": f32 (f32) must be an integer"));
  EXPECT_TRUE(ends(message(file->get_float("string")), ": string (string) must be a number"));
  EXPECT_TRUE(ends(message(file->get_float("nan")), ": nan (f32) is nan; a finite number is needed"));
  EXPECT_TRUE(
      ends(message(file->get_floats("nans")), ": nans (array of f32) has inf at index 1; f32 must hold all values"));
  EXPECT_TRUE(ends(message(file->get_strings("ints")), ": ints (array of i32) must be an array of strings"));
  EXPECT_EQ(file->get_bool("u8").status().code(), Code::kBadModel);
  EXPECT_EQ(file->get_string("bool").status().code(), Code::kBadModel);
  EXPECT_EQ(file->get_ints("floats").status().code(), Code::kBadModel);
}

TEST(Gguf, ASplitModelIsOpenedByItsFirstFile) {
  const auto shard = [](uint64_t number) {
    return Metadata{{"split.no", {number, kGgufU16}},
                    {"split.count", {uint64_t{2}, kGgufU16}},
                    {"split.tensors.count", {int64_t{3}, kGgufI32}}};
  };
  const std::string first = temporary("split-00001-of-00002.gguf"), second = temporary("split-00002-of-00002.gguf");
  ASSERT_TRUE(write_gguf(first, shard(0), {tensor_of("a", {2}, 1)}).ok());
  ASSERT_TRUE(write_gguf(second, shard(1), {tensor_of("b", {2}, 3), tensor_of("c", {2}, 5)}).ok());
  const auto file = GgufFile::open(first);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->files().size(), 2u);
  ASSERT_EQ(file->tensors().size(), 3u);
  const GgufTensor* c = file->tensor("c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->shard, 1u);
  EXPECT_EQ(c->data, file->files()[1].bytes().data() + c->offset);
  float value;
  std::memcpy(&value, c->data, sizeof value);
  EXPECT_EQ(value, 5.0f);
  const Status wrong = GgufFile::open(second).status();
  EXPECT_NE(wrong.message().find("open the file that ends in -00001-of-00002.gguf"), std::string::npos);
}

TEST(Gguf, TheAlignmentOfTheFileIsKept) {
  const std::string path = temporary("aligned.gguf");
  ASSERT_TRUE(write_gguf(path, {{"general.alignment", {uint64_t{4096}, kGgufU32}}},
                         {tensor_of("a", {1}, 1), tensor_of("b", {1}, 2)})
                  .ok());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensor("b")->offset % 4096, 0u);
}

TEST(Gguf, TheWriterRefusesWhatCannotBeMeant) {
  const std::string path = temporary("never.gguf");
  EXPECT_EQ(write_gguf(path, {{"k", {uint64_t{300}, kGgufU8}}}, {}).code(), Code::kUsage);
  EXPECT_EQ(write_gguf(path, {{"k", {std::string("x"), kGgufU8}}}, {}).code(), Code::kUsage);
  EXPECT_EQ(write_gguf(path, {{"k", {std::vector<float>{}, kGgufArray, kGgufString}}}, {}).code(), Code::kUsage);
  EXPECT_EQ(write_gguf(path, {{"general.alignment", {uint64_t{3}, kGgufU32}}}, {}).code(), Code::kUsage);
  EXPECT_EQ(write_gguf(path, {}, {tensor_of("a", {0}, 0)}).code(), Code::kUsage);
  const GgufOut half_row{"q", MH_FORMAT_Q8_0, {16}, [](const auto&) { return Status(); }};
  EXPECT_EQ(write_gguf(path, {}, {half_row}).code(), Code::kUsage);
  const GgufOut too_short{"t", MH_FORMAT_F32, {16}, [](const auto&) { return Status(); }};
  EXPECT_EQ(write_gguf(path, {}, {too_short}).code(), Code::kInternal);
  EXPECT_FALSE(fs::exists(path));
}

TEST(Gguf, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const std::string folder = temporary("atomic");
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::string path = folder + "/model.gguf";
  std::ofstream(path) << "old";
  const GgufOut failing{"t", MH_FORMAT_F32, {16}, [](const auto& sink) {
                          const std::byte some[32] = {};
                          const Status first = sink(some);
                          return first.ok() ? Status(Code::kInterrupted, "stopped") : first;
                        }};
  EXPECT_EQ(write_gguf(path, {}, {failing}).code(), Code::kInterrupted);
  EXPECT_EQ(fs::file_size(path), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  EXPECT_EQ(write_gguf(folder + "/absent/model.gguf", {}, {}).code(), Code::kNoResource);
}

TEST(Gguf, ADiskThatIsFullIsSaidAndLeavesNothing) {
  const std::string folder = temporary("full");
  fs::remove_all(folder);
  fs::create_directory(folder);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit one_mebibyte{1 << 20, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &one_mebibyte), 0);
  const Status status = write_gguf(folder + "/model.gguf", {}, {tensor_of("t", {1 << 19}, 0)});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kNoResource) << status.message();
  EXPECT_TRUE(status.message().starts_with(folder + "/model.gguf: cannot write: ")) << status.message();
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Gguf, OpensEveryModelOfTheSharedData) {
  const std::string folder = MOEHOST_SHARED_DIR "/data";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto file = GgufFile::open(entry.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_FALSE(file->metadata().empty());
    ++count;
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace moehost

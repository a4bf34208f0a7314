// Model files that are no model files: every case of tests/tools/make_malformed_gguf.py, and what is no file at all.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/format/gguf.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;

TEST(MalformedGguf, EveryCaseIsRefusedWithFileAndOffsetAndTheGoodOnesOpen) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  const std::string folder = testing::TempDir() + "/malformed";
  fs::remove_all(folder);
  const std::string command = "python3 " MOEHOST_SOURCE_DIR "/tests/tools/make_malformed_gguf.py " + folder;
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream manifest(folder + "/manifest.txt");
  size_t refused = 0, opened = 0;
  for (std::string expectation, name; manifest >> expectation >> name;) {
    const std::string path = folder + "/" + name;
    const auto file = GgufFile::open(path);
    if (file.ok()) {
      EXPECT_NE(expectation, "refuse") << name;
      ++opened;
      continue;
    }
    EXPECT_NE(expectation, "open") << file.status().message();
    const std::string& message = file.status().message();
    EXPECT_EQ(file.status().code(), Code::kBadModel) << message;
    // A fault of a later shard names that shard's file.
    const std::string stem = path.substr(0, path.find(name.starts_with("split-") ? "-0000" : ".gguf"));
    EXPECT_TRUE(message.starts_with(stem) && message.find(":byte ") != std::string::npos) << message;
    ++refused;
  }
  EXPECT_GE(refused, 60u);
  EXPECT_GE(opened, 8u);
}

TEST(MalformedGguf, WhatIsNoRegularFileIsRefusedAtOnce) {
  const std::string fifo = testing::TempDir() + "/fifo.gguf";
  fs::remove(fifo);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, testing::TempDir(), std::string("/dev/zero"), std::string("/absent.gguf")}) {
    const Status status = GgufFile::open(path).status();
    EXPECT_EQ(status.code(), Code::kBadModel) << path;
    EXPECT_TRUE(status.message().starts_with(path)) << status.message();
  }
}

}  // namespace
}  // namespace moehost

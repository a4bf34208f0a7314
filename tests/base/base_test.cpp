// Tests of the base floor.
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/checked.h"
#include "core/base/mapped_file.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

Result<int> half(int value) {
  if (value % 2) return fail(Code::kUsage, value, " is odd");
  return value / 2;
}
Result<int> quarter(int value) {
  MOEHOST_ASSIGN(const int once, half(value));
  return half(once);
}

TEST(Status, AFailureTravelsUpWithItsCodeAndContext) {
  EXPECT_EQ(*quarter(8), 2);
  const Status status = quarter(6).status().in("quarter of 6");
  EXPECT_EQ(status.exit_code(), 2);
  EXPECT_EQ(status.message(), "quarter of 6: 3 is odd");
}

TEST(Checked, WrappingSizesAreNothing) {
  EXPECT_EQ(checked_add(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_mul(UINT64_C(1) << 33, UINT64_C(1) << 31), std::nullopt);
  EXPECT_EQ(checked_align(33, 32), std::optional<uint64_t>(64));
  EXPECT_EQ(checked_align(UINT64_MAX, 32), std::nullopt);
}

TEST(MappedFile, GivesTheBytesOfAFileAndRefusesWhatIsNone) {
  const std::string path = testing::TempDir() + "/mapped";
  std::ofstream(path) << "hello";
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->size()), "hello");
  file->drop(0, 5);
  EXPECT_EQ(file->bytes()[4], std::byte{'o'});
  EXPECT_EQ(MappedFile::open("/dev/zero").status().code(), Code::kBadModel);
  EXPECT_EQ(MappedFile::open(testing::TempDir()).status().code(), Code::kBadModel);
  EXPECT_NE(MappedFile::open("/nowhere").status().message().find("/nowhere"), std::string::npos);
}

TEST(Text, ControlCharactersNeverReachALine) {
  EXPECT_EQ(printable("a\nb\x1b[31m"), "a\\nb\\x1b[31m");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(nearest("max_contxt", {"max_tokens", "max_context"}), "max_context");
  EXPECT_EQ(nearest("zzzzzz", {"max_tokens"}), "");
}

}  // namespace
}  // namespace moehost

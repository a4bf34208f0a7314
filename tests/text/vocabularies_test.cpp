// Every GGUF vocabulary of the shared data against the ids and texts of the original implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/format/gguf.h"
#include "core/text/tokenizer.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;
const fs::path kVocabularies = fs::path(MOEHOST_SHARED_DIR) / "data" / "tokenizers";

// Absent keys and keys of another kind both leave out as it is: build() complains where it matters.
template <class T, class Found>
void take(T* out, Found found) {
  if (found.ok() && *found) *out = static_cast<T>(**std::move(found));
}

TokenizerSpec read_spec(const GgufFile& file) {
  const std::string at = "tokenizer.ggml.";
  TokenizerSpec spec;
  take(&spec.model, file.get_string(at + "model"));
  take(&spec.pre, file.get_string(at + "pre"));
  take(&spec.tokens, file.get_strings(at + "tokens"));
  take(&spec.scores, file.get_floats(at + "scores"));
  take(&spec.types, file.get_ints(at + "token_type"));
  take(&spec.merges, file.get_strings(at + "merges"));
  take(&spec.bos, file.get_uint(at + "bos_token_id"));
  take(&spec.eos, file.get_uint(at + "eos_token_id"));
  take(&spec.unknown, file.get_uint(at + "unknown_token_id"));
  take(&spec.add_bos, file.get_bool(at + "add_bos_token"));
  take(&spec.add_eos, file.get_bool(at + "add_eos_token"));
  take(&spec.add_space_prefix, file.get_bool(at + "add_space_prefix"));
  return spec;
}

// The spec in folder/vocab.gguf or folder/vocab.gguf.gz.
TokenizerSpec load_spec(const fs::path& folder) {
  fs::path path = folder / "vocab.gguf";
  if (!fs::exists(path)) {
    path = fs::path(testing::TempDir()) / (folder.filename().string() + "-vocab.gguf");
    const std::string unpack = "gzip -dc '" + (folder / "vocab.gguf.gz").string() + "' > '" + path.string() + "'";
    EXPECT_EQ(std::system(unpack.c_str()), 0) << unpack;
  }
  const auto file = GgufFile::open(path.string());
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? read_spec(*file) : TokenizerSpec();
}

// An array of rows; empty where the folder has no such file.
nlohmann::json load_rows(const fs::path& path) {
  std::ifstream in(path);
  return in ? nlohmann::json::parse(in) : nlohmann::json::array();
}

std::vector<fs::path> folders() {
  std::vector<fs::path> out;
  if (!fs::exists(kVocabularies)) return out;
  for (const auto& entry : fs::directory_iterator(kVocabularies)) {
    if (fs::exists(entry.path() / "vocab.gguf") || fs::exists(entry.path() / "vocab.gguf.gz")) out.push_back(entry);
  }
  std::sort(out.begin(), out.end());
  return out;
}

class Vocabulary : public testing::TestWithParam<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Vocabulary);

// Pre-tokenizers that the shared data has and the tokenizer refuses.
bool is_known(const TokenizerSpec& spec) {
  return spec.pre != "qwen35" && spec.pre != "kimi-k2" && spec.pre != "gpt-4o" && spec.pre != "tekken";
}

TEST_P(Vocabulary, GivesTheIdsAndTextsOfTheOriginalOrIsRefusedByName) {
  TokenizerSpec spec = load_spec(GetParam());
  const std::string name = GetParam().filename().string(), pre = spec.pre;
  const bool known = is_known(spec);
  const auto tokenizer = Tokenizer::build(std::move(spec));
  if (!known) {
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), Code::kBadModel);
    EXPECT_NE(tokenizer.status().message().find("'" + pre + "'"), std::string::npos) << tokenizer.status().message();
    std::printf("%-18s %-12s refused: pre-tokenizer not supported\n", name.c_str(), pre.c_str());
    return;
  }
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  size_t rows = 0, equal_ids = 0, equal_texts = 0;
  for (const auto& row : load_rows(GetParam() / "expected.json")) {
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<TokenId>>(), special = row["ids_special"].get<std::vector<TokenId>>();
    const auto got = (*tokenizer)->encode(text), got_special = (*tokenizer)->encode(text, {.add_special = true});
    const std::string decoded = (*tokenizer)->decode(ids), skipped = (*tokenizer)->decode(special, true);
    EXPECT_EQ(got, ids) << row["text"];
    EXPECT_EQ(got_special, special) << row["text"];
    EXPECT_EQ(decoded, row["decoded"].get<std::string>()) << row["text"];
    EXPECT_EQ(skipped, row["decoded_skip"].get<std::string>()) << row["text"];
    ++rows;
    equal_ids += got == ids && got_special == special;
    equal_texts += decoded == row["decoded"] && skipped == row["decoded_skip"];
  }
  EXPECT_GE(rows, 328u);
  for (const auto& row : load_rows(GetParam() / "published.json")) {
    EXPECT_EQ((*tokenizer)->encode(row["text"].get<std::string>()), row["ids"].get<std::vector<TokenId>>())
        << row["text"];
  }
  std::printf("%-18s %-12s %zu rows, %zu equal in ids, %zu equal in text\n", name.c_str(), pre.c_str(), rows, equal_ids,
              equal_texts);
}

INSTANTIATE_TEST_SUITE_P(Shared, Vocabulary, testing::ValuesIn(folders()),
                         [](const auto& folder) { return folder.param.filename().string(); });

TEST(Vocabularies, AreAllLookedAt) {
  if (!fs::exists(kVocabularies)) GTEST_SKIP() << "no shared data at " << kVocabularies;
  EXPECT_GE(folders().size(), 17u);
}

}  // namespace
}  // namespace moehost

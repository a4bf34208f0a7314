// Where each pre-tokenizer cuts: pieces taken from its regular expression by hand.
#include "core/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/text/long_text.h"

namespace moehost {
namespace {

struct Case {
  const char* name;
  std::string text;
  std::vector<std::string> pieces;
};

PreTokenizer make(const char* name) {
  auto out = PreTokenizer::build(name);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return *std::move(out);
}

TEST(PreTokenizer, CutsWhereItsRulesSay) {
  const Case cases[] = {
      {"gpt2", "Hello world's", {"Hello", " world", "'s"}},
      {"gpt2", "I'S", {"I", "'", "S"}},
      {"gpt2", "a  b", {"a", " ", " b"}},
      {"gpt2", "a \n\n b", {"a", " \n\n", " b"}},
      {"gpt2", "  ", {"  "}},
      {"gpt2", "x 1234a!? \u00E9", {"x", " 1234", "a", "!?", " \u00E9"}},
      {"gpt2", "!\u180E", {"!\u180E"}},                  // no space since Unicode 6.3
      {"gpt2", "!\u0085\u3000", {"!", "\u0085\u3000"}},  // spaces
      {"gpt2", "!\x1C", {"!\x1C"}},
      {"olmo", "it's  12", {"it", "'s", " ", " 12"}},
      {"smollm", "a12 b 3", {"a", "1", "2", " b", " ", "3"}},
      {"smollm", "\u00B2\u00BD", {"\u00B2", "\u00BD"}},
      {"llama-bpe", "I'LL don'T", {"I", "'LL", " don", "'T"}},
      {"llama-bpe", "'\u017Fa", {"'\u017F", "a"}},  // long s folds to s
      {"llama-bpe", "12345 a", {"123", "45", " a"}},
      {"llama-bpe", "a\r\n\r\n  b", {"a", "\r\n\r\n", " ", " b"}},
      {"llama-bpe", "!!\n\n\tx", {"!!\n\n", "\tx"}},
      {"llama-bpe", "  \n  x", {"  \n", " ", " x"}},
      {"llama-bpe", "(word) 7", {"(word", ")", " ", "7"}},
      {"qwen2", "12 don'T", {"1", "2", " don", "'T"}},
      {"qwen2", "e\u0301", {"e", "\u0301"}},  // a mark is no letter
      {"deepseek-v3", "1234567", {"123", "456", "7"}},
      {"deepseek-v3", "\u4E2D\u6587abc\u3042\u30AB", {"\u4E2D\u6587", "abc", "\u3042\u30AB"}},
      {"deepseek-v3", "x.y a_z", {"x", ".y", " a", "_z"}},
      {"deepseek-v3", "e\u0301 \u20AC!\n", {"e\u0301", " \u20AC!\n"}},
      {"deepseek-v3", "\x01\x02", {"\x01\x02"}},  // nothing matches: stays a piece
      {"deepseek-v3", "a\x01 \x01", {"a", "\x01", " ", "\x01"}},
  };
  for (const Case& c : cases) {
    const PreTokenizer pre_tokenizer = make(c.name);
    const auto pieces = pre_tokenizer.split(c.text);
    EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()), c.pieces) << c.name << ": " << c.text;
  }
}

TEST(PreTokenizer, FollowsTheFamilyOfItsName) {
  EXPECT_TRUE(make("llama3").traits().ignore_merges);
  EXPECT_TRUE(make("llama-v3").traits().add_bos);
  EXPECT_TRUE(make("qwen2").traits().nfc);
  EXPECT_TRUE(make("olmo").traits().nfc);
  for (const char* plain : {"gpt2", "smollm", "deepseek-v3"}) {
    const PreTokenizerTraits traits = make(plain).traits();
    EXPECT_FALSE(traits.nfc || traits.ignore_merges || traits.add_bos) << plain;
  }
}

TEST(PreTokenizer, NamesTheUnknownAndTheKnown) {
  const auto unknown = PreTokenizer::build("kimi-k2");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), Code::kBadModel);
  for (const char* part : {"tokenizer.ggml.pre", "'kimi-k2'", "gpt2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"}) {
    EXPECT_NE(unknown.status().message().find(part), std::string::npos) << part;
  }
}

TEST(PreTokenizer, SplitsLongRunsOfOneCharacterInLinearTime) {
  for (const char* name : {"gpt2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"}) {
    const PreTokenizer pre_tokenizer = make(name);
    for (const std::string unit : {"a", " ", "\n", "\u00E9", "7", "!", "\x01", " \n", "'"}) {
      const std::string text = long_text(unit) + "x";
      const CpuSeconds seconds;
      size_t bytes = 0;
      for (std::string_view piece : pre_tokenizer.split(text)) bytes += piece.size();
      EXPECT_EQ(bytes, text.size());
      EXPECT_LT(seconds.passed(), kGenerousSeconds) << name << " with '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace moehost

// What a Tokenizer promises, on vocabularies made here.
#include "core/text/tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/text/normalize.h"
#include "core/text/utf8.h"
#include "tests/fuzz_text/round_trip.h"
#include "tests/text/long_text.h"
#include "tests/text/small_vocabulary.h"

namespace moehost {
namespace {

using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> make(const TokenizerSpec& spec) {
  auto out = Tokenizer::build(spec);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return *std::move(out);
}

Ids ids_of(const TokenizerSpec& spec, const std::vector<std::string>& tokens) {
  Ids out;
  for (const std::string& token : tokens) out.push_back(id_of(spec, token));
  return out;
}

TEST(ByteLevel, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const TokenizerSpec spec = byte_level_spec("gpt2");
  const auto tokenizer = make(spec);
  EXPECT_EQ(tokenizer->encode("hello"), ids_of(spec, {"hello"}));
  EXPECT_EQ(tokenizer->encode("abc"), ids_of(spec, {"a", "bc"}));
  EXPECT_EQ(tokenizer->encode("aaa"), ids_of(spec, {"aa", "a"}));
  EXPECT_EQ(tokenizer->encode("aaaaaaa"), ids_of(spec, {"aaaa", "aa", "a"}));
  EXPECT_EQ(tokenizer->encode("hell we"), ids_of(spec, {"hell", "\u0120w", "e"}));
  EXPECT_EQ(tokenizer->encode(""), Ids());
}

TEST(ByteLevel, TakesAWholePieceWithoutMergesOnlyInTheLlamaFamily) {
  const TokenizerSpec gpt2 = byte_level_spec("gpt2"), llama = byte_level_spec("llama-bpe");
  EXPECT_EQ(make(gpt2)->encode("xyz"), (Ids{'x', 'y', 'z'}));
  EXPECT_EQ(make(llama)->encode("xyz"), ids_of(llama, {"xyz"}));
}

TEST(ByteLevel, ComposesWhereTheFamilyNormalizes) {
  const TokenizerSpec qwen = byte_level_spec("qwen2"), gpt2 = byte_level_spec("gpt2");
  EXPECT_EQ(make(qwen)->encode("e\u0301"), ids_of(qwen, {"\u00C3\u00A9"}));
  EXPECT_EQ(make(gpt2)->encode("e\u0301"), (Ids{'e', 0xCC, 0x81}));
  EXPECT_EQ(make(qwen)->encode("\xFF"
                               "e\u0301\xFF"),
            (Ids{0xFF, id_of(qwen, "\u00C3\u00A9"), 0xFF}));
}

TEST(ByteLevel, EncodesInvalidUtf8ByteByByteAndDropsBytesWithoutAToken) {
  TokenizerSpec spec = byte_level_spec("gpt2");
  EXPECT_EQ(make(spec)->encode("a\xE4\xB8z\xFF"), (Ids{'a', 0xE4, 0xB8, 'z', 0xFF}));
  spec.types[0xFF] = 5;
  EXPECT_EQ(make(spec)->encode("a\xFFz"), (Ids{'a', 'z'}));
}

TEST(ByteLevel, ReplacesInvalidUtf8OfTheWholeText) {
  const auto tokenizer = make(byte_level_spec("gpt2"));
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 0xB8, 'a'}), "\uFFFDa");
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 0xB8, 0xAD}), "\u4E2D");
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 0xB8, 0xAD, 0xFF}), "\u4E2D\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{0xED, 0xA0, 0x80}), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(tokenizer->decode(Ids{0xF0, 0x9F}), "\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 1 << 20}), "a");
}

TEST(SpecialTokens, AreTheLeftmostAndLongestSpelledOut) {
  const TokenizerSpec spec = byte_level_spec("gpt2");
  const auto tokenizer = make(spec);
  EXPECT_EQ(tokenizer->encode("a<|end|>b"), ids_of(spec, {"a", "<|end|>", "b"}));
  EXPECT_EQ(tokenizer->encode("<|end|>>"), ids_of(spec, {"<|end|>>"}));
  EXPECT_EQ(tokenizer->encode("<<|end|><|bos|"), ids_of(spec, {"<", "<|end|>", "<", "|", "b", "o", "s", "|"}));
  EXPECT_EQ(tokenizer->encode("<|end|><think>"), ids_of(spec, {"<|end|>", "<think>"}));
}

TEST(SpecialTokens, StayTextWhenNotParsedExceptUserDefinedOnes) {
  const TokenizerSpec spec = byte_level_spec("gpt2");
  const EncodeOptions as_text{.parse_special = false};
  EXPECT_EQ(make(spec)->encode("<|end|><think>", as_text),
            ids_of(spec, {"<", "|", "e", "n", "d", "|", ">", "<think>"}));
}

TEST(SpecialTokens, AreSkippedInTextAndUserDefinedOnesKept) {
  const TokenizerSpec spec = byte_level_spec("gpt2");
  const Ids ids = ids_of(spec, {"<|bos|>", "a", "<think>", "<|end|>"});
  EXPECT_EQ(make(spec)->decode(ids), "<|bos|>a<think><|end|>");
  EXPECT_EQ(make(spec)->decode(ids, true), "a<think>");
  const auto pieces = make(sentence_piece_spec(false));
  EXPECT_EQ(pieces->decode(Ids{1, 0, 2}), "<s><unk></s>");
  EXPECT_EQ(pieces->decode(Ids{1, 0, 2}, true), "");
}

TEST(SpecialTokens, AreAddedWhereTheFileOrElseTheFamilySays) {
  const auto added = [](TokenizerSpec spec) { return make(spec)->encode("a", {.add_special = true}).size() - 1; };
  TokenizerSpec spec = byte_level_spec("gpt2");
  EXPECT_EQ(added(spec), 0u);
  EXPECT_EQ(added(byte_level_spec("llama-bpe")), 1u);
  EXPECT_EQ(added(sentence_piece_spec(false)), 1u);
  spec.add_bos = spec.add_eos = true;
  EXPECT_EQ(added(spec), 2u);
  EXPECT_EQ(make(spec)->encode("", {.add_special = true}), (Ids{*make(spec)->bos(), id_of(spec, "<|end|>")}));
  spec = byte_level_spec("llama-bpe");
  spec.add_bos = false;
  EXPECT_EQ(added(spec), 0u);
  spec.add_bos.reset();
  spec.bos.reset();
  EXPECT_FALSE(make(spec)->adds_bos());
}

TEST(SpecialTokens, EndTheTextWhenNamedByTheFileOrKnownByTheirText) {
  TokenizerSpec spec = byte_level_spec("gpt2");
  const TokenId known = add_token(&spec, "<|endoftext|>", 3), text = add_token(&spec, "<|im_end|>", 4);
  spec.eot = 'x';
  const auto tokenizer = make(spec);
  EXPECT_TRUE(tokenizer->is_end(known));
  EXPECT_TRUE(tokenizer->is_end('x'));
  EXPECT_TRUE(tokenizer->is_end(id_of(spec, "<|end|>")));
  EXPECT_FALSE(tokenizer->is_end(text)) << "user-defined";
  EXPECT_FALSE(tokenizer->is_end(id_of(spec, "<|bos|>")));
  EXPECT_FALSE(tokenizer->is_end(-1));
}

TEST(SentencePiece, MergesTheHighestScoreFirstAndTheLeftmostOfEquals) {
  const TokenizerSpec spec = sentence_piece_spec(false);
  const auto tokenizer = make(spec);
  EXPECT_EQ(tokenizer->encode("bab"), ids_of(spec, {"ba", "b"}));
  EXPECT_EQ(tokenizer->encode("aba"), ids_of(spec, {"ab", "a"}));
  EXPECT_EQ(tokenizer->encode(" ab"), ids_of(spec, {"\u2581a", "b"}));
  EXPECT_EQ(tokenizer->encode("aaaaa"), ids_of(spec, {"aaaa", "a"}));
}

TEST(SentencePiece, MergesCharactersThatAreNoTokensThemselves) {
  const TokenizerSpec spec = sentence_piece_spec(false);
  EXPECT_EQ(make(spec)->encode("xyx"), ids_of(spec, {"xy", "<0x78>"}));
}

TEST(SentencePiece, FallsBackToBytesOrElseToOneUnknownForARun) {
  TokenizerSpec spec = sentence_piece_spec(false);
  EXPECT_EQ(make(spec)->encode("\u00E9\xFF"), ids_of(spec, {"<0xC3>", "<0xA9>", "<0xFF>"}));
  for (int64_t& type : spec.types) type = type == 6 ? 5 : type;
  EXPECT_EQ(make(spec)->encode("a\u00E9\u00E8"
                               "b"),
            ids_of(spec, {"a", "<unk>", "b"}));
  spec.unknown.reset();
  EXPECT_EQ(make(spec)->encode("a\u00E9"
                               "b"),
            ids_of(spec, {"a", "b"}));
}

TEST(SentencePiece, PrefixesASpaceToEveryStretchOfTextAndStripsTheFirst) {
  const TokenizerSpec spec = sentence_piece_spec(true);
  const auto tokenizer = make(spec);
  EXPECT_EQ(tokenizer->encode("a</s>a"), ids_of(spec, {"\u2581a", "</s>", "\u2581a"}));
  EXPECT_EQ(tokenizer->encode("</s> a"), ids_of(spec, {"</s>", "\u2581", "\u2581a"}));
  EXPECT_EQ(tokenizer->encode(""), Ids());
  EXPECT_EQ(tokenizer->decode(ids_of(spec, {"\u2581a", "\u2581a"})), "a a");
  EXPECT_EQ(tokenizer->decode(ids_of(spec, {"<s>", "\u2581a"})), "<s> a");
  EXPECT_EQ(tokenizer->decode(ids_of(spec, {"<s>", "\u2581a"}), true), "a");
  EXPECT_EQ(make(sentence_piece_spec(false))->decode(ids_of(spec, {"\u2581a"})), " a");
}

TEST(SentencePiece, ReplacesEveryByteOfARunThatIsNotValid) {
  const TokenizerSpec spec = sentence_piece_spec(false);
  const auto tokenizer = make(spec);
  const auto decode = [&](const std::vector<std::string>& tokens) { return tokenizer->decode(ids_of(spec, tokens)); };
  EXPECT_EQ(decode({"<0xE4>", "<0xB8>", "<0xAD>"}), "\u4E2D");
  EXPECT_EQ(decode({"<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>"}), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decode({"<0xE4>", "<0xB8>", "a"}), "\uFFFD\uFFFDa");
  EXPECT_EQ(decode({"<0xE4>", "a", "<0xC3>", "<0xA9>"}), "\uFFFDa\u00E9");
}

TEST(StreamDecoder, HoldsBackWhatMayStillChange) {
  StreamDecoder bytes(make(byte_level_spec("gpt2")));
  EXPECT_EQ(bytes.push(0xE4), "");
  EXPECT_EQ(bytes.push(0xB8), "");
  EXPECT_EQ(bytes.push(0xAD), "\u4E2D");
  EXPECT_EQ(bytes.push(0xF0), "");
  EXPECT_EQ(bytes.push('a'), "\uFFFDa");
  EXPECT_EQ(bytes.push(0xC3), "");
  EXPECT_EQ(bytes.finish(), "\uFFFD");

  const TokenizerSpec spec = sentence_piece_spec(true);
  StreamDecoder pieces(make(spec));
  EXPECT_EQ(pieces.push(id_of(spec, "<s>")), "");
  EXPECT_EQ(pieces.push(id_of(spec, "\u2581")), "");
  EXPECT_EQ(pieces.push(id_of(spec, "\u2581a")), " a");
  EXPECT_EQ(pieces.push(id_of(spec, "<0xC3>")), "");
  EXPECT_EQ(pieces.push(id_of(spec, "<0xA9>")), "") << "a byte may follow that spoils the run";
  EXPECT_EQ(pieces.push(id_of(spec, "b")), "\u00E9b");
  EXPECT_EQ(pieces.finish(), "");
}

TEST(StreamDecoder, GivesValidTextAtAnyMomentAndInTheEndAllOfIt) {
  const auto tokenizer = make(byte_level_spec("gpt2"));
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string raw, streamed;
    StreamDecoder decoder(tokenizer, false);
    for (int i = 0; i < 30; ++i) {
      // Leads and continuations are as frequent as all other tokens together.
      const auto id = static_cast<TokenId>(random() % 2 ? 0x80 + random() % 0x80 : random() % tokenizer->size());
      raw += tokenizer->piece(id);
      streamed += decoder.push(id);
      ASSERT_EQ(valid_utf8_prefix(streamed), streamed.size());
    }
    ASSERT_EQ(streamed + decoder.finish(), replace_invalid_utf8(raw));
  }
}

TEST(Utf8, KnowsTheFirstCharacter) {
  struct {
    std::string text;
    Utf8Char::Kind kind;
    uint32_t size;
    char32_t code_point;
  } const cases[] = {
      {"a", Utf8Char::kValid, 1, 'a'},
      {"\u00E9x", Utf8Char::kValid, 2, 0xE9},
      {"\U0010FFFF", Utf8Char::kValid, 4, 0x10FFFF},
      {"\uD7FF", Utf8Char::kValid, 3, 0xD7FF},
      {"\x80", Utf8Char::kInvalid, 1, 0},
      {"\xC1\x80", Utf8Char::kInvalid, 1, 0},
      {"\xE0\x80\x80", Utf8Char::kInvalid, 1, 0},
      {"\xED\xA0\x80", Utf8Char::kInvalid, 1, 0},
      {"\xF0\x8F\x80\x80", Utf8Char::kInvalid, 1, 0},
      {"\xF4\x90\x80\x80", Utf8Char::kInvalid, 1, 0},
      {"\xF5", Utf8Char::kInvalid, 1, 0},
      {"\xE4\xB8z", Utf8Char::kInvalid, 2, 0},
      {"\xF0\x9F\x98z", Utf8Char::kInvalid, 3, 0},
      {"\xE4\xB8", Utf8Char::kIncomplete, 2, 0},
      {"\xF0", Utf8Char::kIncomplete, 1, 0},
  };
  for (const auto& c : cases) {
    const Utf8Char got = first_utf8_char(c.text);
    EXPECT_EQ(got.kind, c.kind) << testing::PrintToString(c.text);
    EXPECT_EQ(got.size, c.size) << testing::PrintToString(c.text);
    EXPECT_TRUE(c.kind != Utf8Char::kValid || got.code_point == c.code_point) << testing::PrintToString(c.text);
  }
}

TEST(Normalize, ComposesAsUnicodeSays) {
  EXPECT_EQ(to_nfc("plain \u00E9"), "plain \u00E9");
  EXPECT_EQ(to_nfc("e\u0301 A\u030A"), "\u00E9 \u00C5");
  EXPECT_EQ(to_nfc("\u212B\u2126"), "\u00C5\u03A9");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(to_nfc("\u1F82"), "\u1F82") << "the longest decomposition";
  EXPECT_EQ(to_nfc("e\u0323\u0302"), "\u1EC7");
}

TEST(Normalize, OrdersEndlessMarksInLinearTime) {
  const std::string marks = long_text("\u0307\u0323");
  std::string ordered;
  for (const char* mark : {"\u0323", "\u0307"}) {
    for (size_t bytes = 0; bytes < marks.size(); bytes += 4) ordered += mark;
  }
  const CpuSeconds seconds;
  EXPECT_TRUE(to_nfc(marks) == ordered);
  EXPECT_LT(seconds.passed(), kGenerousSeconds);
}

TEST(Tokenizer, EncodesLongRunsOfOneCharacterInLinearTime) {
  for (const TokenizerSpec& spec : {byte_level_spec("qwen2"), sentence_piece_spec(false)}) {
    const auto tokenizer = make(spec);
    for (const std::string unit : {"a", " ", "\n", "\u00E9", "7", "<"}) {
      const std::string text = long_text(unit);
      const CpuSeconds seconds;
      EXPECT_TRUE(tokenizer->decode(tokenizer->encode(text)) == text) << spec.model << " with '" << unit << "'";
      EXPECT_LT(seconds.passed(), kGenerousSeconds) << spec.model << " with '" << unit << "'";
    }
  }
}

TEST(Tokenizer, RefusesWhatAFileCannotMean) {
  struct Mistake {
    std::function<void(TokenizerSpec*)> make;
    std::string expected;
  };
  const TokenizerSpec bpe = byte_level_spec("gpt2"), pieces = sentence_piece_spec(true);
  const Mistake in_bpe[] = {
      {[](auto* s) { s->model = "bert"; }, "tokenizer.ggml.model is 'bert'"},
      {[](auto* s) { s->pre = "no-such"; }, "tokenizer.ggml.pre is 'no-such'"},
      {[](auto* s) { s->pre = ""; }, "tokenizer.ggml.pre is ''"},
      {[](auto* s) { s->tokens.clear(); }, "tokenizer.ggml.tokens is missing or empty"},
      {[](auto* s) { s->types.pop_back(); },
       "tokenizer.ggml.token_type has 270 entries, tokenizer.ggml.tokens has 271"},
      {[](auto* s) { s->types[3] = 7; }, "tokenizer.ggml.token_type[3] is 7"},
      {[](auto* s) {
         s->scores = {1, 2};
       },
       "tokenizer.ggml.scores has 2 entries"},
      {[](auto* s) { s->merges[1] = "ll"; }, "tokenizer.ggml.merges[1] is 'll'"},
      {[](auto* s) { s->merges[1] = ""; }, "tokenizer.ggml.merges[1] is ''"},
      {[](auto* s) { s->merges[2] = "he zz"; }, "'zz' is not in tokenizer.ggml.tokens"},
      {[](auto* s) { s->merges[2] = "h z"; }, "'hz' is not in tokenizer.ggml.tokens"},
      {[](auto* s) { s->bos = 271; }, "tokenizer.ggml.bos_token_id is 271; the vocabulary has ids 0 to 270"},
      {[](auto* s) { s->padding = -1; }, "tokenizer.ggml.padding_token_id is -1"},
      {[](auto* s) { s->add_bos = true, s->bos.reset(); }, "no tokenizer.ggml.bos_token_id"},
      {[](auto* s) { s->add_eos = true, s->eos.reset(); }, "no tokenizer.ggml.eos_token_id"},
  };
  const Mistake in_pieces[] = {
      {[](auto* s) { s->scores.clear(); }, "tokenizer.ggml.scores is missing"},
      {[](auto* s) { s->scores[260] = std::nanf(""); }, "tokenizer.ggml.scores[260] is not a number"},
      {[](auto* s) { s->tokens[4] = "<0xG1>"; }, "tokenizer.ggml.tokens[4]: a byte token is '<0xG1>'"},
      {[](auto* s) { s->tokens[4] = "<0x111>"; }, "tokenizer.ggml.tokens[4]: a byte token is '<0x111>'"},
      {[](auto* s) { s->tokens[260] = std::string(1025, 'a'); }, "tokenizer.ggml.tokens[260] has 1025 bytes"},
  };
  const auto expect_refused = [](TokenizerSpec spec, const Mistake& mistake) {
    mistake.make(&spec);
    const auto refused = Tokenizer::build(std::move(spec));
    ASSERT_FALSE(refused.ok()) << mistake.expected;
    EXPECT_EQ(refused.status().code(), Code::kBadModel);
    EXPECT_NE(refused.status().message().find(mistake.expected), std::string::npos) << refused.status().message();
  };
  for (const Mistake& mistake : in_bpe) expect_refused(bpe, mistake);
  for (const Mistake& mistake : in_pieces) expect_refused(pieces, mistake);
}

TEST(Tokenizer, ReturnsWhatWasEncoded) {
  const std::string seeds[] = {
      "",
      "plain text",
      "  spaces  \n\n\t",
      "<|end|><think><|end|>>",
      "\u4E2D\u6587\u3042 \U0001F600\u200D",
      "e\u0301\u0323 q\u0307\u0323",
      std::string("nul\0nul", 7),
      "broken \xE4\xB8 \xFF\xFE",
      "'s'LL 12345 aaaa hello",
      "\xF0\x9F",
      "</s> a</s><unk><0x0A>",
  };
  for (const std::string& seed : seeds) EXPECT_EQ(round_trip_failure(seed), "") << testing::PrintToString(seed);
}

}  // namespace
}  // namespace moehost

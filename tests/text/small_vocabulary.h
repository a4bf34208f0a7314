// Vocabularies small enough to know by heart, for tests and for the fuzz target.
#pragma once
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/text/tokenizer.h"

namespace moehost {

// The id of a token's text; -1 when there is none.
inline TokenId id_of(const TokenizerSpec& spec, const std::string& token) {
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), token);
  return found == spec.tokens.end() ? -1 : static_cast<TokenId>(found - spec.tokens.begin());
}

inline TokenId add_token(TokenizerSpec* spec, const std::string& token, int64_t type, float score = 0) {
  spec->tokens.push_back(token);
  spec->types.push_back(type);
  if (spec->model == "llama") spec->scores.push_back(score);
  return static_cast<TokenId>(spec->tokens.size() - 1);
}

// Byte-level BPE in which the id of a byte is the byte. U+0120 (Ġ) is how a space is written.
inline TokenizerSpec byte_level_spec(const std::string& pre) {
  TokenizerSpec spec{.model = "gpt2", .pre = pre};
  for (int byte = 0, next = 0x100; byte < 256; ++byte) {
    const bool stands_for_itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int character = stands_for_itself ? byte : next++;
    std::string text;
    if (character >= 0x80) text += static_cast<char>(0xC0 | character >> 6);
    text += static_cast<char>(character >= 0x80 ? 0x80 | (character & 63) : character);
    add_token(&spec, text, 1);
  }
  spec.merges = {"h e", "l l", "he ll", "hell o", "\u0120 w", "a a", "aa aa", "\u00C3 \u00A9", "b c", "a b"};
  for (const std::string& merge : spec.merges) {
    const size_t space = merge.find(' ');
    add_token(&spec, merge.substr(0, space) + merge.substr(space + 1), 1);
  }
  add_token(&spec, "xyz", 1);  // no merge leads to it
  spec.bos = add_token(&spec, "<|bos|>", 3);
  spec.eos = add_token(&spec, "<|end|>", 3);
  add_token(&spec, "<|end|>>", 3);
  add_token(&spec, "<think>", 4);
  return spec;
}

// SentencePiece with byte tokens 3 to 258.
inline TokenizerSpec sentence_piece_spec(bool add_space_prefix) {
  TokenizerSpec spec{.model = "llama", .add_space_prefix = add_space_prefix};
  spec.unknown = add_token(&spec, "<unk>", 2);
  spec.bos = add_token(&spec, "<s>", 3);
  spec.eos = add_token(&spec, "</s>", 3);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add_token(&spec, text, 6);
  }
  const std::pair<const char*, float> scored[] = {{"\u2581a", -1}, {"ab", -2}, {"ba", -2}, {"xy", -3},    {"aa", -4},
                                                  {"aaaa", -5},    {"a", -9},  {"b", -9},  {"\u2581", -9}};
  for (const auto& [text, score] : scored) add_token(&spec, text, 1, score);
  add_token(&spec, "<think>", 4);
  return spec;
}

}  // namespace moehost

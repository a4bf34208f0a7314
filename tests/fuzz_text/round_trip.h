// What must hold for every text and every list of ids; the fuzz target tries to break it, a test replays seeds.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/utf8.h"
#include "tests/text/small_vocabulary.h"

namespace moehost {

// Which promise text breaks; empty: none.
inline std::string round_trip_failure(std::string_view text) {
  struct Subject {
    std::string name;
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  static const std::vector<Subject> subjects = [] {
    std::vector<Subject> out;
    for (const char* pre : {"gpt2", "smollm", "llama-bpe", "deepseek-v3", "qwen2"}) {
      out.push_back({pre, *Tokenizer::build(byte_level_spec(pre))});
    }
    out.push_back({"llama", *Tokenizer::build(sentence_piece_spec(false))});
    out.push_back({"llama, space prefix", *Tokenizer::build(sentence_piece_spec(true))});
    return out;
  }();
  const std::string valid = replace_invalid_utf8(text);
  std::vector<TokenId> bytes_as_ids;
  for (char c : text) bytes_as_ids.push_back(static_cast<uint8_t>(c) * 2);
  for (const auto& [name, tokenizer] : subjects) {
    const std::string back = tokenizer->decode(tokenizer->encode(text));
    const bool byte_level = !name.starts_with("llama") || name == "llama-bpe";
    if (name == "qwen2") {  // normalizes, once
      if (tokenizer->decode(tokenizer->encode(back)) != back) return name + ": normalizing twice differs";
    } else if (byte_level && back != valid) {
      return name + ": decode(encode(text)) differs from text";
    } else if (name == "llama" && valid == text && back != replace_all(text, "\u2581", " ")) {
      return name + ": decode(encode(text)) differs from text";
    }
    const std::string decoded = tokenizer->decode(bytes_as_ids);
    if (valid_utf8_prefix(decoded) != decoded.size()) return name + ": decoded text is not UTF-8";
  }
  return {};
}

}  // namespace moehost

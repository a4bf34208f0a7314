// Text to token ids and back. Floor 2.
//
// A Tokenizer is built from a TokenizerSpec, plain data that the caller reads from a model file, so that this floor
// knows no file format. Byte-level BPE (spec.model "gpt2") with the pre-tokenizers gpt2, smollm, llama-bpe, qwen2,
// deepseek-v3, and SentencePiece-style merging by score (spec.model "llama").
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace moehost {

using TokenId = int32_t;

// What a GGUF file says under tokenizer.ggml.*, unchecked: build() checks it.
struct TokenizerSpec {
  std::string model, pre;           // "gpt2" | "llama"; pre-tokenizer name, may be empty
  std::vector<std::string> tokens;  // byte-mapped text for gpt2
  std::vector<float> scores;        // llama
  std::vector<int64_t> types;       // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;  // gpt2: "a b"
  std::optional<int64_t> bos, eos, eot, eom, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

struct EncodeOptions {
  bool add_special = false;   // BOS / EOS where the model wants them
  bool parse_special = true;  // text that spells a control token becomes it; false: it stays text
};

// Immutable, thread-safe.
class Tokenizer {
 public:
  // kBadModel names the key: lengths that differ, ids outside, merges of unknown tokens, an unknown model or pre.
  static Result<std::shared_ptr<const Tokenizer>> build(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  // Linear in the text's length. Invalid UTF-8 is encoded byte by byte where the vocabulary can, else replaced.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // The whole text, special tokens kept as text or skipped. Ids outside the vocabulary give nothing. Bytes that are no
  // UTF-8 become U+FFFD: byte-level BPE looks at the text as a whole, SentencePiece replaces every byte of a run of
  // byte tokens that is not valid.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;
  // Raw bytes of one token within a text (no replacement, no stripping of a leading space); empty outside.
  virtual std::string piece(TokenId id) const = 0;

  virtual size_t size() const = 0;
  virtual bool is_special(TokenId id) const = 0;  // control tokens and the unknown token
  virtual bool is_byte(TokenId id) const = 0;     // stands for a byte where SentencePiece knows no character
  virtual bool strips_leading_space() const = 0;  // from a whole text: encode adds one
  virtual bool is_end(TokenId id) const = 0;      // eos, eot, eom and their like: generation stops
  virtual std::optional<TokenId> bos() const = 0;
  virtual bool adds_bos() const = 0;
};

// Turns tokens into text that can be sent as it comes: holds back what later tokens may still change, an incomplete
// UTF-8 tail or a run of byte tokens. One text, one thread.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  // Text that is certain after this token; may be empty.
  std::string push(TokenId id);
  // What is still held, replaced by U+FFFD where incomplete. The concatenation of all equals decode() of all ids.
  std::string finish();

 private:
  std::string close_byte_run();
  std::string strip(std::string text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool at_start_ = true;  // no text yet
  std::string byte_run_;  // of byte tokens up to here
  std::string tail_;      // of UTF-8, incomplete; at most one of the two holds anything
};

}  // namespace moehost

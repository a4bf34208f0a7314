// What turns text without special tokens into ids: one implementation a tokenizer model. Floor 2.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/tokenizer.h"

namespace moehost {

// Immutable, thread-safe.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of text: not empty, what stands between special tokens. O(n log n) at worst.
  virtual void encode(std::string_view text, std::vector<TokenId>* ids) const = 0;
};

// An encoder and what each token stands for.
struct TokenizerModel {
  std::unique_ptr<const Encoder> encoder;
  std::vector<std::string> pieces;  // bytes, by id
  bool add_bos = false;             // unless the file says otherwise
  bool strips_leading_space = false;
};

// The values of TokenizerSpec::types.
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// spec: types as long as tokens, scores too where there are any. kBadModel names the key.
Result<TokenizerModel> build_byte_level(const TokenizerSpec& spec);      // model "gpt2"
Result<TokenizerModel> build_sentence_piece(const TokenizerSpec& spec);  // model "llama"

}  // namespace moehost

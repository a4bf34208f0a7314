// Cuts text into the pieces within which byte-level BPE merges, and what else follows from the name of that cut.
// Floor 2.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace moehost {

// What a name under tokenizer.ggml.pre says besides where to cut.
struct PreTokenizerTraits {
  bool nfc = false;            // text is normalized first
  bool ignore_merges = false;  // a piece that is a token is that token, even where merging would not lead to it
  bool add_bos = false;        // unless tokenizer.ggml.add_bos_token says otherwise
};

// Immutable, thread-safe; a copy shares the compiled rules.
class PreTokenizer {
 public:
  // kBadModel: an unknown name; the message lists the known ones.
  static Result<PreTokenizer> build(std::string_view name);

  const PreTokenizerTraits& traits() const { return traits_; }
  // The pieces of text (valid UTF-8), in order, none empty, nothing left out. Linear time.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Rule;  // a compiled regular expression
  PreTokenizer() = default;
  PreTokenizerTraits traits_;
  std::vector<std::shared_ptr<const Rule>> rules_;  // applied one after the other, each to the pieces of the last
};

}  // namespace moehost

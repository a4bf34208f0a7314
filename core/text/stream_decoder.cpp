// Tokens to text, one at a time; decoding a whole text is the same.
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"

namespace moehost {
namespace {

// Bytes at the end of text that more bytes could complete to a character.
size_t incomplete_tail(std::string_view text) {
  for (size_t size = 1; size <= 3 && size <= text.size(); ++size) {
    if (first_utf8_char(text.substr(text.size() - size)).kind == Utf8Char::kIncomplete) return size;
  }
  return 0;
}

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  const std::string piece = tokenizer_->piece(id);
  if (tokenizer_->is_byte(id)) {
    std::string before = replace_invalid_utf8(std::exchange(tail_, {}));
    byte_run_ += piece;
    return strip(std::move(before));
  }
  if (piece.empty()) return {};
  std::string out = close_byte_run();
  tail_ += piece;
  const size_t certain = tail_.size() - incomplete_tail(tail_);
  out += replace_invalid_utf8(std::string_view(tail_).substr(0, certain));
  tail_.erase(0, certain);
  return strip(std::move(out));
}

std::string StreamDecoder::finish() {
  std::string out = close_byte_run();
  out += replace_invalid_utf8(std::exchange(tail_, {}));
  return strip(std::move(out));
}

std::string StreamDecoder::close_byte_run() {
  const std::string run = std::exchange(byte_run_, {});
  if (valid_utf8_prefix(run) == run.size()) return run;
  std::string out;
  for (size_t i = 0; i < run.size(); ++i) out += kReplacementCharacter;
  return out;
}

std::string StreamDecoder::strip(std::string text) {
  if (text.empty() || !std::exchange(at_start_, false)) return text;
  if (tokenizer_->strips_leading_space() && text.front() == ' ') text.erase(0, 1);
  return text;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  // Borrowed: the decoder does not outlive this call.
  StreamDecoder decoder(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), this), skip_special);
  std::string out;
  for (TokenId id : ids) out += decoder.push(id);
  return out += decoder.finish();
}

}  // namespace moehost

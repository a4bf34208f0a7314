// Byte-level BPE: tokens are byte strings, written in the file with one printable character for each byte.
#include <array>
#include <optional>
#include <unordered_map>

#include "core/base/text_format.h"
#include "core/text/encoder.h"
#include "core/text/merge.h"
#include "core/text/normalize.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/utf8.h"

namespace moehost {
namespace {

// The character of each byte: printable ones of Latin-1 stand for themselves, the rest is counted up from U+0100.
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    out[byte] = printable ? byte : next++;
  }
  return out;
}

// Token texts to bytes.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    const auto characters = byte_characters();
    for (size_t byte = 0; byte < 256; ++byte) bytes_[characters[byte]] = static_cast<int16_t>(byte);
  }
  // Text with a character that stands for no byte is taken as it is written.
  std::string to_bytes(const std::string& token) const {
    std::string out;
    for (std::string_view rest = token; !rest.empty();) {
      const Utf8Char next = first_utf8_char(rest);
      if (next.kind != Utf8Char::kValid || next.code_point >= bytes_.size() || bytes_[next.code_point] < 0)
        return token;
      out += static_cast<char>(bytes_[next.code_point]);
      rest.remove_prefix(next.size);
    }
    return out;
  }

 private:
  std::array<int16_t, 0x144> bytes_ = [] {
    std::array<int16_t, 0x144> none{};
    none.fill(-1);
    return none;
  }();
};

using IdsByText = std::unordered_map<std::string_view, TokenId>;

class ByteLevelEncoder final : public Encoder {
 public:
  ByteLevelEncoder(PreTokenizer pre_tokenizer, MergeTable merges, const TokenizerSpec& spec,
                   const std::vector<std::string>& pieces);
  void encode(std::string_view text, std::vector<TokenId>* ids) const override;

 private:
  void encode_piece(std::string_view piece, Merger* merger, std::vector<TokenId>* ids) const;

  PreTokenizer pre_tokenizer_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;
  std::unordered_map<std::string, TokenId> whole_pieces_;  // where merges are to be ignored
};

ByteLevelEncoder::ByteLevelEncoder(PreTokenizer pre_tokenizer, MergeTable merges, const TokenizerSpec& spec,
                                   const std::vector<std::string>& pieces)
    : pre_tokenizer_(std::move(pre_tokenizer)), merges_(std::move(merges)) {
  byte_ids_.fill(-1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (spec.types[i] != kNormal) continue;
    const auto id = static_cast<TokenId>(i);
    if (pieces[i].size() == 1) {
      TokenId& byte_id = byte_ids_[static_cast<uint8_t>(pieces[i][0])];
      if (byte_id < 0) byte_id = id;
    }
    if (pre_tokenizer_.traits().ignore_merges) whole_pieces_.try_emplace(pieces[i], id);
  }
}

void ByteLevelEncoder::encode(std::string_view text, std::vector<TokenId>* ids) const {
  Merger merger(merges_);
  for_each_utf8_run(text, [&](std::string_view run, bool valid) {
    if (!valid) return encode_piece(run, &merger, ids);
    const std::string normalized = pre_tokenizer_.traits().nfc ? to_nfc(run) : std::string();
    if (pre_tokenizer_.traits().nfc) run = normalized;
    for (std::string_view piece : pre_tokenizer_.split(run)) encode_piece(piece, &merger, ids);
  });
}

void ByteLevelEncoder::encode_piece(std::string_view piece, Merger* merger, std::vector<TokenId>* ids) const {
  if (pre_tokenizer_.traits().ignore_merges) {
    if (const auto whole = whole_pieces_.find(std::string(piece)); whole != whole_pieces_.end()) {
      ids->push_back(whole->second);
      return;
    }
  }
  std::vector<TokenId> start;
  start.reserve(piece.size());
  for (char c : piece) {
    // A byte the vocabulary lacks is dropped, as in the original; some have no token for bytes that never occur.
    if (const TokenId id = byte_ids_[static_cast<uint8_t>(c)]; id >= 0) start.push_back(id);
  }
  for (const Merger::Symbol& symbol : merger->merge(start)) ids->push_back(symbol.id);
}

Result<MergeTable> read_merges(const TokenizerSpec& spec) {
  IdsByText ids_by_text;
  ids_by_text.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) ids_by_text.try_emplace(spec.tokens[i], static_cast<TokenId>(i));
  MergeTable merges;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string& rule = spec.merges[rank];
    const auto bad = [&](const auto&... why) {
      return fail(Code::kBadModel, "tokenizer.ggml.merges[", rank, "] is '", printable(rule), "': ", why...);
    };
    const size_t space = rule.find(' ', 1);
    if (space == std::string::npos) return bad("two tokens with a space between are expected");
    const std::string left = rule.substr(0, space), right = rule.substr(space + 1), both = left + right;
    std::array<TokenId, 3> ids{};
    for (size_t i = 0; const std::string& token : {left, right, both}) {
      const auto found = ids_by_text.find(token);
      if (found == ids_by_text.end()) return bad("'", printable(token), "' is not in tokenizer.ggml.tokens");
      ids[i++] = found->second;
    }
    merges.insert(ids[0], ids[1], {static_cast<uint32_t>(rank), ids[2]});
  }
  return merges;
}

}  // namespace

Result<TokenizerModel> build_byte_level(const TokenizerSpec& spec) {
  MOEHOST_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::build(spec.pre));
  MOEHOST_ASSIGN(MergeTable merges, read_merges(spec));
  TokenizerModel model;
  model.add_bos = pre_tokenizer.traits().add_bos;
  const ByteAlphabet alphabet;
  model.pieces.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const bool is_literal = spec.types[i] == kControl || spec.types[i] == kUserDefined || spec.types[i] == kUnknown;
    model.pieces.push_back(is_literal ? spec.tokens[i] : alphabet.to_bytes(spec.tokens[i]));
  }
  model.encoder = std::make_unique<ByteLevelEncoder>(std::move(pre_tokenizer), std::move(merges), spec, model.pieces);
  return model;
}

}  // namespace moehost

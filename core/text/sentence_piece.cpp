// SentencePiece's BPE: text is one piece with U+2581 for spaces; the pair whose token scores highest merges first, and
// characters without a token become byte tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <variant>

#include "core/text/encoder.h"
#include "core/text/merge.h"
#include "core/text/utf8.h"

namespace moehost {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
// Halves of a token are looked up at every place where it can be cut, which is quadratic in its length.
constexpr size_t kMaxTokenBytes = 1024;

// Ids of texts that can stand in a merge: tokens, and behind them characters that only occur within tokens.
class Symbols {
 public:
  explicit Symbols(const TokenizerSpec& spec) : size_(spec.tokens.size()) {
    for (size_t i = 0; i < size_; ++i) {
      if (can_merge(spec, i)) ids_.try_emplace(spec.tokens[i], static_cast<TokenId>(i));
    }
    auto next = static_cast<TokenId>(size_);
    for (size_t i = 0; i < size_; ++i) {
      if (!can_merge(spec, i)) continue;
      for (std::string_view rest = spec.tokens[i]; !rest.empty();) {
        const Utf8Char first = first_utf8_char(rest);
        if (ids_.try_emplace(std::string(rest.substr(0, first.size)), next).second) ++next;
        rest.remove_prefix(first.size);
      }
    }
  }
  static bool can_merge(const TokenizerSpec& spec, size_t token) {
    return spec.types[token] == kNormal || spec.types[token] == kUserDefined || spec.types[token] == kUnused;
  }
  // Negative: no symbol.
  TokenId find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
  }
  bool is_token(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  size_t size_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

struct MergeRules {
  MergeTable merges;
  PairMap<std::monostate> neighbours;  // characters that stand side by side in some token: no merge joins others
};

class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(Symbols symbols, MergeRules rules, std::array<TokenId, 256> byte_ids, TokenId unknown,
                       bool add_space_prefix)
      : symbols_(std::move(symbols)),
        rules_(std::move(rules)),
        byte_ids_(byte_ids),
        unknown_(unknown),
        add_space_prefix_(add_space_prefix) {}
  void encode(std::string_view text, std::vector<TokenId>* ids) const override;

 private:
  // Characters in a row, as symbols, and where each begins in the text.
  struct Run {
    std::vector<TokenId> symbols;
    std::vector<size_t> offsets;
  };
  void encode_run(std::string_view text, const Run& run, Merger* merger, std::vector<TokenId>* ids) const;
  // A character that is no token: its bytes, or else the unknown token, one for a run of such characters.
  void encode_bytes(std::string_view character, std::vector<TokenId>* ids) const;

  Symbols symbols_;
  MergeRules rules_;
  std::array<TokenId, 256> byte_ids_;  // negative: none
  TokenId unknown_;                    // negative: none
  bool add_space_prefix_;
};

void SentencePieceEncoder::encode(std::string_view text, std::vector<TokenId>* ids) const {
  const std::string marked =
      (add_space_prefix_ ? std::string(kSpaceMark) : std::string()) + replace_all(text, " ", kSpaceMark);
  Merger merger(rules_.merges);
  Run run;
  // Merging run by run gives what merging the whole text would, with small heaps.
  for (size_t at = 0; at < marked.size();) {
    const Utf8Char next = first_utf8_char(std::string_view(marked).substr(at));
    const TokenId symbol = symbols_.find(std::string_view(marked).substr(at, next.size));
    if (!run.symbols.empty() && !rules_.neighbours.find(run.symbols.back(), symbol)) {
      encode_run(marked, run, &merger, ids);
      run.symbols.clear();
      run.offsets.clear();
    }
    run.symbols.push_back(symbol);
    run.offsets.push_back(at);
    at += next.size;
  }
  encode_run(marked, run, &merger, ids);
}

void SentencePieceEncoder::encode_run(std::string_view text, const Run& run, Merger* merger,
                                      std::vector<TokenId>* ids) const {
  for (const Merger::Symbol& symbol : merger->merge(run.symbols)) {
    if (symbols_.is_token(symbol.id)) {
      ids->push_back(symbol.id);
    } else {
      const std::string_view rest = text.substr(run.offsets[symbol.first]);
      encode_bytes(rest.substr(0, first_utf8_char(rest).size), ids);
    }
  }
}

void SentencePieceEncoder::encode_bytes(std::string_view character, std::vector<TokenId>* ids) const {
  const auto id_of = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (char c : character) ids->push_back(id_of(c));
  } else if (unknown_ >= 0 && (ids->empty() || ids->back() != unknown_)) {
    ids->push_back(unknown_);
  }
}

// Equal scores have equal ranks, the highest score rank 0.
Result<std::vector<uint32_t>> ranks_of(const std::vector<float>& scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) return fail(Code::kBadModel, "tokenizer.ggml.scores[", i, "] is not a number");
  }
  std::vector<float> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (float score : scores) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(place - sorted.begin()));
  }
  return ranks;
}

Result<MergeRules> read_merges(const TokenizerSpec& spec, const Symbols& symbols) {
  MOEHOST_ASSIGN(const std::vector<uint32_t> ranks, ranks_of(spec.scores));
  MergeRules rules;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!Symbols::can_merge(spec, i)) continue;
    const std::string_view token = spec.tokens[i];
    if (token.size() > kMaxTokenBytes) {
      return fail(Code::kBadModel, "tokenizer.ggml.tokens[", i, "] has ", token.size(), " bytes; at most ",
                  kMaxTokenBytes, " are supported");
    }
    TokenId before = -1;
    for (size_t cut = 0; cut < token.size();) {
      const size_t size = first_utf8_char(token.substr(cut)).size;
      const TokenId character = symbols.find(token.substr(cut, size));
      const TokenId left = symbols.find(token.substr(0, cut)), right = symbols.find(token.substr(cut));
      if (before >= 0) rules.neighbours.insert(before, character, {});
      if (left >= 0 && right >= 0) rules.merges.insert(left, right, {ranks[i], static_cast<TokenId>(i)});
      before = character;
      cut += size;
    }
  }
  return rules;
}

// The byte of "<0x1F>".
Result<uint8_t> parse_byte_token(const std::string& token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
    const size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
    if (high != kDigits.npos && low != kDigits.npos) return static_cast<uint8_t>(high << 4 | low);
  }
  return fail(Code::kBadModel, "a byte token is '", token, "'; '<0x00>' to '<0xFF>' are allowed");
}

}  // namespace

Result<TokenizerModel> build_sentence_piece(const TokenizerSpec& spec) {
  if (spec.scores.empty()) {
    return fail(Code::kBadModel,
                "tokenizer.ggml.scores is missing; a tokenizer of model 'llama' needs a score a token");
  }
  TokenizerModel model;
  model.add_bos = true;
  model.strips_leading_space = spec.add_space_prefix.value_or(true);
  std::array<TokenId, 256> byte_ids;
  byte_ids.fill(-1);
  model.pieces.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] != kByte) {
      model.pieces.push_back(replace_all(replace_invalid_utf8(spec.tokens[i]), kSpaceMark, " "));
      continue;
    }
    const Result<uint8_t> byte = parse_byte_token(spec.tokens[i]);
    if (!byte.ok()) return byte.status().in(cat("tokenizer.ggml.tokens[", i, "]"));
    byte_ids[*byte] = static_cast<TokenId>(i);
    model.pieces.push_back(std::string(1, static_cast<char>(*byte)));
  }
  Symbols symbols(spec);
  MOEHOST_ASSIGN(MergeRules rules, read_merges(spec, symbols));
  model.encoder = std::make_unique<SentencePieceEncoder>(std::move(symbols), std::move(rules), byte_ids,
                                                         static_cast<TokenId>(spec.unknown.value_or(-1)),
                                                         model.strips_leading_space);
  return model;
}

}  // namespace moehost

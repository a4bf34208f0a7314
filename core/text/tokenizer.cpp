// Tokenizer: checks what a file says, cuts out special tokens, and leaves the rest to the encoder of the model.
#include "core/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/text/encoder.h"
#include "core/text/token_matcher.h"

namespace moehost {
namespace {

// Control tokens that end an answer whether or not the file says so: texts of chat formats in use, as files often
// name only one of them.
constexpr std::string_view kEndTexts[] = {
    "</s>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|return|>",
    "<end_of_turn>",
    "<|EOT|>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
};

// Fills in types where the file has none.
Status check(TokenizerSpec* spec) {
  const size_t count = spec->tokens.size();
  if (count == 0) return fail(Code::kBadModel, "tokenizer.ggml.tokens is missing or empty");
  if (count > std::numeric_limits<TokenId>::max() / 2) {
    return fail(Code::kBadModel, "tokenizer.ggml.tokens has ", count, " entries, more than token ids can count");
  }
  if (spec->types.empty()) spec->types.assign(count, kNormal);
  const auto check_length = [&](const char* key, size_t length) -> Status {
    if (length == count) return {};
    return fail(Code::kBadModel, key, " has ", length, " entries, tokenizer.ggml.tokens has ", count,
                "; they must be equal");
  };
  MOEHOST_RETURN_IF_ERROR(check_length("tokenizer.ggml.token_type", spec->types.size()));
  if (!spec->scores.empty()) MOEHOST_RETURN_IF_ERROR(check_length("tokenizer.ggml.scores", spec->scores.size()));
  for (size_t i = 0; i < count; ++i) {
    if (spec->types[i] < kNormal || spec->types[i] > kByte) {
      return fail(Code::kBadModel, "tokenizer.ggml.token_type[", i, "] is ", spec->types[i], "; 1 to 6 are allowed");
    }
  }
  const std::pair<const char*, std::optional<int64_t>> ids[] = {{"bos", spec->bos},         {"eos", spec->eos},
                                                                {"eot", spec->eot},         {"eom", spec->eom},
                                                                {"unknown", spec->unknown}, {"padding", spec->padding}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<uint64_t>(*id) >= count)) {
      return fail(Code::kBadModel, "tokenizer.ggml.", name, "_token_id is ", *id, "; the vocabulary has ids 0 to ",
                  count - 1);
    }
  }
  if (spec->add_bos.value_or(false) && !spec->bos) {
    return fail(Code::kBadModel, "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  if (spec->add_eos.value_or(false) && !spec->eos) {
    return fail(Code::kBadModel, "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
  }
  return {};
}

Result<TokenizerModel> build_model(const TokenizerSpec& spec) {
  if (spec.model == "gpt2") return build_byte_level(spec);
  if (spec.model == "llama") return build_sentence_piece(spec);
  return fail(Code::kBadModel, "tokenizer.ggml.model is '", spec.model,
              "', which is not supported; known are gpt2, llama");
}

TokenMatcher match_tokens(const TokenizerSpec& spec, std::initializer_list<TokenType> types) {
  std::vector<std::pair<std::string, TokenId>> tokens;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (std::find(types.begin(), types.end(), spec.types[i]) != types.end()) {
      tokens.emplace_back(spec.tokens[i], static_cast<TokenId>(i));
    }
  }
  return TokenMatcher(std::move(tokens));
}

std::optional<TokenId> to_token_id(const std::optional<int64_t>& id) {
  return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
}

class FileTokenizer final : public Tokenizer {
 public:
  // spec: checked.
  FileTokenizer(const TokenizerSpec& spec, TokenizerModel model);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string piece(TokenId id) const override { return contains(id) ? model_.pieces[id] : std::string(); }
  size_t size() const override { return model_.pieces.size(); }
  bool is_special(TokenId id) const override { return contains(id) && traits_[id].special; }
  bool is_byte(TokenId id) const override { return contains(id) && traits_[id].byte; }
  bool is_end(TokenId id) const override { return contains(id) && traits_[id].end; }
  bool strips_leading_space() const override { return model_.strips_leading_space; }
  std::optional<TokenId> bos() const override { return bos_; }
  bool adds_bos() const override { return add_bos_; }

 private:
  struct Traits {
    bool special, byte, end;
  };
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size(); }

  TokenizerModel model_;
  std::vector<Traits> traits_;  // by id
  TokenMatcher all_matcher_, user_defined_matcher_;
  std::optional<TokenId> bos_, eos_;
  bool add_bos_, add_eos_;
};

FileTokenizer::FileTokenizer(const TokenizerSpec& spec, TokenizerModel model)
    : model_(std::move(model)),
      all_matcher_(match_tokens(spec, {kControl, kUnknown, kUserDefined})),
      user_defined_matcher_(match_tokens(spec, {kUserDefined})),
      bos_(to_token_id(spec.bos)),
      eos_(to_token_id(spec.eos)),
      add_bos_(bos_ && spec.add_bos.value_or(model_.add_bos)),
      add_eos_(spec.add_eos.value_or(false)) {
  traits_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const bool control = spec.types[i] == kControl;
    const bool named_end = std::find(std::begin(kEndTexts), std::end(kEndTexts), spec.tokens[i]) != std::end(kEndTexts);
    traits_.push_back(
        {control || spec.types[i] == kUnknown, spec.model == "llama" && spec.types[i] == kByte, control && named_end});
  }
  for (const auto& id : {spec.eos, spec.eot, spec.eom}) {
    if (id) traits_[*id].end = true;
  }
}

std::vector<TokenId> FileTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  if (options.add_special && add_bos_) ids.push_back(*bos_);
  const TokenMatcher& matcher = options.parse_special ? all_matcher_ : user_defined_matcher_;
  const auto encode_between = [&](size_t begin, size_t end) {
    if (begin < end) model_.encoder->encode(text.substr(begin, end - begin), &ids);
  };
  size_t from = 0;
  while (const auto match = matcher.find(text, from)) {
    encode_between(from, match->begin);
    ids.push_back(match->id);
    from = match->end;
  }
  encode_between(from, text.size());
  if (options.add_special && add_eos_) ids.push_back(*eos_);
  return ids;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::build(TokenizerSpec spec) {
  MOEHOST_RETURN_IF_ERROR(check(&spec));
  MOEHOST_ASSIGN(TokenizerModel model, build_model(spec));
  return std::shared_ptr<const Tokenizer>(std::make_shared<FileTokenizer>(spec, std::move(model)));
}

}  // namespace moehost

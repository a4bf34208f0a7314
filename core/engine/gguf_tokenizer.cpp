// The tokenizer that a GGUF file describes.
#include "core/engine/engine.h"
#include "core/format/gguf.h"

namespace moehost {
namespace {

Result<TokenizerSpec> read_tokenizer_spec(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  TokenizerSpec spec;
  const auto optional_id = [&](const char* key, std::optional<int64_t>& out) -> Status {
    MOEHOST_ASSIGN(const auto value, file.get_uint(prefix + key));
    if (value) out = static_cast<int64_t>(*value);
    return {};
  };
  MOEHOST_ASSIGN(const auto model, file.get_string(prefix + "model"));
  if (!model) return fail(Code::kBadModel, "the key tokenizer.ggml.model is missing");
  spec.model = *model;
  MOEHOST_ASSIGN(auto pre, file.get_string(prefix + "pre"));
  spec.pre = pre.value_or("");
  MOEHOST_ASSIGN(auto tokens, file.get_strings(prefix + "tokens"));
  spec.tokens = std::move(tokens).value_or(std::vector<std::string>());
  MOEHOST_ASSIGN(auto scores, file.get_floats(prefix + "scores"));
  spec.scores = std::move(scores).value_or(std::vector<float>());
  MOEHOST_ASSIGN(auto types, file.get_ints(prefix + "token_type"));
  spec.types = std::move(types).value_or(std::vector<int64_t>());
  MOEHOST_ASSIGN(auto merges, file.get_strings(prefix + "merges"));
  spec.merges = std::move(merges).value_or(std::vector<std::string>());
  MOEHOST_RETURN_IF_ERROR(optional_id("bos_token_id", spec.bos));
  MOEHOST_RETURN_IF_ERROR(optional_id("eos_token_id", spec.eos));
  MOEHOST_RETURN_IF_ERROR(optional_id("eot_token_id", spec.eot));
  MOEHOST_RETURN_IF_ERROR(optional_id("eom_token_id", spec.eom));
  MOEHOST_RETURN_IF_ERROR(optional_id("unknown_token_id", spec.unknown));
  MOEHOST_RETURN_IF_ERROR(optional_id("padding_token_id", spec.padding));
  MOEHOST_ASSIGN(spec.add_bos, file.get_bool(prefix + "add_bos_token"));
  MOEHOST_ASSIGN(spec.add_eos, file.get_bool(prefix + "add_eos_token"));
  MOEHOST_ASSIGN(spec.add_space_prefix, file.get_bool(prefix + "add_space_prefix"));
  return spec;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& model_path) {
  MOEHOST_ASSIGN(const GgufFile file, GgufFile::open(model_path));
  auto spec = read_tokenizer_spec(file);
  if (!spec.ok()) return spec.status().in(model_path);
  auto tokenizer = Tokenizer::build(*std::move(spec));
  if (!tokenizer.ok()) return tokenizer.status().in(model_path);
  return tokenizer;
}

}  // namespace moehost

// The pre-tokenizers of byte-level BPE as regular expressions (PCRE2), as their original tokenizer.json has them.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <string>

#include "core/text/utf8.h"

namespace moehost {
namespace {

struct Family {
  std::vector<std::string> names;  // the first is the one of this project's documents
  std::vector<std::string> rules;  // what no rule matches stays a piece
  PreTokenizerTraits traits;
};

// In these rules \s stands in brackets only: see expand_space.
const std::vector<Family>& families() {
  static const std::string kContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)";
  static const std::string kSpaceRun = R"([\s]+(?![^\s])|[\s]+)";
  static const std::string kLines = R"([\s]*[\r\n]+|)";
  static const std::string kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+|)";
  static const std::string kPunctuation = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)";
  static const std::string kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)" + kSpaceRun;
  static const std::vector<Family> kFamilies = {
      {{"gpt2", "gpt-2", "phi-2"}, {kGpt2}, {}},
      {{"olmo"}, {kGpt2}, {.nfc = true}},
      {{"smollm", "starcoder"}, {R"(\p{N})", kGpt2}, {}},
      {{"llama-bpe", "llama3", "llama-v3"},
       {kContraction + kWord + R"(\p{N}{1,3}|)" + kPunctuation + kLines + kSpaceRun},
       {.ignore_merges = true, .add_bos = true}},
      {{"qwen2", "deepseek-r1-qwen"},
       {kContraction + kWord + R"(\p{N}|)" + kPunctuation + kLines + kSpaceRun},
       {.nfc = true}},
      {{"deepseek-v3"},
       {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
        R"( ?[\p{P}\p{S}]+[\r\n]*|)" +
            kLines + kSpaceRun},
       {}},
  };
  return kFamilies;
}

// \s means the property White_Space. PCRE2's own \s lacks U+0085 without UCP, and with UCP adds U+180E.
std::string expand_space(const std::string& rule) { return replace_all(rule, R"(\s)", R"(\t-\r\x{85}\p{Z})"); }

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
using Pattern = std::unique_ptr<pcre2_code, Destroy<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Destroy<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Destroy<pcre2_match_context_free>>;

const Family* find_family(std::string_view name) {
  for (const Family& family : families()) {
    if (std::find(family.names.begin(), family.names.end(), name) != family.names.end()) return &family;
  }
  return nullptr;
}

std::string known_names() {
  std::string out;
  for (const Family& family : families()) {
    for (const std::string& name : family.names) out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

}  // namespace

struct PreTokenizer::Rule {
  Pattern code;
  MatchContext context;
  explicit Rule(const std::string& pattern);
  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>* pieces) const;
};

PreTokenizer::Rule::Rule(const std::string& pattern) : context(pcre2_match_context_create(nullptr)) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                           &error_offset, nullptr));
  MOEHOST_CHECK(code && context);
  // Where the system allows no code to be made at run time, matching is interpreted: slower, the same.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  // The limits guard against patterns that explode; ours step back over one run of spaces at most, however long.
  pcre2_set_match_limit(context.get(), std::numeric_limits<uint32_t>::max());
}

void PreTokenizer::Rule::split(std::string_view text, pcre2_match_data* match,
                               std::vector<std::string_view>* pieces) const {
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match);
  size_t from = 0;
  while (from < text.size()) {
    const int count = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK, match, context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    MOEHOST_CHECK(count > 0);
    if (found[0] > from) pieces->push_back(text.substr(from, found[0] - from));
    pieces->push_back(text.substr(found[0], found[1] - found[0]));
    from = found[1];
  }
  if (from < text.size()) pieces->push_back(text.substr(from));
}

Result<PreTokenizer> PreTokenizer::build(std::string_view name) {
  const Family* family = find_family(name);
  if (!family) {
    return fail(Code::kBadModel, "tokenizer.ggml.pre is '", name, "', which is not supported; known are ",
                known_names());
  }
  PreTokenizer out;
  out.traits_ = family->traits;
  for (const std::string& rule : family->rules) out.rules_.push_back(std::make_shared<const Rule>(expand_space(rule)));
  return out;
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  MOEHOST_CHECK(match);
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const auto& rule : rules_) {
    std::vector<std::string_view> finer;
    finer.reserve(pieces.size());
    for (std::string_view piece : pieces) rule->split(piece, match.get(), &finer);
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace moehost

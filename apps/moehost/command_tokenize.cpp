// moehost tokenize: text to ids and back.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/moehost/commands.h"
#include "apps/moehost/json_input.h"
#include "core/base/log.h"
#include "core/base/text_format.h"
#include "core/engine/engine.h"

namespace moehost {
namespace {

using Json = nlohmann::ordered_json;

// Pieces may be halves of characters; JSON text cannot hold those, so they become U+FFFD.
std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string hex(const std::string& bytes) {
  std::string out;
  char digits[3];
  for (const char c : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    out += digits;
  }
  return out;
}

void print_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool json) {
  Json pieces = Json::array();
  for (const TokenId id : ids) {
    const std::string piece = tokenizer.piece(id);
    if (json) {
      pieces.push_back(piece);
    } else {
      std::cout << id << "\t" << hex(piece) << "\t" << (is_utf8(piece) ? printable(piece) : "") << "\n";
    }
  }
  if (json) std::cout << dump({{"ids", ids}, {"pieces", pieces}}) << "\n";
}

// One answer a line of standard input, written as it comes.
Status run_batch(const Tokenizer& tokenizer, const EncodeOptions& options, bool decode) {
  std::string text;
  for (uint64_t number = 1; std::getline(std::cin, text); ++number) {
    const std::string place = cat("line ", number);
    if (decode) {
      MOEHOST_ASSIGN(const auto ids, parse_ids(text, place));
      std::cout << dump(tokenizer.decode(ids)) << std::endl;
      continue;
    }
    const auto value = json_depth_within(text, 1) ? Json::parse(text, nullptr, false) : Json();
    if (!value.is_string()) return fail(Code::kUsage, place, ": one JSON string a line is expected");
    std::cout << dump({{"ids", tokenizer.encode(value.get<std::string>(), options)}}) << std::endl;
  }
  return {};
}

Status tokenize(const CommandLine& line) {
  log::set_level(log::Level::kWarning);
  MOEHOST_ASSIGN(const auto tokenizer, load_tokenizer(line.positional().front()));
  const EncodeOptions options{.add_special = line.has("special"), .parse_special = !line.has("plain")};
  const bool decode = line.has("decode"), json = line.has("json");
  if (line.has("batch")) return run_batch(*tokenizer, options, decode);
  if (line.has("prompt") && (line.has("file") || decode))
    return fail(Code::kUsage, "-p TEXT goes neither with --file nor with --decode");

  const std::string path = line.text("file").value_or("-");
  std::string input;
  if (line.has("prompt")) {
    input = *line.text("prompt");
  } else {
    MOEHOST_ASSIGN(input, read_text(path));
  }
  if (!decode) {
    print_tokens(*tokenizer, tokenizer->encode(input, options), json);
    return {};
  }
  MOEHOST_ASSIGN(const auto ids, parse_ids(input, path));
  const std::string text = tokenizer->decode(ids);
  std::cout << (json ? dump({{"text", text}}) + "\n" : text);
  return {};
}

}  // namespace

Command tokenize_command() {
  return {"tokenize",
          "MODEL",
          "Text to token ids and back, one line a token: id, bytes, text. MODEL may be a vocabulary-only GGUF.",
          1,
          1,
          {{"file", 'f', "FILE", "the text, or with --decode the ids; default: standard input"},
           {"prompt", 'p', "TEXT", "the text itself"},
           {"json", 0, "", "print {\"ids\":[...],\"pieces\":[...]}"},
           {"special", 0, "", "add what the model wants around a text (BOS)"},
           {"plain", 0, "", "text that spells a special token stays text"},
           {"decode", 0, "", "ids to text"},
           {"batch", 0, "", "one JSON string a line in, {\"ids\":[...]} a line out; with --decode the other way"}},
          &tokenize};
}

}  // namespace moehost

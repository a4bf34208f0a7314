// moehost logits: token ids in, logits of every position out, under any placement.
#include <iostream>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/interrupt.h"
#include "apps/moehost/json_input.h"
#include "apps/moehost/load.h"
#include "core/format/safetensors.h"

namespace moehost {
namespace {

Status logits(const CommandLine& line) {
  const auto ids_path = line.text("ids"), out_path = line.text("out");
  if (!ids_path || !out_path) return fail(Code::kUsage, "--ids FILE and --out FILE are expected");
  MOEHOST_ASSIGN(const std::string json, read_text(*ids_path));
  MOEHOST_ASSIGN(const std::vector<TokenId> ids, parse_ids(json, *ids_path));
  MOEHOST_ASSIGN(const Config config, read_model_config(line));
  std::atomic<bool> cancel{false};
  const InterruptWatch watch([&cancel] { cancel = true; });
  MOEHOST_ASSIGN(const auto engine, load_engine(line, config, {.cancel = &cancel}));
  MOEHOST_ASSIGN(const std::vector<float> values, engine->logits(ids));
  return write_safetensors(*out_path, {{.name = "logits",
                                        .dtype = "F32",
                                        .shape = {ids.size(), engine->model().vocab_size},
                                        .data = std::as_bytes(std::span(values))}});
}

}  // namespace

Command logits_command() {
  const std::vector<OptionSpec> own = {
      {"ids", 0, "FILE", "token ids: [1,2,3] or {\"input_ids\":[...]}, - for standard input"},
      {"out", 'o', "FILE", "safetensors file with \"logits\", f32 [tokens, vocab]"}};
  return {"logits",
          "[MODEL] --ids FILE --out FILE",
          "Logits of every position of a list of token ids.",
          0,
          1,
          own + config_options() + load_options(),
          &logits};
}

}  // namespace moehost

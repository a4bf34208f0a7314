// moehost run: one completion to standard output, streamed; statistics to standard error.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/interrupt.h"
#include "apps/moehost/json_input.h"
#include "apps/moehost/load.h"
#include "apps/moehost/sampling_options.h"

namespace moehost {
namespace {

double per_second(uint32_t tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

Result<std::vector<TokenId>> read_ids(const std::string& path) {
  MOEHOST_ASSIGN(const std::string json, read_text(path));
  return parse_ids(json, path);
}

Result<std::vector<TokenId>> encode_prompt(const std::string& text, const Engine& engine) {
  if (!engine.tokenizer())
    return fail(Code::kUsage, "this model has no usable tokenizer: give token ids with --ids instead of -p");
  return engine.tokenizer()->encode(text, {.add_special = true, .parse_special = true});
}

void print_statistics(const GenerateTimings& t) {
  std::fprintf(stderr, "prompt %u tokens in %.2f s (%.1f tokens/s), generated %u in %.2f s (%.1f tokens/s)\n",
               t.prompt_tokens, t.prefill_s, per_second(t.prompt_tokens, t.prefill_s), t.generated_tokens, t.decode_s,
               per_second(t.generated_tokens, t.decode_s));
}

void print_json(const GenerateRequest& request, const GenerateResult& result) {
  const GenerateTimings& t = result.timings;
  const nlohmann::ordered_json out = {{"text", result.text},
                                      {"ids", result.ids},
                                      {"prompt_ids", request.prompt},
                                      {"finish_reason", result.finish_reason},
                                      {"timings",
                                       {{"prompt_tokens", t.prompt_tokens},
                                        {"prefill_s", t.prefill_s},
                                        {"prefill_tokens_per_s", per_second(t.prompt_tokens, t.prefill_s)},
                                        {"generated_tokens", t.generated_tokens},
                                        {"decode_s", t.decode_s},
                                        {"decode_tokens_per_s", per_second(t.generated_tokens, t.decode_s)}}}};
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

Status run(const CommandLine& line) {
  if (line.has("prompt") == line.has("ids")) return fail(Code::kUsage, "one of -p TEXT and --ids FILE is expected");
  MOEHOST_ASSIGN(const Config config, read_model_config(line));
  GenerateRequest request;
  // Whatever can be refused is refused before a load that may take minutes.
  MOEHOST_RETURN_IF_ERROR(sampling_from(line, {}).status());
  MOEHOST_ASSIGN(request.max_tokens, max_tokens_from(line, config));
  if (const auto path = line.text("ids")) {
    MOEHOST_ASSIGN(request.prompt, read_ids(*path));
  }

  std::atomic<bool> cancel{false};
  const InterruptWatch watch([&cancel] { cancel = true; });
  MOEHOST_ASSIGN(const auto engine, load_engine(line, config, {.cancel = &cancel}));
  MOEHOST_ASSIGN(request.sampling, sampling_from(line, fresh_sampling(config, *engine)));
  if (const auto text = line.text("prompt")) {
    MOEHOST_ASSIGN(request.prompt, encode_prompt(*text, *engine));
  }
  request.ignore_end = line.has("ignore-end");
  const bool json = line.has("json");
  const auto on_token = [&](TokenId, const std::string& text) {
    if (!json) std::cout << text << std::flush;
    return !cancel && std::cout.good();
  };
  MOEHOST_ASSIGN(const GenerateResult result, engine->generate(request, on_token));
  if (json) {
    print_json(request, result);
  } else {
    std::cout << std::endl;
    print_statistics(result.timings);
  }
  if (cancel) return fail(Code::kInterrupted, "interrupted after ", result.ids.size(), " tokens");
  return {};
}

}  // namespace

Command run_command() {
  const std::vector<OptionSpec> own = {
      {"prompt", 'p', "TEXT", "what to continue; text that spells a special token becomes that token"},
      {"ids", 0, "FILE", "token ids instead of -p: [1,2,3] or {\"input_ids\":[...]}, - for standard input"},
      {"ignore-end", 0, "", "go on after the model's end token"},
      {"json", 0, "", "print {\"text\",\"ids\",\"prompt_ids\",\"finish_reason\",\"timings\"} at the end"}};
  return {"run",
          "[MODEL] -p TEXT",
          "One completion to standard output, streamed; statistics to standard error.",
          0,
          1,
          own + sampling_options() + config_options() + load_options(),
          &run};
}

}  // namespace moehost

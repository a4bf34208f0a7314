// Fields of the request are a table; ranges of sampling are the sampler's own.
#include "apps/moehost/generate_api.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "apps/moehost/json_input.h"
#include "apps/moehost/sampling_options.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json error_json(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.status < 500 ? "invalid_request_error" : "server_error"},
            {"param", error.param.empty() ? Json() : Json(error.param)},
            {"code", error.code}}}};
}

// What the fields of a body are read into.
struct Draft {
  std::string prompt;
  bool has_prompt = false, stream = false;
  uint32_t max_tokens = 0;
  SamplingParams sampling;
};

// A reader takes the value, or says what it expects.
using Reader = const char* (*)(const Json& value, Draft& draft);

template <double SamplingParams::*member>
const char* read_number(const Json& value, Draft& draft) {
  if (!value.is_number()) return "a number";
  draft.sampling.*member = value.get<double>();
  return nullptr;
}
const char* read_prompt(const Json& value, Draft& draft) {
  if (!value.is_string()) return "a string";
  draft.prompt = value.get<std::string>();
  draft.has_prompt = true;
  return nullptr;
}
const char* read_max_tokens(const Json& value, Draft& draft) {
  if (!value.is_number_unsigned() || value < 1u || value > kMostMaxTokens) return "a whole number from 1 to 2^30";
  draft.max_tokens = value.get<uint32_t>();
  return nullptr;
}
const char* read_top_k(const Json& value, Draft& draft) {
  if (!value.is_number_unsigned() || value > std::numeric_limits<uint32_t>::max()) return "a whole number, 0 for all";
  draft.sampling.top_k = value.get<uint32_t>();
  return nullptr;
}
const char* read_seed(const Json& value, Draft& draft) {
  if (!value.is_number_unsigned()) return "a whole number from 0 to 2^64 - 1";
  draft.sampling.seed = value.get<uint64_t>();
  return nullptr;
}
const char* read_stream(const Json& value, Draft& draft) {
  if (!value.is_boolean()) return "true or false";
  draft.stream = value.get<bool>();
  return nullptr;
}

struct Field {
  const char* name;
  Reader read;
};
constexpr Field kFields[] = {{"prompt", read_prompt},
                             {"max_tokens", read_max_tokens},
                             {"temperature", read_number<&SamplingParams::temperature>},
                             {"top_k", read_top_k},
                             {"top_p", read_number<&SamplingParams::top_p>},
                             {"min_p", read_number<&SamplingParams::min_p>},
                             {"repetition_penalty", read_number<&SamplingParams::repetition_penalty>},
                             {"seed", read_seed},
                             {"stream", read_stream}};

std::optional<ApiError> read_field(const std::string& name, const Json& value, Draft& draft) {
  std::vector<std::string> known;
  for (const Field& field : kFields) {
    known.emplace_back(field.name);
    if (name != field.name) continue;
    if (value.is_null()) return {};  // some clients send null for "not given"
    if (const char* expected = field.read(value, draft))
      return ApiError{400, "invalid_value", cat("'", name, "' must be ", expected), name};
    const Status sampling = check_sampling(draft.sampling);
    return sampling.ok() ? std::nullopt : std::optional(ApiError{400, "invalid_value", sampling.message(), name});
  }
  const std::string near = nearest(name, known);
  return ApiError{400, "unknown_field",
                  cat("unknown field '", printable(name), "'", near.empty() ? "" : cat(": did you mean '", near, "'?")),
                  name};
}

std::optional<ApiError> parse_object(std::string_view body, Json& out) {
  if (!is_utf8(body)) return ApiError{400, "invalid_utf8", "the body is not valid UTF-8"};
  if (!json_depth_within(body, kMaxJsonDepth))
    return ApiError{400, "invalid_json", cat("the body nests deeper than ", kMaxJsonDepth)};
  out = Json::parse(body, nullptr, false);
  if (out.is_discarded()) return ApiError{400, "invalid_json", "the body is not valid JSON"};
  if (!out.is_object()) return ApiError{400, "invalid_json", "the body must be a JSON object"};
  return {};
}

Json usage(const GenerateResult& result, size_t prompt_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", result.ids.size()},
          {"total_tokens", prompt_tokens + result.ids.size()}};
}

Json answer(const std::string& text, const GenerateResult& result, size_t prompt_tokens, const std::string& model) {
  return {{"text", text},
          {"usage", usage(result, prompt_tokens)},
          {"finish_reason", result.finish_reason},
          {"model", model}};
}

std::string event(const Json& data) { return "data: " + dump(data) + "\n\n"; }

}  // namespace

std::string error_body(const ApiError& error) { return dump(error_json(error)); }

std::optional<ApiError> parse_generate(std::string_view body, const Engine& engine, const Config& config,
                                       ApiRequest& out) {
  Json root;
  if (auto error = parse_object(body, root)) return error;
  Draft draft;
  draft.sampling = fresh_sampling(config, engine);
  draft.max_tokens = config.sampling.max_tokens.value_or(kDefaultMaxTokens);
  for (const auto& [name, value] : root.items())
    if (auto error = read_field(name, value, draft)) return error;
  if (!draft.has_prompt) return ApiError{400, "missing_field", "'prompt' is missing: a string", "prompt"};
  if (!engine.tokenizer())
    return ApiError{501, "no_tokenizer", "this model has no usable tokenizer: it cannot take text", "prompt"};

  auto prompt = engine.tokenizer()->encode(draft.prompt, {.add_special = true, .parse_special = false});
  if (prompt.empty()) return ApiError{400, "invalid_value", "'prompt' is empty", "prompt"};
  if (prompt.size() > engine.max_tokens())
    return ApiError{400, "context_length_exceeded",
                    cat("the prompt has ", prompt.size(), " tokens, the context holds ", engine.max_tokens()),
                    "prompt"};
  out.generate = {.prompt = std::move(prompt), .max_tokens = draft.max_tokens, .sampling = draft.sampling};
  out.stream = draft.stream;
  return {};
}

ApiError engine_error(const Status& status) {
  if (status.code() == Code::kUsage) return {400, "invalid_value", status.message()};
  if (status.code() == Code::kUnavailable) return {503, "device_failed", "a device failed: try again"};
  return {500, "internal", "the request failed: the server's log says why"};
}

std::string answer_body(const GenerateResult& result, size_t prompt_tokens, const std::string& model) {
  return dump(answer(result.text, result, prompt_tokens, model));
}
std::string text_event(const std::string& text) { return event({{"text", text}}); }
std::string last_events(const GenerateResult& result, size_t prompt_tokens, const std::string& model) {
  return event(answer("", result, prompt_tokens, model)) + "data: [DONE]\n\n";
}
std::string error_event(const ApiError& error) { return event(error_json(error)); }

}  // namespace moehost

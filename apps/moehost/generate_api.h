// POST /generate as JSON: the request read and checked, the answers written. No network in here. Floor 6.
#pragma once
#include <string>
#include <string_view>

#include "core/engine/engine.h"

namespace moehost {

// An error a client sees: {"error": {message, type, param, code}} under an HTTP status. No paths or addresses in it.
struct ApiError {
  unsigned status = 400;
  std::string code;  // "context_length_exceeded"
  std::string message;
  std::string param;  // the field to blame; empty: null
};
std::string error_body(const ApiError& error);

struct ApiRequest {
  GenerateRequest generate;
  bool stream = false;
};
// Reads a body: UTF-8, JSON of bounded depth, known fields of the right type and range, a prompt that fits the context.
// Text that spells a special token stays text. Fills `out`, or returns what is wrong. [any thread; linear in the body]
std::optional<ApiError> parse_generate(std::string_view body, const Engine& engine, const Config& config,
                                       ApiRequest& out);

// What the engine's failure looks like to a client; the details belong in the log.
ApiError engine_error(const Status& status);

// {"text","usage","finish_reason","model"}
std::string answer_body(const GenerateResult& result, size_t prompt_tokens, const std::string& model);
// Server-sent events, each complete with its empty line: {"text"}, the last with finish_reason and usage and "[DONE]".
std::string text_event(const std::string& text);
std::string last_events(const GenerateResult& result, size_t prompt_tokens, const std::string& model);
std::string error_event(const ApiError& error);

}  // namespace moehost

// Loads the committed TINY model under any device map, with the fake devices beside the installed plugins.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/config/config.h"
#include "core/engine/engine.h"

namespace moehost::testing_support {

inline const char* kTiny = MOEHOST_SOURCE_DIR "/tests/data/tiny.gguf";
// Greedy decoding continues this everywhere the same: "The capital of France is" as the tokenizer of TINY spells it.
inline const char* kPrompt = "The capital of France is";

inline Config tiny_config(const std::string& dense, const std::string& experts) {
  ConfigResult parsed = load_config({{},
                                     {},
                                     {{"model", kTiny},
                                      {"device_map.non_expert_layers", dense},
                                      {"device_map.expert_layers", experts},
                                      {"context.kv_dtype", "f32"}}});
  EXPECT_TRUE(parsed.errors.empty()) << (parsed.errors.empty() ? "" : parsed.errors[0]);
  return parsed.config;
}

inline EngineOptions test_options() {
  EngineOptions options;
  options.plugin_folder = MOEHOST_PLUGIN_DIR;
  options.extra_plugin_folders = {MOEHOST_FAKE_DIR};
  options.step_timeout_s = 60;
  return options;
}

inline std::unique_ptr<Engine> load_or_fail(const Config& config, const EngineOptions& options = test_options()) {
  auto engine = Engine::load(config, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *std::move(engine) : nullptr;
}

inline GenerateRequest greedy(const Engine& engine, uint32_t tokens, const std::string& prompt = kPrompt) {
  GenerateRequest request;
  request.prompt = engine.tokenizer()->encode(prompt);
  request.max_tokens = tokens;
  request.sampling.temperature = 0;
  request.ignore_end = true;
  return request;
}

}  // namespace moehost::testing_support

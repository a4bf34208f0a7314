// Flags are spelled as configuration paths and handed to the config floor, which knows all rules and writes all errors.
#include "apps/moehost/config_options.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>

extern char** environ;

namespace moehost {
namespace {

namespace fs = std::filesystem;

// Flags that are another spelling of a configuration path. The value of a `text` one is taken as it is, not as YAML: a
// host may be "::", and a file's name anything.
struct Flag {
  const char* option;
  const char* path;
  bool text;
};
constexpr Flag kFlags[] = {{"model", "model", true},
                           {"device", "device_map.non_expert_layers", false},
                           {"moe-device", "device_map.expert_layers", false},
                           {"host", "server.host", true},
                           {"port", "server.port", false}};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

std::vector<std::pair<std::string, std::string>> moehost_environment() {
  std::vector<std::pair<std::string, std::string>> out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("MOEHOST_") || equals == std::string_view::npos) continue;
    out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace

std::vector<OptionSpec> config_options() {
  return {{"config", 'c', "FILE", "YAML or JSON configuration; of several the later wins", true},
          {"model", 0, "FILE", "model file: the same as the argument"},
          {"device", 0, "DEVICE", "where all but the experts goes: cpu, cuda:1, or shares {'cuda:0': 1, 'cuda:1': 1}"},
          {"moe-device", 0, "DEVICE", "where the experts go: cpu, or shares {'cuda': 1, 'cpu': 19}"},
          {"set", 0, "KEY=VALUE", "one configuration value: device_map.kv_cache=cpu", true}};
}

std::vector<OptionSpec> address_options() {
  return {{"host", 0, "ADDRESS", "address to listen on (127.0.0.1)"}, {"port", 0, "PORT", "port to listen on (8080)"}};
}

std::vector<OptionSpec> operator+(std::vector<OptionSpec> a, const std::vector<OptionSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Result<ConfigResult> read_config(const CommandLine& line) {
  ConfigSources sources;
  sources.files = line.all("config");
  sources.environment = moehost_environment();
  if (!line.positional().empty()) {
    if (line.has("model")) return fail(Code::kUsage, "the model is named twice: as argument and with --model");
    sources.sets.emplace_back("model", quoted(line.positional().front()));
  }
  for (const Flag& flag : kFlags)
    if (const auto value = line.text(flag.option))
      sources.sets.emplace_back(flag.path, flag.text ? quoted(*value) : *value);
  for (const std::string& set : line.all("set")) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Code::kUsage, "--set is '", set, "': KEY=VALUE is expected, as in device_map.kv_cache=cpu");
    sources.sets.emplace_back(set.substr(0, equals), set.substr(equals + 1));
  }
  return load_config(sources);
}

Status report_errors(const ConfigResult& result) {
  for (const std::string& error : result.errors) std::cerr << error << (error.ends_with('\n') ? "" : "\n");
  if (result.errors.empty()) return {};
  return fail(Code::kBadConfig, result.errors.size(), result.errors.size() == 1 ? " error" : " errors",
              " in the configuration");
}

Result<Config> read_valid_config(const CommandLine& line) {
  MOEHOST_ASSIGN(ConfigResult result, read_config(line));
  MOEHOST_RETURN_IF_ERROR(report_errors(result));
  return std::move(result.config);
}

Result<Config> read_model_config(const CommandLine& line) {
  MOEHOST_ASSIGN(Config config, read_valid_config(line));
  if (config.model.empty())
    return fail(Code::kUsage, "no model: name a GGUF file as argument, with --model, or as 'model:' in a config");
  return config;
}

std::string plugin_folder(const Config& config) {
  if (config.plugin_folder) return *config.plugin_folder;
  const std::string usual = default_plugin_folder();
  std::error_code error;
  if (fs::is_directory(usual, error)) return usual;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = (program.parent_path() / MOEHOST_INSTALLED_PLUGINS).lexically_normal();
  return !error && fs::is_directory(installed, error) ? installed.string() : usual;
}

}  // namespace moehost

// Plugins, table, progress, in the order in which the engine comes to them.
#include "apps/moehost/load.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "apps/moehost/config_options.h"
#include "apps/moehost/start_view.h"
#include "core/base/log.h"

namespace moehost {
namespace {

const std::vector<std::string> kStyles = {"auto", "plain", "ndjson", "none"};    // order of ProgressStyle
const std::vector<std::string> kLevels = {"error", "warning", "info", "debug"};  // order of log::Level

size_t index_of(const std::vector<std::string>& words, const std::string& word) {
  return static_cast<size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

void show_plugins(const Config& config) {
  const auto registry = Registry::discover({.folder = plugin_folder(config), .allowed = config.plugins});
  if (registry.ok()) std::cerr << plugin_lines((*registry)->plugins());
}

}  // namespace

std::vector<OptionSpec> load_options() {
  return {{"progress", 0, "STYLE", "loading as auto (a bar on a terminal, else lines), plain, ndjson or none"},
          {"log", 0, "LEVEL", "error, warning, info or debug (or MOEHOST_LOG)"}};
}

Result<std::unique_ptr<Engine>> load_engine(const CommandLine& line, const Config& config, const LoadView& view) {
  MOEHOST_ASSIGN(const std::string style, line.word("progress", kStyles, view.full ? "auto" : "none"));
  const char* environment = std::getenv("MOEHOST_LOG");
  MOEHOST_ASSIGN(const std::string level, line.word("log", kLevels,
                                                    environment ? environment
                                                    : view.full ? "info"
                                                                : "warning"));
  log::set_level(static_cast<log::Level>(index_of(kLevels, level)));
  ProgressView progress(static_cast<ProgressStyle>(index_of(kStyles, style)));
  if (view.full) show_plugins(config);
  EngineOptions options;
  options.plugin_folder = plugin_folder(config);
  options.cancel = view.cancel;
  if (view.full) options.on_plan = [](const Plan& plan) { std::cerr << plan.model << "\n" << allocation_table(plan); };
  options.on_progress = [&](const LoadProgress& now) {
    progress.show(now);
    if (view.on_progress && now.bytes_total)
      view.on_progress(static_cast<double>(now.bytes_done) / static_cast<double>(now.bytes_total));
  };
  return Engine::load(config, options);
}

}  // namespace moehost

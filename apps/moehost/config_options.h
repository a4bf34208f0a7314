// The options that every command shares which knows a model, and the Config they make. Floor 6.
#pragma once
#include <string>
#include <vector>

#include "apps/moehost/command_line.h"
#include "core/config/config.h"
#include "core/engine/engine.h"

namespace moehost {

// --config, --model, --set, --device, --moe-device.
std::vector<OptionSpec> config_options();
// --host, --port.
std::vector<OptionSpec> address_options();
// a then b.
std::vector<OptionSpec> operator+(std::vector<OptionSpec> a, const std::vector<OptionSpec>& b);

// Files, environment and flags of this call, in one Config. kUsage for flags that cannot be meant; all that is wrong
// with the configuration itself is in the result's errors.
Result<ConfigResult> read_config(const CommandLine& line);
// Prints every error to standard error; the Status (kBadConfig) counts them.
Status report_errors(const ConfigResult& result);
// read_config and report_errors.
Result<Config> read_valid_config(const CommandLine& line);
// The same, and a model must be named (kUsage).
Result<Config> read_model_config(const CommandLine& line);

// Where plugins are looked for: the config's folder, MOEHOST_PLUGIN_DIR, beside the build's bin, or where
// `cmake --install` put them.
std::string plugin_folder(const Config& config);

}  // namespace moehost

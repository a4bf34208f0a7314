// load_config with the way to files left open, so that tests and the fuzzer bring their own. Floor 2.
#pragma once
#include <functional>
#include <string>

#include "core/base/status.h"
#include "core/config/config.h"

namespace moehost {

// The content of the file at a path, or why there is none (the message names the path).
using FileReader = std::function<Result<std::string>(const std::string& path)>;

ConfigResult load_config(const ConfigSources& sources, const FileReader& read_file);

}  // namespace moehost

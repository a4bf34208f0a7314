// Manifests: what a plugin says about itself before it is loaded. Floor 3, internal to core/backend.
#pragma once
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace moehost {

// Reads <folder>/<name>.json and looks for <folder>/<name>.so beside it. Never fails: reason is empty when this machine
// and this core can use the plugin, and else says what is in the way (malformed, outside the folder, ABI, CPU feature).
PluginInfo read_manifest(const std::string& folder, const std::string& name);

// True when processor and operating system both have the feature ("avx2", "avx512vnni").
// known: set to whether the name is known at all.
bool has_cpu_feature(std::string_view name, bool* known);

}  // namespace moehost

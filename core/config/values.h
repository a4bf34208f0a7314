// Readers of single values: a node becomes a typed value, or an error with a place. Floor 2.
//
// Each takes the limits from reading.entry, and returns nothing after it recorded why.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/schema.h"

namespace moehost {

std::optional<uint64_t> read_whole(const Node& node, Reading& reading);
std::optional<double> read_real(const Node& node, Reading& reading);
// The index of the name in the entry's choices.
std::optional<size_t> read_choice(const Node& node, Reading& reading);
// Text that is not empty and holds no control character. Plain `no`, `010` or `.nan` are text as written.
std::optional<std::string> read_text(const Node& node, Reading& reading);
// As text; a relative path of a file source is resolved against the folder of that file.
std::optional<std::string> read_path(const Node& node, Reading& reading);
// A list of different plugin ids.
std::optional<std::vector<std::string>> read_names(const Node& node, Reading& reading);
std::optional<DeviceName> read_device(const Node& node, Reading& reading);
// A device, or a map of different devices to weights.
std::optional<Shares> read_shares(const Node& node, Reading& reading);
std::optional<std::vector<ExpertRule>> read_rules(const Node& node, Reading& reading);
// Sets config.device_options: a map of devices to maps of option to text. Options add to those of earlier sources.
void read_options(const Node& node, Reading& reading);

}  // namespace moehost

// moehost devices: the plugins found, and why one was passed over; their devices.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/start_view.h"
#include "core/base/log.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

constexpr uint32_t kAbiMajor = 1;  // the major version is in the name of the entry, moehost_plugin_v1

std::string abi_text(const PluginInfo& plugin) {
  return plugin.abi_lo == plugin.abi_hi ? cat(kAbiMajor, ".", plugin.abi_lo)
                                        : cat(kAbiMajor, ".", plugin.abi_lo, "-", kAbiMajor, ".", plugin.abi_hi);
}

std::vector<std::string> feature_names(uint32_t features) {
  constexpr std::pair<uint32_t, const char*> kNames[] = {{MH_DEVICE_WAITS, "waits"},
                                                         {MH_DEVICE_SIGNALS, "signals"},
                                                         {MH_DEVICE_ZERO_COPY, "zero_copy"},
                                                         {MH_DEVICE_HOST_MEMORY, "host_memory"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames)
    if (features & bit) names.push_back(name);
  return names;
}

void print_json(const std::vector<PluginInfo>& plugins, const std::vector<DeviceListing>& devices) {
  nlohmann::ordered_json out = {{"plugins", nlohmann::json::array()}, {"devices", nlohmann::json::array()}};
  for (const PluginInfo& plugin : plugins)
    out["plugins"].push_back(nlohmann::ordered_json{{"id", plugin.id},
                                                    {"path", plugin.path},
                                                    {"abi", abi_text(plugin)},
                                                    {"taken", plugin.taken},
                                                    {"reason", plugin.reason}});
  for (const DeviceListing& device : devices)
    out["devices"].push_back(nlohmann::ordered_json{{"name", device.name},
                                                    {"plugin", device.plugin},
                                                    {"memory_bytes", device.info.memory_bytes},
                                                    {"features", feature_names(device.info.features)}});
  std::cout << out.dump(2) << "\n";
}

void print_text(const std::string& folder, const std::vector<PluginInfo>& plugins,
                const std::vector<DeviceListing>& devices) {
  std::cout << "plugins in " << folder << "\n" << plugin_lines(plugins) << "devices\n";
  for (const DeviceListing& device : devices) {
    std::cout << "  " << device.name << "  " << printable(device.info.name) << ", "
              << format_bytes(device.info.memory_bytes) << ", " << device.plugin;
    for (const std::string& feature : feature_names(device.info.features)) std::cout << ", " << feature;
    std::cout << "\n";
  }
}

Status devices(const CommandLine& line) {
  MOEHOST_ASSIGN(const Config config, read_valid_config(line));
  log::set_level(log::Level::kWarning);
  const std::string folder = plugin_folder(config);
  MOEHOST_ASSIGN(const auto registry, Registry::discover({.folder = folder, .allowed = config.plugins}));
  MOEHOST_ASSIGN(const auto listing, registry->devices());
  if (line.has("json")) {
    print_json(registry->plugins(), listing);
  } else {
    print_text(folder, registry->plugins(), listing);
  }
  return {};
}

}  // namespace

Command devices_command() {
  return {"devices",
          "",
          "The plugins found, and why one was passed over; their devices with memory and features.",
          0,
          0,
          std::vector<OptionSpec>{{"json", 0, "", "print {\"plugins\":[...],\"devices\":[...]}"}} + config_options(),
          &devices};
}

}  // namespace moehost

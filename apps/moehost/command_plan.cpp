// moehost plan: the placement table without reading weights.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/start_view.h"
#include "core/base/log.h"

namespace moehost {
namespace {

void print_json(const Plan& plan) {
  nlohmann::ordered_json out = {{"fits", plan.fits}, {"devices", nlohmann::json::array()}};
  for (const DevicePlan& device : plan.devices)
    out["devices"].push_back(nlohmann::ordered_json{{"name", device.name},
                                                    {"layers", device.layers},
                                                    {"experts", device.experts},
                                                    {"weight_bytes", device.weight_bytes},
                                                    {"kv_bytes", device.kv_bytes},
                                                    {"workspace_bytes", device.workspace_bytes},
                                                    {"free_bytes", device.free_bytes}});
  std::cout << out.dump(2) << "\n";
}

Status plan(const CommandLine& line) {
  MOEHOST_ASSIGN(const Config config, read_model_config(line));
  log::set_level(log::Level::kWarning);
  MOEHOST_ASSIGN(const Plan plan, Engine::plan(config, {.plugin_folder = plugin_folder(config)}));
  if (line.has("json")) {
    print_json(plan);
  } else {
    std::cout << plan.model << "\n" << allocation_table(plan);
  }
  if (plan.fits) return {};
  std::string problems;
  for (const std::string& problem : plan.problems) problems += cat(problems.empty() ? "" : "; ", problem);
  return fail(Code::kNoResource, "the model does not fit: ", problems);
}

}  // namespace

Command plan_command() {
  return {
      "plan",
      "[MODEL]",
      "The placement table without reading weights: per device layers, experts and bytes; exit code 71 when it does "
      "not fit.",
      0,
      1,
      std::vector<OptionSpec>{{"json", 0, "", "print {\"fits\",\"devices\":[...]}"}} + config_options(),
      &plan};
}

}  // namespace moehost

// Loading a model with the start-up view, for the commands that run one. Floor 6.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "apps/moehost/command_line.h"
#include "core/engine/engine.h"

namespace moehost {

// --progress, --log.
std::vector<OptionSpec> load_options();

struct LoadView {
  bool full = false;                                 // plugins and the allocation table; else only progress
  const std::atomic<bool>* cancel = nullptr;         // must outlive the engine
  std::function<void(double fraction)> on_progress;  // besides what is shown; from a thread of the engine
};
Result<std::unique_ptr<Engine>> load_engine(const CommandLine& line, const Config& config, const LoadView& view);

}  // namespace moehost

// What an operator sees while a model is loaded, on standard error. Floor 6.
#pragma once
#include <chrono>
#include <string>

#include "core/engine/engine.h"

namespace moehost {

// One row a device: layers, experts, weights, KV, workspace, free; then host memory, notes and problems.
std::string allocation_table(const Plan& plan);
// One line a plugin: taken or passed over, and why.
std::string plugin_lines(const std::vector<PluginInfo>& plugins);

// kAuto: a bar on a terminal, else a line now and then.
enum class ProgressStyle { kAuto, kPlain, kNdjson, kNone };

// Shows the progress of loading. One thread at a time.
class ProgressView {
 public:
  explicit ProgressView(ProgressStyle style);
  void show(const LoadProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  ProgressStyle style_;
  bool terminal_;
  Clock::time_point last_;
};

}  // namespace moehost

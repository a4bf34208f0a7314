// The allocation table and the progress bar.
#include "apps/moehost/start_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/text_format.h"

namespace moehost {
namespace {

using Row = std::vector<std::string>;

// Columns that hold text are aligned left, numbers right.
std::string aligned(const std::vector<Row>& rows, size_t text_columns) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += (i < text_columns ? row[i] + padding : padding + row[i]) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double gigabytes_per_second(const LoadProgress& p) {
  return p.seconds > 0 ? static_cast<double>(p.bytes_done) / p.seconds / 1e9 : 0;
}
double seconds_left(const LoadProgress& p) {
  return p.bytes_done
             ? p.seconds / static_cast<double>(p.bytes_done) * static_cast<double>(p.bytes_total - p.bytes_done)
             : 0;
}
double percent(const LoadProgress& p) {
  return p.bytes_total ? 100.0 * static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total) : 100.0;
}

std::string figures(const LoadProgress& p) {
  const std::string text = cat(fixed(percent(p), 0), " %  ", format_bytes(p.bytes_done), " of ",
                               format_bytes(p.bytes_total), "  ", fixed(gigabytes_per_second(p), 2), " GB/s");
  if (p.bytes_done == p.bytes_total) return cat(text, "  ", fixed(p.seconds, 1), " s");
  return percent(p) < 1 ? text : cat(text, "  ", fixed(seconds_left(p), 0), " s left");  // before, it is a guess
}

size_t terminal_columns() {
  struct winsize size {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string bar_line(const LoadProgress& p) {
  const std::string text = figures(p);
  const size_t columns = terminal_columns();
  const size_t taken = text.size() + 14;
  const size_t width = columns > taken ? std::min<size_t>(columns - taken, 40) : 0;
  const auto filled = static_cast<size_t>(percent(p) / 100.0 * static_cast<double>(width));
  std::string line = "\rloading ";
  if (width > 0) line += cat("[", std::string(filled, '#'), std::string(width - filled, '.'), "] ");
  return line + text + "\x1b[K";
}

}  // namespace

std::string allocation_table(const Plan& plan) {
  std::vector<Row> rows = {
      {"device", "plugin", "layers", "experts of", "weights", "KV cache", "workspace", "free", ""}};
  for (const DevicePlan& device : plan.devices)
    rows.push_back({device.name, device.plugin, device.layers.empty() ? "-" : device.layers,
                    device.experts.empty() ? "-" : device.experts, format_bytes(device.weight_bytes),
                    format_bytes(device.kv_bytes), format_bytes(device.workspace_bytes),
                    format_bytes(device.free_bytes), device.fits ? "" : "DOES NOT FIT"});
  std::string out = aligned(rows, 4);
  out += cat("  context ", plan.max_tokens, " tokens, KV cache ", plan.kv_dtype, ", prefill ", plan.prefill_chunk,
             " tokens a step, ", format_bytes(plan.exchange_bytes), " of host memory between devices (",
             format_bytes(plan.host_free_bytes), " free)\n");
  for (const std::string& note : plan.notes) out += cat("  note: ", note, "\n");
  for (const std::string& problem : plan.problems) out += cat("  problem: ", problem, "\n");
  return out;
}

std::string plugin_lines(const std::vector<PluginInfo>& plugins) {
  std::vector<Row> rows;
  for (const PluginInfo& plugin : plugins)
    rows.push_back({plugin.taken ? "plugin taken:" : "passed over:", plugin.id, plugin.reason});
  return rows.empty() ? "" : aligned(rows, 3);
}

ProgressView::ProgressView(ProgressStyle style) : style_(style), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressView::show(const LoadProgress& progress) {
  const bool end = progress.bytes_done >= progress.bytes_total;
  const bool bar = style_ == ProgressStyle::kAuto && terminal_;
  const auto now = Clock::now();
  // A bar moves ten times a second; lines in a log come every two seconds.
  if (style_ == ProgressStyle::kNone || (!end && now - last_ < std::chrono::milliseconds(bar ? 100 : 2000))) return;
  last_ = now;
  if (style_ == ProgressStyle::kNdjson) {
    const nlohmann::json line = {{"event", "loading"},
                                 {"bytes_done", progress.bytes_done},
                                 {"bytes_total", progress.bytes_total},
                                 {"seconds", progress.seconds},
                                 {"gb_per_s", gigabytes_per_second(progress)},
                                 {"seconds_left", seconds_left(progress)}};
    std::cerr << line.dump() + "\n";
  } else if (bar) {
    std::cerr << bar_line(progress) << (end ? "\n" : "") << std::flush;
  } else {
    std::cerr << "loading " + figures(progress) + "\n";
  }
}

}  // namespace moehost

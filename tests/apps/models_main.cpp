// moehost-check-models: every model with known answers under every plugin this machine can run, a row each.
//
//   moehost-check-models [FOLDER [PLUGIN-FOLDER]]    exit code 0: all within bounds, 1: not, 77: no such models here
//
// Logits of every position against the original implementation's, in units of their standard deviation, and the greedy
// continuation as far as the stored margins exceed twice the error.
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "core/base/log.h"
#include "core/engine/engine.h"
#include "core/format/safetensors.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;

constexpr int kSkipped = 77;  // what CTest is told to read as "skipped"
// Float32 noise of one scalar implementation, and of vectorised ones that sum in another order (all formats are
// computed with f32 activations).
constexpr double kReferenceBound = 1e-4, kVectorBound = 1e-3;

struct Case {
  std::string model, file, expected;
};

std::vector<Case> cases(const fs::path& folder) {
  std::vector<Case> out;
  for (const char* model : {"llama", "mixtral", "qwen3_moe", "qwen3_moe_tied", "deepseek_v2", "deepseek_v2_lite",
                            "deepseek_v3", "deepseek_v3_mtp", "glm4_moe_lite"})
    for (const char* expected : {"expected.safetensors", "expected_long.safetensors"})
      if (fs::exists(folder / model / expected)) out.push_back({model, "model.gguf", expected});
  for (const char* format : {"Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
    out.push_back({"qwen3_moe_256", cat("model-", format, ".gguf"), cat("expected-", format, ".safetensors")});
  return out;
}

struct Difference {
  double largest = 0, rms = 0, deviation = 0;
};  // deviation: standard deviation of `expected`

// NaN anywhere makes `largest` NaN, which no bound admits.
Difference compare(std::span<const float> expected, std::span<const float> got) {
  double sum = 0, squares = 0, error_squares = 0;
  Difference d;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= d.largest)) d.largest = error;
    error_squares += error * error;
    sum += expected[i];
    squares += static_cast<double>(expected[i]) * expected[i];
  }
  const auto n = static_cast<double>(expected.size());
  d.deviation = std::sqrt(squares / n - sum / n * (sum / n));
  d.rms = std::sqrt(error_squares / n);
  return d;
}

// The greedy continuation equals the stored one up to the first step whose margin is within twice the error.
Result<std::string> check_greedy(Engine& engine, const SafetensorsFile& answers, const std::vector<TokenId>& prompt,
                                 double error) {
  if (!answers.find("greedy_ids")) return std::string("-");
  MOEHOST_ASSIGN(const auto ids, answers.ints("greedy_ids"));
  MOEHOST_ASSIGN(const auto margins, answers.floats("greedy_margin"));
  GenerateRequest request{.prompt = prompt, .max_tokens = static_cast<uint32_t>(ids.size()), .ignore_end = true};
  request.sampling.temperature = 0;
  MOEHOST_ASSIGN(const GenerateResult result, engine.generate(request));
  if (result.ids.size() != ids.size()) return fail(Code::kInternal, result.ids.size(), " greedy ids came");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!(margins[i] > 2 * error)) return cat(i, " of ", ids.size(), " (margin ", margins[i], ")");
    if (result.ids[i] != ids[i]) return fail(Code::kInternal, "greedy id ", i, " is ", result.ids[i], " not ", ids[i]);
  }
  return cat(ids.size(), " of ", ids.size());
}

// Prints the row; true when it is within its bounds.
Result<bool> check(const fs::path& folder, const Case& c, const PluginInfo& plugin, const std::string& plugin_folder) {
  const std::string& kind = plugin.kinds.front();
  const std::string model = (folder / c.model / c.file).string();
  const ConfigResult parsed = load_config({.sets = {{"model", model},
                                                    {"device_map.non_expert_layers", kind},
                                                    {"device_map.expert_layers", kind},
                                                    {"context.kv_dtype", "f32"}}});
  if (!parsed.errors.empty()) return fail(Code::kInternal, parsed.errors.front());
  Config config = parsed.config;
  config.plugins = {plugin.id};
  MOEHOST_ASSIGN(const auto engine, Engine::load(config, {.plugin_folder = plugin_folder}));
  MOEHOST_ASSIGN(const SafetensorsFile answers, SafetensorsFile::open((folder / c.model / c.expected).string()));
  MOEHOST_ASSIGN(const auto ids, answers.ints("input_ids"));
  const std::vector<TokenId> prompt(ids.begin(), ids.end());
  MOEHOST_ASSIGN(const auto expected, answers.floats(answers.find("logits") ? "logits" : "logits_last8"));
  MOEHOST_ASSIGN(const auto logits, engine->logits(prompt));
  if (logits.size() < expected.size()) return fail(Code::kInternal, logits.size(), " logits for ", expected.size());
  const auto last = std::span(logits).last(expected.size());

  const Difference d = compare(expected, last);
  const double bound = kind == "reference" ? kReferenceBound : kVectorBound;
  const double largest = d.largest / d.deviation;
  const auto greedy = check_greedy(*engine, answers, prompt, d.largest);
  const bool good = largest <= bound && greedy.ok();
  std::printf("%-17s %-16s %-26s %-20s %9.2e %9.2e %7.0e  %-28s %s\n", c.model.c_str(), c.file.c_str(),
              c.expected.c_str(), plugin.id.c_str(), largest, d.rms / d.deviation, bound,
              greedy.ok() ? greedy->c_str() : greedy.status().message().c_str(), good ? "ok" : "FAIL");
  return good;
}

// Plugins that would be taken if no other were there: those whose instruction set this machine has.
std::vector<PluginInfo> runnable_plugins(const std::string& folder) {
  std::vector<PluginInfo> out;
  const auto all = Registry::discover({.folder = folder});
  if (!all.ok()) return out;
  for (const PluginInfo& found : (*all)->plugins()) {
    const auto alone = Registry::discover({.folder = folder, .allowed = {found.id}});
    if (!alone.ok()) continue;
    for (const PluginInfo& plugin : (*alone)->plugins())
      if (plugin.id == found.id && plugin.taken && !plugin.kinds.empty()) out.push_back(plugin);
  }
  return out;
}

int run(const std::string& folder, const std::string& plugin_folder) {
  if (!fs::is_directory(folder)) {
    std::printf("skipped: no models with known answers in %s\n", folder.c_str());
    return kSkipped;
  }
  log::set_level(log::Level::kWarning);
  const auto plugins = runnable_plugins(plugin_folder);
  std::printf("%-17s %-16s %-26s %-20s %9s %9s %7s  %s\n", "model", "file", "against", "plugin", "max/sd", "rms/sd",
              "bound", "greedy ids equal");
  size_t rows = 0, failures = 0;
  for (const Case& c : cases(folder))
    for (const PluginInfo& plugin : plugins) {
      const auto good = check(folder, c, plugin, plugin_folder);
      if (!good.ok())
        std::printf("%-17s %-16s %-26s %-20s FAIL: %s\n", c.model.c_str(), c.file.c_str(), c.expected.c_str(),
                    plugin.id.c_str(), good.status().message().c_str());
      ++rows;
      failures += !good.ok() || !*good;
    }
  std::printf("%zu rows, %zu failed\n", rows, failures);
  return rows > 0 && failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moehost

int main(int count, char** values) {
  return moehost::run(count > 1 ? values[1] : MOEHOST_SHARED_DIR "/data/models",
                      count > 2 ? values[2] : MOEHOST_PLUGIN_DIR);
}

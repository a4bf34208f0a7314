// moehost-conform: does a backend plugin keep the promises of the device ABI?
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "case.h"
#include "plugin.h"
#include "runner.h"

namespace conform {
namespace {

constexpr int kExitUsage = 2, kExitCannotRun = 77;  // 77: what CTest and automake read as "skipped"

constexpr const char* kHelp =
    R"(usage: moehost-conform PLUGIN.so [options]
Checks a device of the plugin against the device ABI. Every case runs in a process of its own.

  --group G       only this group: abi, numbers, memory, async, hot or life; may be given more than once
  --case NAME     only this case, "group/name", in this process (for a debugger)
  --device N      index of the device; default 0
  --option K=V    option of the device, such as threads=4; may be given more than once
  --seed N        of the random data; default 1
  --json FILE     writes all results
  --jobs N        processes at the same time; default: one a processor
  --timeout S     seconds that one case may take; default 60
  --quick         fewer repeats: rows up to 64 instead of 512, replays 1000 instead of 10000, opens 50 instead of
                  1000, rounds of the asynchronous cases a fifth; the cases themselves are all there
  --verbose       what the plugin logs, what was measured, why cases were skipped
  --list          names of the cases, none is run
  --help

What a plugin says it does not support (MH_UNSUPPORTED with a text) is skipped and counted. Results are compared with
mathematics in f64. The tolerance comes from f32 arithmetic and the length of the sum; where weights are in a block
format, the rounding of activations to 8 bit is allowed for, too.

exit status: 0 nothing failed; 1 something failed; 2 wrong usage; 77 this processor lacks what the manifest asks for.
)";

struct Arguments {
  Context context;
  RunOptions run;
  std::vector<std::string> groups;
  std::string only_case, json_path;
  bool list = false;
};

template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void usage(const std::string& problem) {
  std::fprintf(stderr, "moehost-conform: %s\nmoehost-conform --help explains\n", problem.c_str());
  std::exit(kExitUsage);
}

template <class T>
T number_from(T least, const std::string& option, const std::string& text) {
  const auto value = number<T>(text);
  if (!value || *value < least) usage(cat(option, " ", text, ": a number from ", least, " on is expected"));
  return *value;
}

std::pair<std::string, std::string> key_and_value(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) usage("--option " + text + ": KEY=VALUE is expected");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Arguments parse(int argc, char** argv) {
  Arguments args;
  args.run.jobs = std::max(1U, std::thread::hardware_concurrency());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) usage(word + " needs a value");
      return argv[i];
    };
    if (word == "--help")
      std::fputs(kHelp, stdout), std::exit(0);
    else if (word == "--group")
      args.groups.push_back(value());
    else if (word == "--case")
      args.only_case = value();
    else if (word == "--device")
      args.context.device_index = number_from<uint32_t>(0, word, value());
    else if (word == "--option")
      args.context.device_options.push_back(key_and_value(value()));
    else if (word == "--seed")
      args.context.seed = number_from<uint64_t>(0, word, value());
    else if (word == "--json")
      args.json_path = value();
    else if (word == "--jobs")
      args.run.jobs = number_from<uint32_t>(1, word, value());
    else if (word == "--timeout")
      args.run.timeout_s = number_from<double>(1, word, value());
    else if (word == "--quick")
      args.context.quick = true;
    else if (word == "--verbose")
      args.context.verbose = true;
    else if (word == "--list")
      args.list = true;
    else if (word.rfind("--", 0) == 0)
      usage("unknown option " + word);
    else if (args.context.plugin_path.empty())
      args.context.plugin_path = word;
    else
      usage("more than one plugin: " + word);
  }
  if (args.list) return args;
  if (args.context.plugin_path.empty()) usage("no plugin given");
  if (!std::filesystem::is_regular_file(args.context.plugin_path)) usage("no file " + args.context.plugin_path);
  return args;
}

std::vector<Case> chosen_cases(const Arguments& args) {
  std::vector<Case> all;
  for (auto part : {abi_cases(), numbers_cases(), memory_cases(), async_cases(), hot_cases(), life_cases()})
    all.insert(all.end(), part.begin(), part.end());
  for (const std::string& group : args.groups)
    if (std::none_of(all.begin(), all.end(), [&](const Case& c) { return c.group == group; }))
      usage("unknown group " + group);
  std::erase_if(all, [&](const Case& c) {
    if (!args.only_case.empty()) return c.group + "/" + c.name != args.only_case;
    return !args.groups.empty() && std::find(args.groups.begin(), args.groups.end(), c.group) == args.groups.end();
  });
  if (all.empty()) usage("unknown case " + args.only_case + "; --list prints them");
  return all;
}

void print_verdict(Verdict verdict, const std::string& text) {
  static const char* const kNames[] = {"note", "skipped", "FAILED"};
  std::fprintf(stderr, "%s: %s\n", kNames[static_cast<size_t>(verdict)], text.c_str());
}

// One case in this process. Ends it.
[[noreturn]] void run_here(const Case& one, const Context& context) {
  one.run(context);
  std::fputs("passed\n", stderr);
  std::exit(0);
}

int main_of(int argc, char** argv) {
  set_reporter(print_verdict);
  const Arguments args = parse(argc, argv);
  const std::vector<Case> cases = chosen_cases(args);
  if (args.list) {
    for (const Case& c : cases) std::printf("%s/%s\n", c.group.c_str(), c.name.c_str());
    return 0;
  }
  std::string wrong;
  if (const auto manifest = read_manifest(args.context.plugin_path, &wrong)) {
    std::string missing;
    for (const auto& feature : missing_cpu_features(manifest->cpu_features)) missing += " " + feature;
    if (!missing.empty()) {
      std::printf("cannot run here: %s needs what this processor lacks:%s\n", args.context.plugin_path.c_str(),
                  missing.c_str());
      return kExitCannotRun;
    }
  }
  if (!args.only_case.empty()) run_here(cases.front(), args.context);
  std::printf("%s, seed %llu%s\n", args.context.plugin_path.c_str(), static_cast<unsigned long long>(args.context.seed),
              args.context.quick ? ", quick" : "");
  std::fflush(stdout);
  const auto results = run_cases(cases, args.context, args.run);
  std::fputs(table(results, args.context, argv[0]).c_str(), stdout);
  if (!args.json_path.empty()) {
    std::ofstream out(args.json_path);
    out << json(results, args.context);
    if (!out.flush()) usage("cannot write " + args.json_path);
  }
  return std::any_of(results.begin(), results.end(), [](const CaseResult& r) { return r.verdict == Verdict::kFailed; });
}

}  // namespace
}  // namespace conform

int main(int argc, char** argv) { return conform::main_of(argc, argv); }

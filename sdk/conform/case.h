// A case of the conformance suite, and how it ends.
//
// A case runs in a process of its own. The first fail or skip ends that process at once: nothing is unwound, because
// after a broken promise a free may hang. What it said goes to the runner over a pipe.
#pragma once
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace conform {

// What a case needs to know about the run.
struct Context {
  std::string plugin_path;
  uint32_t device_index = 0;
  std::vector<std::pair<std::string, std::string>> device_options;  // for every open
  uint64_t seed = 1;
  bool quick = false;
  bool verbose = false;  // print what the plugin logs
  // full, or the smaller number under --quick.
  uint32_t repeats(uint32_t full, uint32_t fewer) const { return quick ? fewer : full; }
};

struct Case {
  std::string group, name;  // "numbers", "linear/Q4_K/sliced"; "group/name" names a case on the command line
  std::function<void(const Context&)> run;
};

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

enum class Verdict { kPassed, kSkipped, kFailed };

// Where a case reports to; the runner sets it in the child. kPassed with a text is a note and returns.
void say(Verdict verdict, const std::string& text);
void set_reporter(std::function<void(Verdict, const std::string&)> reporter);

[[noreturn]] void end_case(Verdict verdict, const std::string& text);
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  end_case(Verdict::kFailed, cat(parts...));
}
template <class... Parts>
[[noreturn]] void skip(const Parts&... parts) {
  end_case(Verdict::kSkipped, cat(parts...));
}
template <class... Parts>
void note(const Parts&... parts) {
  say(Verdict::kPassed, cat(parts...));
}
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) fail(parts...);
}

std::vector<Case> abi_cases();
std::vector<Case> numbers_cases();
std::vector<Case> memory_cases();
std::vector<Case> async_cases();
std::vector<Case> hot_cases();
std::vector<Case> life_cases();

}  // namespace conform

// How a case ends its process.
#include "case.h"

#include <unistd.h>

namespace conform {
namespace {

std::function<void(Verdict, const std::string&)> g_reporter;  // one case a process

}  // namespace

void set_reporter(std::function<void(Verdict, const std::string&)> reporter) { g_reporter = std::move(reporter); }

void say(Verdict verdict, const std::string& text) { g_reporter(verdict, text); }

void end_case(Verdict verdict, const std::string& text) {
  say(verdict, text);
  _exit(verdict == Verdict::kFailed ? 1 : 0);
}

}  // namespace conform

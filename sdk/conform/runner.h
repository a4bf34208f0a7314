// Runs cases, each in a process of its own, and tells what came of them.
#pragma once
#include <string>
#include <vector>

#include "case.h"

namespace conform {

struct RunOptions {
  uint32_t jobs = 1;
  double timeout_s = 60;  // of one case
};

struct CaseResult {
  std::string name;  // "group/name"
  std::string group;
  Verdict verdict = Verdict::kFailed;
  std::string text;                // why skipped or failed
  std::vector<std::string> notes;  // measured by the case
  std::string output;              // the end of what the failed case wrote to stderr
  double seconds = 0;
};

// Results in the order of the cases.
std::vector<CaseResult> run_cases(const std::vector<Case>& cases, const Context& context, const RunOptions& options);

// A line a group, each failed case with its reason and the command that replays it, and what was measured.
std::string table(const std::vector<CaseResult>& results, const Context& context, const std::string& program);
std::string json(const std::vector<CaseResult>& results, const Context& context);

}  // namespace conform

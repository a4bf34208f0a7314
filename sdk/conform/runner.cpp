// Child processes: fork, a pipe for the verdict, a deadline, and a name for every way to die.
#include "runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <nlohmann/json.hpp>

namespace conform {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kOutputBytes = 3000;  // of a failed case's stderr that are kept

// What a child writes: a letter and a text that ends in NUL. kDone says that the case ran to its end.
constexpr char kNote = 'n', kSkip = 's', kFail = 'f', kDone = 'd';

struct Running {
  size_t index = 0;
  pid_t pid = 0;
  int verdict_fd = -1, stderr_fd = -1;
  Clock::time_point start;
  std::string received;
};

void write_record(int fd, char letter, const std::string& text) {
  const std::string record = letter + text + '\0';
  for (size_t at = 0; at < record.size();) {
    const ssize_t wrote = ::write(fd, record.data() + at, record.size() - at);
    if (wrote <= 0) return;
    at += static_cast<size_t>(wrote);
  }
}

[[noreturn]] void child(const Case& one, const Context& context, int verdict_fd, int stderr_fd) {
  if (!context.verbose) dup2(stderr_fd, STDERR_FILENO);
  set_reporter([verdict_fd](Verdict verdict, const std::string& text) {
    write_record(verdict_fd, verdict == Verdict::kFailed ? kFail : verdict == Verdict::kSkipped ? kSkip : kNote, text);
  });
  try {
    one.run(context);
  } catch (const std::exception& e) {
    fail("moehost-conform: ", e.what());
  }
  write_record(verdict_fd, kDone, "");
  _exit(0);
}

Running start(const Case& one, size_t index, const Context& context) {
  int ends[2];
  require(pipe2(ends, O_CLOEXEC) == 0, "moehost-conform: no pipe: ", std::strerror(errno));
  Running running{index, 0, ends[0], memfd_create("stderr", MFD_CLOEXEC), Clock::now(), {}};
  running.pid = fork();
  require(running.pid >= 0, "moehost-conform: no process: ", std::strerror(errno));
  if (running.pid == 0) child(one, context, ends[1], running.stderr_fd);
  close(ends[1]);
  return running;
}

std::string end_of(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END), from = std::max<off_t>(0, size - static_cast<off_t>(kOutputBytes));
  std::string text(static_cast<size_t>(size - from), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

void read_records(const std::string& received, CaseResult& result, bool& done) {
  for (size_t at = 0; at < received.size();) {
    const char letter = received[at];
    const std::string text = received.c_str() + at + 1;
    at += text.size() + 2;
    if (letter == kNote) result.notes.push_back(text);
    if (letter == kDone) done = true;
    if (letter != kSkip && letter != kFail) continue;
    result.verdict = letter == kSkip ? Verdict::kSkipped : Verdict::kFailed;
    result.text = text;
    done = true;
    return;  // the first one ends the case
  }
  if (done) result.verdict = Verdict::kPassed;
}

// Reaps the child. late: it was still running at its deadline, and is killed.
CaseResult finish(Running& running, const Case& one, bool late, double timeout_s) {
  CaseResult result;
  result.name = cat(one.group, "/", one.name), result.group = one.group;
  if (late) kill(running.pid, SIGKILL);
  int status = 0;
  waitpid(running.pid, &status, 0);
  result.seconds = std::chrono::duration<double>(Clock::now() - running.start).count();
  bool done = false;
  read_records(running.received, result, done);
  if (!done) {
    result.verdict = Verdict::kFailed;
    if (late)
      result.text = cat("hang: no answer in ", timeout_s, " s");
    else if (WIFSIGNALED(status))
      result.text = cat("crash: signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
    else
      result.text = cat("the process ended with status ", WEXITSTATUS(status), " in the middle of the case");
  }
  if (result.verdict == Verdict::kFailed) result.output = end_of(running.stderr_fd);
  close(running.verdict_fd), close(running.stderr_fd);
  return result;
}

// Reads what there is; true at the end of the pipe.
bool receive(Running& running) {
  char buffer[4096];
  const ssize_t got = read(running.verdict_fd, buffer, sizeof buffer);
  if (got > 0) running.received.append(buffer, static_cast<size_t>(got));
  return got <= 0;
}

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kPassed ? "passed" : verdict == Verdict::kSkipped ? "skipped" : "failed";
}

}  // namespace

std::vector<CaseResult> run_cases(const std::vector<Case>& cases, const Context& context, const RunOptions& options) {
  std::vector<CaseResult> results(cases.size());
  std::vector<Running> running;
  size_t next = 0;
  const auto timeout = std::chrono::duration<double>(options.timeout_s);
  while (next < cases.size() || !running.empty()) {
    while (next < cases.size() && running.size() < options.jobs) {
      running.push_back(start(cases[next], next, context));
      ++next;
    }
    std::vector<pollfd> polls;
    for (const Running& r : running) polls.push_back({r.verdict_fd, POLLIN, 0});
    poll(polls.data(), polls.size(), 100);
    for (size_t i = running.size(); i-- > 0;) {
      const bool ended = polls[i].revents != 0 && receive(running[i]);
      const bool late = !ended && Clock::now() - running[i].start > timeout;
      if (!ended && !late) continue;
      const size_t index = running[i].index;
      results[index] = finish(running[i], cases[index], late, options.timeout_s);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return results;
}

std::string table(const std::vector<CaseResult>& results, const Context& context, const std::string& program) {
  std::ostringstream out;
  out << std::left << std::setw(10) << "group" << std::right << std::setw(7) << "cases" << std::setw(8) << "passed"
      << std::setw(9) << "skipped" << std::setw(8) << "failed" << std::setw(10) << "seconds" << '\n';
  std::vector<std::string> groups;
  for (const CaseResult& r : results)
    if (std::find(groups.begin(), groups.end(), r.group) == groups.end()) groups.push_back(r.group);
  for (const std::string& group : groups) {
    size_t counts[3] = {};
    double seconds = 0;
    for (const CaseResult& r : results) {
      if (r.group != group) continue;
      ++counts[static_cast<size_t>(r.verdict)];
      seconds += r.seconds;
    }
    out << std::left << std::setw(10) << group << std::right << std::setw(7) << counts[0] + counts[1] + counts[2]
        << std::setw(8) << counts[0] << std::setw(9) << counts[1] << std::setw(8) << counts[2] << std::setw(10)
        << std::fixed << std::setprecision(1) << seconds << '\n';
  }
  for (const CaseResult& r : results)
    if (r.group == "hot" || context.verbose)
      for (const std::string& text : r.notes) out << "note    " << r.name << ": " << text << '\n';
  for (const CaseResult& r : results)
    if (r.verdict == Verdict::kSkipped && context.verbose) out << "skipped " << r.name << ": " << r.text << '\n';
  for (const CaseResult& r : results) {
    if (r.verdict != Verdict::kFailed) continue;
    out << "FAILED  " << r.name << ": " << r.text << "\n        replay: " << program << ' ' << context.plugin_path
        << " --case " << r.name << " --seed " << context.seed;
    if (context.device_index) out << " --device " << context.device_index;
    for (const auto& [key, value] : context.device_options) out << " --option " << key << '=' << value;
    out << (context.quick ? " --quick" : "") << '\n';
    if (!r.output.empty()) out << r.output << (r.output.back() == '\n' ? "" : "\n");
  }
  return out.str();
}

std::string json(const std::vector<CaseResult>& results, const Context& context) {
  nlohmann::json cases = nlohmann::json::array();
  for (const CaseResult& r : results)
    cases.push_back({{"name", r.name},
                     {"group", r.group},
                     {"verdict", verdict_name(r.verdict)},
                     {"reason", r.text},
                     {"notes", r.notes},
                     {"output", r.output},
                     {"seconds", r.seconds}});
  const nlohmann::json all = {{"plugin", context.plugin_path},
                              {"device", context.device_index},
                              {"seed", context.seed},
                              {"quick", context.quick},
                              {"cases", std::move(cases)}};
  // Texts come from a plugin: what is no UTF-8 is replaced.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

}  // namespace conform

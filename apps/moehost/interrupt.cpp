// A thread in sigwait: what a signal starts runs as ordinary code, not in a signal handler.
#include "apps/moehost/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "core/base/status.h"

namespace moehost {
namespace {
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}
}  // namespace

InterruptWatch::InterruptWatch(std::function<void()> on_first) {
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, set, on_first = std::move(on_first)] {
    for (bool first = true;; first = false) {
      int signal = 0;
      if (sigwait(&set, &signal) != 0 || ending_) return;
      if (!first) _exit(static_cast<int>(Code::kInterrupted));
      on_first();
    }
  });
}

InterruptWatch::~InterruptWatch() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace moehost

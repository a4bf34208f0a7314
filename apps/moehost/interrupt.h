// Ctrl-C and SIGTERM: the first asks, the second ends the process. Floor 6.
#pragma once
#include <atomic>
#include <functional>
#include <thread>

namespace moehost {

// While one lives, the first SIGINT or SIGTERM calls on_first on a thread of its own, and the second exits at once with
// 130. Make it before any other thread, so that all inherit the blocked signals; one at a time.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_first);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace moehost

// One request at a time on the engine, the others in a bounded first-in-first-out queue. Floor 6.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/engine/engine.h"

namespace moehost {

// A request on its way. The functions are called on the queue's thread (on_end of a waiting job that is cancelled: on
// the thread that cancels); on_end exactly once, and last.
struct GenerationJob {
  GenerateRequest request;
  std::function<void(const std::string& text)> on_text;
  std::function<void(Result<GenerateResult> result)> on_end;
};

// Thread-safe.
class GenerationQueue {
 public:
  // engine_cancel: the flag the engine was loaded with. waiting_most: requests that wait besides the one that runs.
  GenerationQueue(Engine& engine, uint32_t waiting_most, std::atomic<bool>& engine_cancel);
  // Cancels what is left.
  ~GenerationQueue();

  // False: the queue is full, and the job was not taken.
  bool submit(std::shared_ptr<GenerationJob> job);
  // Ends a waiting job at once and the running one within a step, as "cancelled". One that has ended: nothing.
  void cancel(const std::shared_ptr<GenerationJob>& job);

 private:
  void work();

  Engine& engine_;
  const size_t waiting_most_;
  std::atomic<bool>& engine_cancel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<GenerationJob>> waiting_;
  std::shared_ptr<GenerationJob> running_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace moehost

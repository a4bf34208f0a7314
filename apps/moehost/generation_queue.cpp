// The queue's thread is the only one that calls Engine::generate.
#include "apps/moehost/generation_queue.h"

#include <algorithm>

namespace moehost {
namespace {
GenerateResult cancelled_result() { return {.finish_reason = "cancelled"}; }
}  // namespace

GenerationQueue::GenerationQueue(Engine& engine, uint32_t waiting_most, std::atomic<bool>& engine_cancel)
    : engine_(engine), waiting_most_(waiting_most), engine_cancel_(engine_cancel), thread_([this] { work(); }) {}

GenerationQueue::~GenerationQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    engine_cancel_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& job : waiting_) job->on_end(cancelled_result());
}

bool GenerationQueue::submit(std::shared_ptr<GenerationJob> job) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + (running_ ? 1 : 0) > waiting_most_) return false;
    waiting_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

void GenerationQueue::cancel(const std::shared_ptr<GenerationJob>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (running_ == job) engine_cancel_ = true;
    const auto found = std::find(waiting_.begin(), waiting_.end(), job);
    if (found == waiting_.end()) return;
    waiting_.erase(found);
  }
  job->on_end(cancelled_result());
}

void GenerationQueue::work() {
  for (;;) {
    std::shared_ptr<GenerationJob> job;
    {
      std::unique_lock lock(mutex_);
      running_ = nullptr;
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      job = running_ = waiting_.front();
      waiting_.pop_front();
      engine_cancel_ = false;
    }
    job->on_end(engine_.generate(job->request, [this, &job](TokenId, const std::string& text) {
      if (!text.empty()) job->on_text(text);
      return !engine_cancel_;
    }));
  }
}

}  // namespace moehost

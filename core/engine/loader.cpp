// Weight loading.
#include "core/engine/loader.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

namespace moehost {
namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kMaxThreads = 8;  // beyond, reading is limited by memory and disk

uint64_t source_bytes(const PlacedOp& placed) {
  uint64_t sum = 0;
  for (const auto& w : placed.op.weights)
    if (w) sum += w->bytes();
  return sum;
}

class Loader {
 public:
  Loader(Placement& placement, const GgufFile& file, const EngineOptions& options)
      : placement_(placement), p_(placement.program), file_(file), options_(options), start_(Clock::now()) {
    for (const PlacedOp& op : p_.ops) progress_.bytes_total += source_bytes(op);
  }

  Result<LoadedWeights> run() {
    LoadedWeights out;
    for (const PlacedKv& kv : p_.kvs) {
      MOEHOST_ASSIGN(KvHandle handle, p_.devices[kv.device]->create_kv(kv.desc));
      out.kvs.push_back(std::move(handle));
    }
    out.ops.resize(p_.ops.size());
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; ++t) threads.emplace_back([&] { work(out); });
    for (std::thread& t : threads) t.join();
    if (!status_.ok()) {
      out.ops.clear();
      return status_;
    }
    report(true);
    return out;
  }

 private:
  void work(LoadedWeights& out) {
    for (size_t i = next_++; i < p_.ops.size(); i = next_++) {
      Status status =
          options_.cancel && *options_.cancel ? fail(Code::kInterrupted, "loading was cancelled") : load_one(i, out);
      const std::lock_guard lock(mutex_);
      if (!status.ok() && status_.ok()) status_ = status;
      if (!status_.ok()) return;
      progress_.bytes_done += source_bytes(p_.ops[i]);
      report(false);
    }
  }

  Status load_one(size_t i, LoadedWeights& out) {
    const PlacedOp& placed = p_.ops[i];
    // The description made for the plan has no data for the few weights that are computed: make them, describe again.
    PlacedOp complete = placed;
    bool made = false;
    for (auto& w : complete.op.weights) {
      if (!w || !w->make) continue;
      auto bytes = w->make();
      if (!bytes.ok()) return bytes.status().in(placed.op.name);
      w->owned = std::make_shared<const std::vector<std::byte>>(*std::move(bytes));
      w->slabs.clear();
      for (uint32_t s = 0; s < w->slab_count; ++s)
        w->slabs.push_back(w->owned->data() + s * w->rows * w->row_stride_bytes);
      made = true;
    }
    OpDescription description = made ? OpDescription(p_, complete) : placement_.descriptions[i];
    mh_kv* kv = placed.kv ? out.kvs[*placed.kv].get() : nullptr;
    auto op = p_.devices[placed.device]->load_op(description.describe(true, kv));
    if (!op.ok()) return op.status().in(placed.op.name);
    out.ops[i] = *std::move(op);
    drop_source(placed);
    return {};
  }

  // The pages of the file that this op was made of are not needed again.
  void drop_source(const PlacedOp& placed) {
    for (const auto& w : placed.op.weights) {
      if (!w || w->owned || w->make) continue;
      for (const std::byte* slab : w->slabs) {
        for (const MappedFile& f : file_.files()) {
          const std::byte* begin = f.bytes().data();
          if (slab >= begin && slab < begin + f.size())
            f.drop(static_cast<uint64_t>(slab - begin), w->rows * w->row_stride_bytes);
        }
      }
    }
  }

  // Called with the mutex held.
  void report(bool last) {
    if (!options_.on_progress) return;
    progress_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (!last && progress_.seconds < next_report_s_) return;
    next_report_s_ = progress_.seconds + 0.1;
    options_.on_progress(progress_);
  }

  Placement& placement_;
  const PlacedProgram& p_;
  const GgufFile& file_;
  const EngineOptions& options_;
  Clock::time_point start_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  Status status_;
  LoadProgress progress_;
  double next_report_s_ = 0;
};

}  // namespace

Result<LoadedWeights> load_weights(Placement& placement, const GgufFile& file, const EngineOptions& options) {
  return Loader(placement, file, options).run();
}

}  // namespace moehost

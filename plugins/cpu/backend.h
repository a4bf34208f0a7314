// The CPU as a backend, whatever the instruction set: all ops of version 1, weights packed at load, threads of its own.
#pragma once
#include <span>

#include "plugins/cpu/ops.h"

namespace mh_cpu {

// A kernel table, and what a processor must have for it.
struct Variant {
  bool (*runs_here)();
  const KernelTable* (*table)();
};

class Backend : public mh::Backend {
 public:
  static constexpr bool kHasKv = true;
  static constexpr const char* kBatchSize = "batch_size";

  // variants: best first; the last must run wherever core loads the plugin. id: of the plugin, for log and options.
  Backend(const mh_device_spec& spec, const char* id, std::span<const Variant> variants);
  mh_op_cost cost(const mh_op_desc& desc) override;
  std::unique_ptr<mh::Op> load(const mh_op_desc& desc) override;
  uint64_t scratch_bytes(const mh_op_desc& desc) override;
  void run(const mh::Op& op, const mh::Call& call) override;
  uint64_t kv_bytes(const mh_kv_desc& desc) override { return mh::PagedKv::bytes(desc); }
  std::unique_ptr<mh::Kv> create_kv(const mh_kv_desc& desc) override {
    return std::make_unique<mh::PagedKv>(desc, memory());
  }

 private:
  ThreadPool pool_;
  Cpu cpu_;
};

// Name of this machine's processor ("AMD EPYC ..."), for people.
void describe_cpu(mh_device_info& out);

}  // namespace mh_cpu

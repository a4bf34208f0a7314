// The reference as a backend: every op of version 1, storage bytes kept as they are, one thread a queue.
#pragma once
#include "ops.h"

namespace reference {

// Open for derivation: the fake device of the tests runs the same ops.
class Backend : public mh::Backend {
 public:
  static constexpr const char* kId = "backend_reference";
  static constexpr bool kHasKv = true;
  static void info(uint32_t index, mh_device_info& out);

  using mh::Backend::Backend;
  mh_op_cost cost(const mh_op_desc& desc) override;
  std::unique_ptr<mh::Op> load(const mh_op_desc& desc) override;
  uint64_t scratch_bytes(const mh_op_desc& desc) override;
  void run(const mh::Op& op, const mh::Call& call) override;
  uint64_t kv_bytes(const mh_kv_desc& desc) override;
  std::unique_ptr<mh::Kv> create_kv(const mh_kv_desc& desc) override;
};

}  // namespace reference

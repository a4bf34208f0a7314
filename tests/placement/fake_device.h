// A device that only has a name and features: enough for placing and cutting.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "core/backend/backend.h"

namespace moehost::testing_support {

class PaperDevice final : public Device {
 public:
  PaperDevice(std::string name, uint32_t features) : name_(std::move(name)) { info_.features = features; }
  const std::string& name() const override { return name_; }
  const PluginInfo& plugin() const override { return plugin_; }
  const mh_device_info& info() const override { return info_; }
  bool has_kv() const override { return true; }
  Result<MemoryInfo> memory() override { return MemoryInfo{}; }
  Result<mh_op_cost> op_cost(const mh_op_desc&) override {
    mh_op_cost cost{};
    cost.slice_align = 16;
    return cost;
  }
  Result<OpHandle> load_op(const mh_op_desc&) override { return OpHandle(); }
  Result<uint64_t> kv_cost(const mh_kv_desc&) override { return uint64_t{0}; }
  Result<KvHandle> create_kv(const mh_kv_desc&) override { return KvHandle(); }
  Result<BufferHandle> import_buffer(void*, uint64_t) override { return BufferHandle(); }
  Result<ProgramCost> program_cost(const mh_program_desc&) override { return ProgramCost{}; }
  Result<std::unique_ptr<Queue>> create_queue() override { return std::unique_ptr<Queue>(); }

 private:
  std::string name_;
  PluginInfo plugin_;
  mh_device_info info_{};
};

}  // namespace moehost::testing_support

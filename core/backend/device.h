// Device over the C tables. Floor 3, internal to core/backend.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "core/backend/answer.h"
#include "core/backend/backend.h"
#include "core/backend/plugin.h"

namespace moehost {

class DeviceImpl final : public Device {
 public:
  // raw: an open device of the plugin, closed on destruction. on_close: called after that; keeps the plugin alive.
  DeviceImpl(std::string name, PluginInfo plugin_info, mh_device_info info, Plugin& plugin, mh_device* raw,
             std::function<void()> on_close);
  ~DeviceImpl() override;

  const std::string& name() const override { return name_; }
  const PluginInfo& plugin() const override { return plugin_info_; }
  const mh_device_info& info() const override { return info_; }
  bool has_kv() const override { return api().kv != nullptr; }
  Result<MemoryInfo> memory() override;
  Result<mh_op_cost> op_cost(const mh_op_desc& desc) override;
  Result<OpHandle> load_op(const mh_op_desc& desc) override;
  Result<uint64_t> kv_cost(const mh_kv_desc& desc) override;
  Result<KvHandle> create_kv(const mh_kv_desc& desc) override;
  Result<BufferHandle> import_buffer(void* host, uint64_t bytes) override;
  Result<ProgramCost> program_cost(const mh_program_desc& desc) override;
  Result<std::unique_ptr<Queue>> create_queue() override;

  const mh_plugin& api() const { return plugin_.api(); }
  mh_device* raw() const { return raw_; }
  // What a composite gets.
  mh_member lend();
  // May functions other than frees be called?
  bool usable() const { return !lost_ && !abandoned(); }
  std::shared_mutex& control_mutex() { return control_; }
  // Notes a lost device. Every answer passes here.
  void note(int32_t code) {
    if (code == MH_DEVICE_LOST) lost_ = true;
  }

  // One call into the plugin, refused when the device is no longer usable, and its answer as a Status.
  // what: the function, "op.load". call: int32_t(mh_error*).
  template <class Call>
  Status call(const char* what, Call&& call) {
    if (!usable()) return lost(what);
    mh_error error = fresh_error();
    const int32_t code = guarded([&] { return call(&error); }, &error);
    note(code);
    return code == MH_OK ? Status() : answer_status(code, error, who(what));
  }
  // The same for a function that makes an object. call: int32_t(T** out, mh_error*).
  template <class T, class Call>
  Result<Handle<T>> make(const char* what, void (*free)(T*), Call&& make) {
    T* raw = nullptr;
    MOEHOST_RETURN_IF_ERROR(call(what, [&](mh_error* error) { return make(&raw, error); }));
    if (!raw) return fail(Code::kUnavailable, who(what), ": answered ok without an object");
    return Handle<T>(raw, free, shared_from_this());
  }
  // "cpu:0 (backend_cpu) op.load", in front of every failure.
  std::string who(const char* what) const { return cat(name_, " (", plugin_info_.id, ") ", what); }

 private:
  Status lost(const char* what) const;
  // checked, when it is ok; else its message with the function in front.
  Status in(const char* what, const Status& checked) const { return checked.in(who(what)); }

  const std::string name_;
  const PluginInfo plugin_info_;
  const mh_device_info info_;
  Plugin& plugin_;
  mh_device* const raw_;
  const std::function<void()> on_close_;
  std::atomic<bool> lost_ = false;
};

}  // namespace moehost

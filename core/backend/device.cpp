// Device and Queue: every call into a plugin, with its answer checked.
#include "core/backend/device.h"

#include <algorithm>
#include <utility>

namespace moehost {

DeviceImpl::DeviceImpl(std::string name, PluginInfo plugin_info, mh_device_info info, Plugin& plugin, mh_device* raw,
                       std::function<void()> on_close)
    : name_(std::move(name)),
      plugin_info_(std::move(plugin_info)),
      info_(info),
      plugin_(plugin),
      raw_(raw),
      on_close_(std::move(on_close)) {}

DeviceImpl::~DeviceImpl() {
  stop_lending(raw_);
  if (abandoned()) {
    plugin_.abandon();
  } else {
    api().device->close(raw_);
  }
  on_close_();
}

mh_member DeviceImpl::lend() {
  start_lending(raw_, this);
  return {sizeof(mh_member), 0, &plugin_.lent_api(), raw_};
}

Status DeviceImpl::lost(const char* what) const {
  return fail(Code::kUnavailable, who(what), ": the device was lost; restart, or map the model to other devices");
}

Result<MemoryInfo> DeviceImpl::memory() {
  mh_device_memory out{.size = sizeof out};
  MOEHOST_RETURN_IF_ERROR(call("device.memory", [&](mh_error* e) { return api().device->memory(raw_, &out, e); }));
  for (const uint64_t bytes : {out.free_bytes, out.used_bytes, out.host_bytes}) {
    MOEHOST_RETURN_IF_ERROR(in("device.memory", check_bytes("an amount", bytes)));
  }
  return MemoryInfo{out.free_bytes, out.used_bytes, out.host_bytes};
}

Result<mh_op_cost> DeviceImpl::op_cost(const mh_op_desc& desc) {
  mh_op_cost out{.size = sizeof out};
  MOEHOST_RETURN_IF_ERROR(call("op.cost", [&](mh_error* e) { return api().op->cost(raw_, &desc, &out, e); }));
  MOEHOST_RETURN_IF_ERROR(in("op.cost", check_cost(out)));
  return out;
}

Result<OpHandle> DeviceImpl::load_op(const mh_op_desc& desc) {
  const std::shared_lock lock(control_);
  return make("op.load", api().op->free, [&](mh_op** out, mh_error* e) { return api().op->load(raw_, &desc, out, e); });
}

Result<uint64_t> DeviceImpl::kv_cost(const mh_kv_desc& desc) {
  uint64_t bytes = 0;
  if (!has_kv()) return fail(Code::kUnavailable, who("kv.cost"), ": keeps no caches; put them on another device");
  MOEHOST_RETURN_IF_ERROR(call("kv.cost", [&](mh_error* e) { return api().kv->cost(raw_, &desc, &bytes, e); }));
  MOEHOST_RETURN_IF_ERROR(in("kv.cost", check_bytes("the cache", bytes)));
  return bytes;
}

Result<KvHandle> DeviceImpl::create_kv(const mh_kv_desc& desc) {
  if (!has_kv()) return fail(Code::kUnavailable, who("kv.create"), ": keeps no caches; put them on another device");
  const std::unique_lock lock(control_);
  return make("kv.create", api().kv->free,
              [&](mh_kv** out, mh_error* e) { return api().kv->create(raw_, &desc, out, e); });
}

Result<BufferHandle> DeviceImpl::import_buffer(void* host, uint64_t bytes) {
  const std::unique_lock lock(control_);
  return make("buffer.import", api().buffer->free,
              [&](mh_buffer** out, mh_error* e) { return api().buffer->import(raw_, host, bytes, out, e); });
}

Result<ProgramCost> DeviceImpl::program_cost(const mh_program_desc& desc) {
  mh_program_cost out{.size = sizeof out};
  MOEHOST_RETURN_IF_ERROR(
      call("queue.program_cost", [&](mh_error* e) { return api().queue->program_cost(raw_, &desc, &out, e); }));
  MOEHOST_RETURN_IF_ERROR(in("queue.program_cost", check_bytes("workspace_bytes", out.workspace_bytes)));
  MOEHOST_RETURN_IF_ERROR(in("queue.program_cost", check_bytes("host_bytes", out.host_bytes)));
  return ProgramCost{out.workspace_bytes, out.host_bytes};
}

Result<std::unique_ptr<Queue>> DeviceImpl::create_queue() {
  const std::unique_lock lock(control_);
  mh_queue* raw = nullptr;
  MOEHOST_RETURN_IF_ERROR(call("queue.create", [&](mh_error* e) { return api().queue->create(raw_, &raw, e); }));
  if (!raw) return fail(Code::kUnavailable, who("queue.create"), ": answered ok without an object");
  return std::unique_ptr<Queue>(new Queue(std::static_pointer_cast<DeviceImpl>(shared_from_this()), raw));
}

Queue::Queue(std::shared_ptr<DeviceImpl> device, mh_queue* raw) : device_(std::move(device)), raw_(raw) {}

Queue::~Queue() { device_->release(raw_, device_->api().queue->free); }

Result<ProgramHandle> Queue::create_program(const mh_program_desc& desc) {
  const mh_queue_table& api = *device_->api().queue;
  const std::unique_lock lock(device_->control_mutex());
  auto program = device_->make("queue.program_create", api.program_free,
                               [&](mh_program** out, mh_error* e) { return api.program_create(raw_, &desc, out, e); });
  max_items_ = std::max(max_items_.load(), desc.item_count);
  return program;
}

Status Queue::submit(mh_program* program) {
  return device_->call("queue.submit", [&](mh_error* e) { return device_->api().queue->submit(program, e); });
}

QueueError Queue::wait(uint64_t timeout_ns) {
  QueueError out;
  out.status = device_->call("queue.wait", [&](mh_error* e) {
    out.mh_code = known_code(device_->api().queue->wait(raw_, timeout_ns, e));
    out.item = e->item;
    return out.mh_code;
  });
  if (!out.status.ok() && out.mh_code == MH_OK) out.mh_code = device_->usable() ? MH_INTERNAL : MH_DEVICE_LOST;
  if (out.mh_code == MH_OK || out.item < 0 || static_cast<uint32_t>(out.item) >= max_items_) out.item = -1;
  return out;
}

Status Queue::abort() {
  return device_->call("queue.abort", [&](mh_error*) { return device_->api().queue->abort(raw_); });
}

Status Queue::reset() {
  const std::unique_lock lock(device_->control_mutex());
  return device_->call("queue.reset", [&](mh_error* e) { return device_->api().queue->reset(raw_, e); });
}

}  // namespace moehost

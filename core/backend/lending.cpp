// The lent tables: each control function finds the device, takes its lock, and calls the plugin.
#include "core/backend/lending.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "core/backend/answer.h"
#include "core/backend/device.h"

namespace moehost {
namespace {

// Which device a handle of a lent device belongs to, in this process: ABI functions carry no context.
class Owners {
 public:
  void add(const void* handle, DeviceImpl* device) {
    const std::unique_lock lock(mutex_);
    devices_[handle] = device;
  }
  DeviceImpl* find(const void* handle) {
    const std::shared_lock lock(mutex_);
    const auto it = devices_.find(handle);
    return it == devices_.end() ? nullptr : it->second;
  }
  void remove(const void* handle) {
    const std::unique_lock lock(mutex_);
    devices_.erase(handle);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<const void*, DeviceImpl*> devices_;
};
Owners owners;

// A call under the lock that its thread class asks for. Lock: unique for [control], shared for [load].
template <class Lock, class Call>
int32_t control(const void* handle, mh_error* error, Call&& call) {
  DeviceImpl* const device = owners.find(handle);
  if (!device) return explain(error, "not an object of a lent device"), MH_INVALID;
  const Lock lock(device->control_mutex());
  if (!device->usable()) return explain(error, device->name() + " was lost"), MH_DEVICE_LOST;
  const int32_t code = known_code(guarded([&] { return call(*device); }, error));
  device->note(code);
  return code;
}

// The same for a function that makes an object of the device.
template <class Lock, class T, class Call>
int32_t make(const void* parent, T** out, mh_error* error, Call&& call) {
  return control<Lock>(parent, error, [&](DeviceImpl& device) -> int32_t {
    T* made = nullptr;
    const int32_t code = call(device.api(), &made);
    if (code != MH_OK) return code;
    if (!made) return explain(error, device.name() + ": answered ok without an object"), MH_INTERNAL;
    owners.add(made, &device);
    *out = made;
    return MH_OK;
  });
}

template <class T>
void free(T* object, void (*of(const mh_plugin&))(T*)) {
  DeviceImpl* const device = owners.find(object);
  if (!device) return;
  owners.remove(object);  // before: the address may be given out again at once
  device->release(object, of(device->api()));
}

using Control = std::unique_lock<std::shared_mutex>;
using Load = std::shared_lock<std::shared_mutex>;

int32_t open(const mh_device_spec*, mh_device**, mh_error* error) {
  return explain(error, "members are opened and closed by core: device_acquire, device_release"), MH_INVALID;
}
int32_t import(mh_device* device, void* host, uint64_t bytes, mh_buffer** out, mh_error* error) {
  return make<Control>(device, out, error, [&](const mh_plugin& api, mh_buffer** made) {
    return api.buffer->import(device, host, bytes, made, error);
  });
}
int32_t load(mh_device* device, const mh_op_desc* desc, mh_op** out, mh_error* error) {
  return make<Load>(device, out, error,
                    [&](const mh_plugin& api, mh_op** made) { return api.op->load(device, desc, made, error); });
}
int32_t create_kv(mh_device* device, const mh_kv_desc* desc, mh_kv** out, mh_error* error) {
  return make<Control>(device, out, error,
                       [&](const mh_plugin& api, mh_kv** made) { return api.kv->create(device, desc, made, error); });
}
int32_t create_queue(mh_device* device, mh_queue** out, mh_error* error) {
  return make<Control>(device, out, error,
                       [&](const mh_plugin& api, mh_queue** made) { return api.queue->create(device, made, error); });
}
int32_t create_program(mh_queue* queue, const mh_program_desc* desc, mh_program** out, mh_error* error) {
  return make<Control>(queue, out, error, [&](const mh_plugin& api, mh_program** made) {
    return api.queue->program_create(queue, desc, made, error);
  });
}
int32_t reset(mh_queue* queue, mh_error* error) {
  return control<Control>(queue, error, [&](DeviceImpl& device) { return device.api().queue->reset(queue, error); });
}

}  // namespace

LentTables::LentTables(const mh_plugin& api)
    : plugin(api), device(*api.device), buffer(*api.buffer), op(*api.op), kv{}, queue(*api.queue) {
  // The copies end where this core's knowledge ends.
  plugin.size = sizeof plugin, device.size = sizeof device, buffer.size = sizeof buffer;
  op.size = sizeof op, queue.size = sizeof queue;
  plugin.init = [](const mh_host*, mh_error* error) { return open(nullptr, nullptr, error); };
  plugin.shutdown = [] {};
  plugin.device = &device, plugin.buffer = &buffer, plugin.op = &op, plugin.queue = &queue;
  device.open = open;
  device.close = [](mh_device*) {};
  buffer.import = import;
  buffer.free = [](mh_buffer* b) { free<mh_buffer>(b, [](const mh_plugin& p) { return p.buffer->free; }); };
  op.load = load;
  op.free = [](mh_op* o) { free<mh_op>(o, [](const mh_plugin& p) { return p.op->free; }); };
  queue.create = create_queue;
  queue.free = [](mh_queue* q) { free<mh_queue>(q, [](const mh_plugin& p) { return p.queue->free; }); };
  queue.program_create = create_program;
  queue.program_free = [](mh_program* p) {
    free<mh_program>(p, [](const mh_plugin& own) { return own.queue->program_free; });
  };
  queue.reset = reset;
  if (!api.kv) return;
  kv = *api.kv;
  kv.size = sizeof kv;
  kv.create = create_kv;
  kv.free = [](mh_kv* k) { free<mh_kv>(k, [](const mh_plugin& p) { return p.kv->free; }); };
  plugin.kv = &kv;
}

void start_lending(mh_device* raw, DeviceImpl* device) { owners.add(raw, device); }
void stop_lending(mh_device* raw) { owners.remove(raw); }

}  // namespace moehost

// A plugin on the raw headers that computes nothing: core/backend's tests watch its life and its lies.
//
// Variants are compiled with TOY_ID, TOY_ENTRY (what the entry answers), TOY_INIT (what init answers), TOY_MEMBERS (a
// composite that passes every object on to its members). Lies are chosen at open, with the option "fault".
#include "toy.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "moehost/device.h"

namespace {

ToyCounters counters;
const mh_host* host = nullptr;

int32_t explain(mh_error* error, int32_t code, const char* text) {
  if (error) std::snprintf(error->text, sizeof error->text, "%s", text);
  return code;
}

#ifdef TOY_MEMBERS
constexpr bool kComposite = true;
#else
constexpr bool kComposite = false;
#endif

struct Device {
  std::string fault;
  std::string seen;  // members and shares, for an error text that a test reads
  std::vector<mh_member> members;
  std::atomic<bool> lost = false;
  std::atomic<int> inside = 0;
  std::mutex mutex;
  std::condition_variable arrived;
  int loading = 0;
};
Device* of(mh_device* device) { return reinterpret_cast<Device*>(device); }

// An object of a device, with its counterparts on the members.
struct Object {
  Device* device;
  std::vector<void*> parts;
};

// Notes a control call that meets another.
struct ControlCall {
  explicit ControlCall(Device* d) : device(d) {
    if (device->inside.fetch_add(1) > 0) ++counters.overlaps;
    if (device->lost) ++counters.calls_after_loss;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  ~ControlCall() { --device->inside; }
  Device* device;
};

// What an abandoned device leaves behind stays reachable, so that leak checkers know it from a leak.
struct Alive {
  std::mutex mutex;
  std::set<const void*> objects;
  template <class T>
  T* add(T* object) {
    const std::lock_guard lock(mutex);
    objects.insert(object);
    return object;
  }
  template <class T>
  void remove(T* object) {
    const std::lock_guard lock(mutex);
    objects.erase(object);
    delete object;
  }
};
Alive& alive() {
  static auto* const instance = new Alive;
  return *instance;
}

template <class T>
int32_t make(Device* device, T** out) {
  if (device->fault == "no object") return MH_OK;
  ++counters.objects;
  *out = reinterpret_cast<T*>(alive().add(new Object{device, {}}));
  return MH_OK;
}
template <class T>
void free_object(T* object) {
  --counters.objects;
  alive().remove(reinterpret_cast<Object*>(object));
}

int32_t count(uint32_t* out, mh_error*) { return *out = kComposite ? 0 : 2, MH_OK; }
int32_t info(uint32_t index, mh_device_info* out, mh_error* error) {
  if (index >= 2) return explain(error, MH_INVALID, "toy has two devices");
  std::snprintf(out->name, sizeof out->name, "toy %u", index);
  out->features = MH_DEVICE_HOST_MEMORY, out->memory_bytes = 1 << 20, out->import_align = 64, out->max_queues = 1;
  out->numa_node = -1;
#ifdef TOY_LONG_NAME
  std::memset(out->name, 'x', sizeof out->name);
#endif
  return MH_OK;
}
int32_t open(const mh_device_spec* spec, mh_device** out, mh_error* error) {
  auto device = std::make_unique<Device>();
  int32_t code = MH_OK;
  for (uint32_t i = 0; i < spec->option_count; ++i) {
    if (std::strcmp(spec->options[i].key, "fault") == 0)
      device->fault = spec->options[i].value;
    else
      code = explain(error, MH_INVALID, "unknown option; toy knows 'fault'");
  }
  for (uint32_t i = 0; i < spec->member_count && code == MH_OK; ++i) {
    mh_member member = {sizeof member, 0, nullptr, nullptr};
    code = host->device_acquire(host->ctx, spec->members[i], &member, error);
    if (code == MH_OK) device->members.push_back(member);
    device->seen += std::string(spec->members[i]) + "=" + std::to_string(static_cast<int>(spec->shares[i])) + " ";
  }
  if (code != MH_OK) {
    for (const mh_member& member : device->members) host->device_release(host->ctx, &member);
    return code;
  }
  if (device->fault == "no device") return MH_OK;
  ++counters.opens;
  *out = reinterpret_cast<mh_device*>(alive().add(device.release()));
  return MH_OK;
}
void close(mh_device* device) {
  ++counters.closes;
  for (const mh_member& member : of(device)->members) host->device_release(host->ctx, &member);
  alive().remove(of(device));
}
int32_t memory(mh_device* device, mh_device_memory* out, mh_error*) {
  out->free_bytes = of(device)->fault == "huge" ? std::numeric_limits<uint64_t>::max() : 1000;
  return MH_OK;
}

void free_buffer(mh_buffer* buffer) {
  auto* const object = reinterpret_cast<Object*>(buffer);
  for (size_t i = 0; i < object->parts.size(); ++i) {
    object->device->members[i].plugin->buffer->free(static_cast<mh_buffer*>(object->parts[i]));
  }
  free_object(buffer);
}
int32_t import(mh_device* raw, void* memory_at, uint64_t bytes, mh_buffer** out, mh_error* error) {
  Device* const device = of(raw);
  const ControlCall call(device);
  if (device->lost) return MH_DEVICE_LOST;
  if (device->fault == "lost") device->lost = true;
  if (device->lost) return explain(error, MH_DEVICE_LOST, "fell off the bus");
  mh_buffer* made = nullptr;
  if (make(device, &made) != MH_OK || !made) return MH_OK;
  for (const mh_member& member : device->members) {
    mh_buffer* part = nullptr;
    const int32_t code = member.plugin->buffer->import(member.device, memory_at, bytes, &part, error);
    if (code != MH_OK) return free_buffer(made), MH_INTERNAL;
    reinterpret_cast<Object*>(made)->parts.push_back(part);
  }
  *out = made;
  return MH_OK;
}
void release_buffer(mh_buffer* buffer) {
  const ControlCall call(reinterpret_cast<Object*>(buffer)->device);
  free_buffer(buffer);
}

int32_t op_cost(mh_device* device, const mh_op_desc*, mh_op_cost* out, mh_error* error) {
  const std::string& fault = of(device)->fault;
  if (fault == "nan") out->one_row_us = std::numeric_limits<float>::quiet_NaN();
  if (fault == "verdict") out->verdict = 7;
  if (fault == "huge") out->resident_bytes = std::numeric_limits<uint64_t>::max();
  if (fault == "unknown code") return explain(error, -77, "from the future");
  if (fault == "positive code") return 5;
  if (fault == "throws") throw std::runtime_error("toy");
  if (fault == "no memory") return explain(error, MH_NO_MEMORY, "device memory: 9 bytes asked, 4 free");
  if (fault == "unsupported") return explain(error, MH_UNSUPPORTED, "no scale here\nuse add");
  if (fault == "endless text") return std::memset(error->text, 'x', sizeof error->text), MH_INTERNAL;
  if (fault == "members") return explain(error, MH_UNSUPPORTED, of(device)->seen.c_str());
  return MH_OK;
}
// With the fault "rendezvous" a load ends when a second one has begun.
int32_t load(mh_device* raw, const mh_op_desc*, mh_op** out, mh_error* error) {
  Device* const device = of(raw);
  if (device->fault == "rendezvous") {
    std::unique_lock lock(device->mutex);
    ++device->loading;
    device->arrived.notify_all();
    if (!device->arrived.wait_for(lock, std::chrono::seconds(20), [&] { return device->loading >= 2; })) {
      return explain(error, MH_TIMEOUT, "no second load came");
    }
  }
  return make(device, out);
}

int32_t create_queue(mh_device* device, mh_queue** out, mh_error*) { return make(of(device), out); }
int32_t program_cost(mh_device* device, const mh_program_desc*, mh_program_cost* out, mh_error*) {
  out->workspace_bytes = of(device)->fault == "huge" ? std::numeric_limits<uint64_t>::max() : 640;
  return MH_OK;
}
int32_t create_program(mh_queue* queue, const mh_program_desc*, mh_program** out, mh_error*) {
  return make(reinterpret_cast<Object*>(queue)->device, out);
}
int32_t submit(mh_program*, mh_error*) { return MH_OK; }
int32_t wait(mh_queue* queue, uint64_t timeout_ns, mh_error* error) {
  const std::string& fault = reinterpret_cast<Object*>(queue)->device->fault;
  if (timeout_ns == 0) return MH_TIMEOUT;
  if (fault == "item 1" || fault == "item 9") {
    error->item = fault.back() - '0';
    return explain(error, MH_INTERNAL, "kernel failed");
  }
  return MH_OK;
}
int32_t abort_queue(mh_queue*) { return MH_OK; }
int32_t reset(mh_queue*, mh_error*) { return MH_OK; }

int32_t init(const mh_host* given, mh_error* error) {
  host = given;
  ++counters.inits;
  return explain(error, TOY_INIT, TOY_INIT == MH_OK ? "" : "no driver, install one");
}
void shutdown() { ++counters.shutdowns; }
const void* extension(const char* id) { return std::strcmp(id, kToyCounters) == 0 ? &counters : nullptr; }

const mh_device_table device_table = {sizeof device_table, 0, count, info, open, close, memory};
const mh_buffer_table buffer_table = {sizeof buffer_table, 0, import, release_buffer};
const mh_op_table op_table = {sizeof op_table, 0, op_cost, load, free_object<mh_op>};
const mh_queue_table queue_table = {
    sizeof queue_table,      0,      create_queue, free_object<mh_queue>, program_cost, create_program,
    free_object<mh_program>, submit, wait,         abort_queue,           reset};
const mh_plugin good = {sizeof good, MH_ABI_MINOR,  TOY_ID,        "1.0",     init,    shutdown,
                        extension,   &device_table, &buffer_table, &op_table, nullptr, &queue_table};

// What other entries answer.
[[maybe_unused]] const mh_plugin* no_common_abi() { return nullptr; }
[[maybe_unused]] const mh_plugin* short_plugin() {
  static const mh_plugin plugin = [] {
    mh_plugin p = good;
    p.size = 32;
    return p;
  }();
  return &plugin;
}
[[maybe_unused]] const mh_plugin* null_function() {
  static const mh_op_table table = [] {
    mh_op_table t = op_table;
    t.load = nullptr;
    return t;
  }();
  static const mh_plugin plugin = [] {
    mh_plugin p = good;
    p.op = &table;
    return p;
  }();
  return &plugin;
}
[[maybe_unused]] const mh_plugin* short_table() {
  static const mh_queue_table table = [] {
    mh_queue_table t = queue_table;
    t.size = 16;
    return t;
  }();
  static const mh_plugin plugin = [] {
    mh_plugin p = good;
    p.queue = &table;
    return p;
  }();
  return &plugin;
}
[[maybe_unused]] const mh_plugin* complete() { return &good; }

}  // namespace

const mh_plugin* moehost_plugin_v1(uint32_t, uint32_t) { return TOY_ENTRY(); }

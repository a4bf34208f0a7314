// Plugins and devices for the rest of core: the only floor that calls the raw device ABI. Floor 3.
//
// Everything a plugin answers is checked here (codes, sizes, counts, texts); above this floor a failure is a Status and
// a handle frees itself. Handles keep their device alive; a device keeps its registry alive.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "moehost/device.h"

namespace moehost {

// What the manifest beside a shared object says, and what became of it.
struct PluginInfo {
  std::string id, version, path;       // version: empty unless loaded
  std::vector<std::string> kinds;      // device kinds it answers to: "cpu"
  std::string member_kind;             // of a composite: the kind of plain members ("cuda")
  uint32_t abi_lo = 0, abi_hi = 0;     // minors
  std::vector<std::string> cpu_features;
  int priority = 0;
  bool taken = false;                  // would be, or is, used for at least one kind
  std::string reason;                  // why taken or passed over, for people
};

// A member of a composite by name ("cuda:0"), and its part of the work; the unit is the sum of all shares.
struct DeviceMember { std::string name; double share = 1; };
// A device as asked for. kind and index of a plain one; members of a composite.
struct DeviceSpec {
  std::string kind;
  uint32_t index = 0;
  std::vector<DeviceMember> members;
  std::vector<std::pair<std::string, std::string>> options;  // handed to device.open
  std::string name;  // canonical, "cuda:0": one open device a name
};

// A device that could be opened.
struct DeviceListing { std::string name, plugin; mh_device_info info; };

class Device;
class DeviceImpl;
// An object of a device: frees it by the plugin's function, and keeps the device open until then. Moves only.
template <class T>
class Handle {
 public:
  Handle() = default;
  Handle(T* raw, void (*free)(T*), std::shared_ptr<Device> device)
      : raw_(raw), free_(free), device_(std::move(device)) {}
  Handle(Handle&& other) noexcept { *this = std::move(other); }
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_), std::swap(free_, other.free_), std::swap(device_, other.device_);
    return *this;
  }
  ~Handle();
  T* get() const { return raw_; }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  T* raw_ = nullptr;
  void (*free_)(T*) = nullptr;
  std::shared_ptr<Device> device_;
};
using BufferHandle = Handle<mh_buffer>;
using OpHandle = Handle<mh_op>;
using KvHandle = Handle<mh_kv>;
using ProgramHandle = Handle<mh_program>;

// What a queue answers to wait: the failure, and the item of the program to blame (-1: none).
struct QueueError { Status status; int32_t mh_code = MH_OK; int32_t item = -1; };

// A device's queue; its programs are freed before it. Functions with the thread class of the ABI.
class Queue {
 public:
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  Result<ProgramHandle> create_program(const mh_program_desc& desc);  // [control]
  Status submit(mh_program* program);                                 // [hot]
  // Until all that was submitted has ended. kOk, or what failed; mh_code MH_TIMEOUT when time ran out. [any]
  QueueError wait(uint64_t timeout_ns);
  Status abort();  // [any]
  Status reset();  // [control]

 private:
  friend class DeviceImpl;
  Queue(std::shared_ptr<DeviceImpl> device, mh_queue* raw);
  std::shared_ptr<DeviceImpl> device_;
  mh_queue* raw_;
  std::atomic<uint32_t> max_items_ = 0;  // of its programs: what an answered item must be below
};

// As mh_device_memory and mh_program_cost.
struct MemoryInfo { uint64_t free_bytes = 0, used_bytes = 0, host_bytes = 0; };
struct ProgramCost { uint64_t workspace_bytes = 0, host_bytes = 0; };

// An open device. Control functions are serialised inside; loads run beside each other. Errors: kUnavailable
// (unsupported, lost, internal, an answer that breaks the ABI; with the device's name and the plugin's text),
// kNoResource (no memory), kInternal (the plugin says that the call broke a rule). Once lost, only frees are passed on.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;       // "cpu:0"
  virtual const PluginInfo& plugin() const = 0;
  virtual const mh_device_info& info() const = 0;
  bool has(uint32_t feature) const { return (info().features & feature) != 0; }
  virtual bool has_kv() const = 0;
  virtual Result<MemoryInfo> memory() = 0;                                 // [any]
  virtual Result<mh_op_cost> op_cost(const mh_op_desc& desc) = 0;          // [any]
  virtual Result<OpHandle> load_op(const mh_op_desc& desc) = 0;            // [load]
  virtual Result<uint64_t> kv_cost(const mh_kv_desc& desc) = 0;            // [any]
  virtual Result<KvHandle> create_kv(const mh_kv_desc& desc) = 0;          // [control], and what follows
  virtual Result<BufferHandle> import_buffer(void* host, uint64_t bytes) = 0;
  virtual Result<ProgramCost> program_cost(const mh_program_desc& desc) = 0;  // [any]
  virtual Result<std::unique_ptr<Queue>> create_queue() = 0;

  // Gives up a device whose queue no longer answers: from here on nothing of it is called, freed or closed (a free may
  // hang too), and its plugin is not shut down. [any]
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  // Frees an object of this device, in turn with its other control functions. For handles. [any]
  template <class T>
  void release(T* raw, void (*free)(T*)) {
    if (abandoned_) return;
    const std::unique_lock lock(control_);
    free(raw);
  }

 protected:
  std::shared_mutex control_;  // exclusive: [control]; shared: [load]

 private:
  std::atomic<bool> abandoned_ = false;
};
// Here, since it needs the device.
template <class T>
Handle<T>::~Handle() { if (raw_) device_->release(raw_, free_); }

struct RegistryOptions {
  std::string folder;                // absolute; searched for *.json manifests with a .so of the same base name
  std::vector<std::string> extra_folders;  // tests
  std::vector<std::string> allowed;  // plugin ids; empty: all. An id that is not found is kUnavailable
  uint64_t host_memory_limit_bytes = 0;  // 0: the memory available to this process (machine, cgroup) less 5 %
  bool operator==(const RegistryOptions&) const = default;
};

// All plugins of a folder. While a registry lives, discovering with equal options gives the same one, so that models
// share devices; a plugin belongs to one registry at a time. Manifests are read at discovery; a plugin is loaded
// (Boost.DLL, RTLD_NOW | RTLD_LOCAL, never unloaded) when one of its devices is listed or opened.
class Registry {
 public:
  static Result<std::shared_ptr<Registry>> discover(const RegistryOptions& options);
  virtual ~Registry() = default;  // devices are closed before; shuts the plugins down
  // Every manifest found, with the reason it was taken or passed over (CPU feature missing, ABI range, not allowed,
  // lower priority than X for kind K, malformed).
  virtual std::vector<PluginInfo> plugins() const = 0;
  // All plain devices of the taken plugins, by kind then index. A plugin that cannot list them is passed over.
  virtual Result<std::vector<DeviceListing>> devices() = 0;
  // Opens once a name; a second call gives the same device, whatever its options say. Of the plugins that answer to the
  // kind and whose CPU features are present the highest priority wins; the log says which and why. kUnavailable names
  // the kinds there are; kBadConfig for options or members that the plugin refuses.
  virtual Result<std::shared_ptr<Device>> open(const DeviceSpec& spec) = 0;

  // Page-aligned, zeroed host memory from the same account as the plugins' (for boundaries and fences).
  virtual Result<std::shared_ptr<void>> allocate(uint64_t bytes) = 0;
  virtual uint64_t host_bytes_in_use() const = 0;
  // Waits on a fence counter as mh_host.fence_wait does; signal likewise.
  virtual int32_t fence_wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns) = 0;
  virtual void fence_signal(uint64_t* counter, uint64_t value) = 0;
};

// The plugin folder that belongs to this executable: MOEHOST_PLUGIN_DIR if set, else ../lib/moehost beside bin/.
std::string default_plugin_folder();

}  // namespace moehost

// The registry: which plugins there are, which one answers to a kind, which devices are open.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "core/backend/answer.h"
#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "core/backend/fence.h"
#include "core/backend/host_services.h"
#include "core/backend/manifest.h"
#include "core/backend/plugin.h"
#include "core/base/log.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;

constexpr const char* kComponent = "plugins";
constexpr uint32_t kMaxDevices = 4096;  // a plugin that counts more is wrong

template <class Range, class Text>
std::string join(const Range& range, const char* separator, Text&& text) {
  std::string out;
  for (const auto& item : range) out += (out.empty() ? "" : separator) + text(item);
  return out;
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool parse_index(std::string_view text, uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// A manifest, and the plugin once loaded. usable: nothing known is in the way; otherwise info.reason says what is.
struct Candidate {
  PluginInfo info;
  bool usable = false;
  std::unique_ptr<Plugin> loaded;
};

class RegistryImpl final : public Registry, public std::enable_shared_from_this<RegistryImpl> {
 public:
  explicit RegistryImpl(const RegistryOptions& options)
      : host_(std::make_shared<HostServices>(
            options.host_memory_limit_bytes,
            HostServices::Lender{[this](const char* name, mh_member* out) { return acquire(name, out); },
                                 [this](const mh_member& member) { release(member); }})) {}
  ~RegistryImpl() override;

  // Reads the manifests. Before anything else, once.
  Status find(const RegistryOptions& options);

  std::vector<PluginInfo> plugins() const override;
  Result<std::vector<DeviceListing>> devices() override;
  Result<std::shared_ptr<Device>> open(const DeviceSpec& spec) override;
  Result<std::shared_ptr<void>> allocate(uint64_t bytes) override;
  uint64_t host_bytes_in_use() const override { return host_->bytes_in_use(); }
  int32_t fence_wait(const uint64_t* counter, uint64_t value, uint64_t timeout_ns) override {
    return moehost::fence_wait(counter, value, timeout_ns);
  }
  void fence_signal(uint64_t* counter, uint64_t value) override { moehost::fence_signal(counter, value); }

 private:
  Status find_in(const std::string& folder, const std::vector<std::string>& allowed);
  void choose();
  Candidate* best_of(const std::string& kind);
  Status pass_over(Candidate& candidate, const Status& why);
  Status load(Candidate& candidate);
  Result<Candidate*> loaded_for(const std::string& kind);
  Status no_plugin(const std::string& kind) const;
  std::shared_ptr<Device> already_open(const std::string& name);
  Result<std::shared_ptr<Device>> open_new(const DeviceSpec& spec, const std::string& name);
  Result<std::shared_ptr<DeviceImpl>> open_by(Candidate& candidate, const DeviceSpec& spec, const std::string& name);
  void forget(const std::string& name);
  Status acquire(const char* name, mh_member* out);
  void release(const mh_member& member);

  const std::shared_ptr<HostServices> host_;
  // Held while a plugin is loaded or a device opened. Recursive, since a composite acquires its members meanwhile.
  mutable std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::vector<std::string> opening_;  // outermost first: to refuse a device that would contain itself

  // A name is here until its device is closed, so that none is open twice. Own mutexes: closing takes no other lock.
  std::mutex open_mutex_;
  std::condition_variable closed_;
  std::map<std::string, std::weak_ptr<DeviceImpl>> open_;
  std::mutex lent_mutex_;
  std::multimap<const mh_device*, std::shared_ptr<Device>> lent_;
};

RegistryImpl::~RegistryImpl() {
  while (!candidates_.empty()) candidates_.pop_back();
  if (const uint64_t bytes = host_->bytes_in_use()) {
    log::debug(kComponent, format_bytes(bytes), " of host memory are still in use after all plugins were shut down");
  }
}

Status RegistryImpl::find(const RegistryOptions& options) {
  std::vector<std::string> folders = {options.folder};
  folders.insert(folders.end(), options.extra_folders.begin(), options.extra_folders.end());
  for (const std::string& folder : folders) MOEHOST_RETURN_IF_ERROR(find_in(folder, options.allowed));
  std::vector<std::string> ids;
  for (const auto& candidate : candidates_) ids.push_back(candidate->info.id);
  for (const std::string& id : options.allowed) {
    if (contains(ids, id)) continue;
    const std::string near = nearest(id, ids);
    return fail(Code::kUnavailable, "plugin '", printable(id), "' is not in ", options.folder, "; there are ",
                join(ids, ", ", [](const auto& known) { return known; }),
                near.empty() ? "" : cat("; did you mean '", near, "'?"));
  }
  choose();
  return Status();
}

Status RegistryImpl::find_in(const std::string& folder, const std::vector<std::string>& allowed) {
  if (!fs::path(folder).is_absolute()) {
    return fail(Code::kBadConfig, "plugin folder '", printable(folder), "' must be an absolute path");
  }
  std::error_code error;
  std::set<std::string> names;  // sorted, so that the choice does not depend on the file system
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") names.insert(it->path().stem().string());
  }
  if (error) return fail(Code::kUnavailable, "plugin folder ", printable(folder), ": ", error.message());
  for (const std::string& name : names) {
    auto candidate = std::make_unique<Candidate>();
    PluginInfo& info = candidate->info;
    info = read_manifest(folder, name);
    for (const auto& other : candidates_) {
      if (other->info.id == info.id && info.reason.empty()) info.reason = cat("the id is taken by ", other->info.path);
    }
    if (!allowed.empty() && !contains(allowed, info.id)) info.reason = "not in the list of plugins";
    candidate->usable = info.reason.empty();
    if (!candidate->usable) log::info(kComponent, info.id, " passed over: ", info.reason);
    candidates_.push_back(std::move(candidate));
  }
  return Status();
}

// The usable candidate of the highest priority; of equals the first in the order of ids.
Candidate* RegistryImpl::best_of(const std::string& kind) {
  Candidate* best = nullptr;
  for (const auto& candidate : candidates_) {
    const PluginInfo& info = candidate->info;
    if (!candidate->usable || !contains(info.kinds, kind)) continue;
    if (!best || info.priority > best->info.priority ||
        (info.priority == best->info.priority && info.id < best->info.id)) {
      best = candidate.get();
    }
  }
  return best;
}

// Writes into every usable candidate what it is taken for, or who has precedence.
void RegistryImpl::choose() {
  for (const auto& candidate : candidates_) {
    PluginInfo& info = candidate->info;
    info.taken = false;
    if (!candidate->usable) continue;
    std::string taken_for, passed;
    for (const std::string& kind : info.kinds) {
      const PluginInfo& best = best_of(kind)->info;
      if (&best == &info) {
        taken_for += (taken_for.empty() ? "" : ", ") + kind;
      } else {
        passed += cat(passed.empty() ? "" : "; ", "priority ", info.priority, ", ", best.id, " has ", best.priority,
                      " for ", kind);
      }
    }
    info.taken = !taken_for.empty();
    info.reason = info.taken ? cat("answers to ", taken_for, " (priority ", info.priority, ")") : passed;
  }
}

// A plugin that looked usable turns out not to be: the next one takes its place, and the log says so.
Status RegistryImpl::pass_over(Candidate& candidate, const Status& why) {
  candidate.usable = false;
  candidate.info.reason = why.message();
  log::warning(kComponent, candidate.info.id, " passed over: ", candidate.info.reason);
  choose();
  return why;
}

Status RegistryImpl::load(Candidate& candidate) {
  PluginInfo& info = candidate.info;
  if (candidate.loaded) return Status();
  auto plugin = Plugin::load(info, host_->table());
  if (!plugin.ok()) return pass_over(candidate, plugin.status());
  candidate.loaded = *std::move(plugin);
  info.version = printable(candidate.loaded->api().version);
  log::info(kComponent, info.id, " ", info.version, " loaded from ", info.path, ": ", info.reason);
  return Status();
}

// The best plugin for a kind that can be loaded. Each that cannot was logged, and has its reason in plugins().
Result<Candidate*> RegistryImpl::loaded_for(const std::string& kind) {
  while (Candidate* const best = best_of(kind)) {
    if (load(*best).ok()) return best;
  }
  return no_plugin(kind);
}

Status RegistryImpl::no_plugin(const std::string& kind) const {
  std::set<std::string> kinds;
  std::string reasons;
  for (const auto& candidate : candidates_) {
    const PluginInfo& info = candidate->info;
    if (candidate->usable) kinds.insert(info.kinds.begin(), info.kinds.end());
    if (contains(info.kinds, kind)) reasons += cat("; ", info.id, ": ", info.reason);
  }
  return fail(Code::kUnavailable, "no plugin for devices of kind '", printable(kind), "'; there are ",
              kinds.empty() ? "none" : join(kinds, ", ", [](const auto& known) { return known; }), reasons);
}

std::vector<PluginInfo> RegistryImpl::plugins() const {
  const std::lock_guard lock(mutex_);
  std::vector<PluginInfo> out;
  for (const auto& candidate : candidates_) out.push_back(candidate->info);
  return out;
}

// How many devices the plugin has to name by index.
Result<uint32_t> count_devices(const Candidate& candidate) {
  uint32_t count = 0;
  mh_error error = fresh_error();
  const int32_t code = guarded([&] { return candidate.loaded->api().device->count(&count, &error); }, &error);
  MOEHOST_RETURN_IF_ERROR(answer_status(code, error, cat(candidate.info.id, " device.count")));
  if (count > kMaxDevices) {
    return fail(Code::kUnavailable, candidate.info.id, " counts ", count, " devices, more than ", kMaxDevices);
  }
  return count;
}

Result<mh_device_info> device_info(const Candidate& candidate, uint32_t index) {
  mh_device_info info{.size = sizeof info};
  mh_error error = fresh_error();
  const int32_t code = guarded([&] { return candidate.loaded->api().device->info(index, &info, &error); }, &error);
  const std::string who = cat(candidate.info.id, " device.info of ", index);
  MOEHOST_RETURN_IF_ERROR(answer_status(code, error, who));
  MOEHOST_RETURN_IF_ERROR(check_info(info).in(who));
  return info;
}

Result<std::vector<DeviceListing>> list_devices(const Candidate& candidate, const std::string& kind) {
  std::vector<DeviceListing> out;
  MOEHOST_ASSIGN(const uint32_t count, count_devices(candidate));
  for (uint32_t index = 0; index < count; ++index) {
    MOEHOST_ASSIGN(const mh_device_info info, device_info(candidate, index));
    out.push_back({cat(kind, ":", index), candidate.info.id, info});
  }
  return out;
}

Result<std::vector<DeviceListing>> RegistryImpl::devices() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> kinds;
  for (const auto& candidate : candidates_) kinds.insert(candidate->info.kinds.begin(), candidate->info.kinds.end());
  std::vector<DeviceListing> out;
  for (const std::string& kind : kinds) {
    for (auto best = loaded_for(kind); best.ok(); best = loaded_for(kind)) {
      const auto listed = list_devices(**best, kind);
      if (listed.ok()) {
        out.insert(out.end(), listed->begin(), listed->end());
        break;
      }
      (void)pass_over(**best, listed.status());  // noted in plugins(); ends, since one candidate less is usable
    }
  }
  return out;
}

// The open device of a name, after waiting for one that is being closed.
std::shared_ptr<Device> RegistryImpl::already_open(const std::string& name) {
  std::unique_lock lock(open_mutex_);
  for (;;) {
    const auto it = open_.find(name);
    if (it == open_.end()) return nullptr;
    if (auto device = it->second.lock()) return device;
    closed_.wait(lock);
  }
}

void RegistryImpl::forget(const std::string& name) {
  const std::lock_guard lock(open_mutex_);
  open_.erase(name);
  closed_.notify_all();
}

Result<std::shared_ptr<Device>> RegistryImpl::open(const DeviceSpec& spec) {
  const std::string name = spec.name.empty() ? cat(spec.kind, ":", spec.index) : spec.name;
  const std::lock_guard lock(mutex_);
  if (auto device = already_open(name)) return device;
  if (contains(opening_, name)) {
    return fail(Code::kBadConfig, "device '", name,
                "' would contain itself: ", join(opening_, " > ", [](const auto& outer) { return outer; }), " > ",
                name);
  }
  opening_.push_back(name);
  auto device = open_new(spec, name);
  opening_.pop_back();
  return device;
}

Result<std::shared_ptr<Device>> RegistryImpl::open_new(const DeviceSpec& spec, const std::string& name) {
  MOEHOST_ASSIGN(Candidate* const candidate, loaded_for(spec.kind));
  const bool composite = !candidate->info.member_kind.empty();
  if (composite != !spec.members.empty()) {
    return fail(Code::kBadConfig, "device '", name, "': ", candidate->info.id,
                composite ? " needs members" : " takes no members");
  }
  for (const DeviceMember& member : spec.members) {
    if (std::isfinite(member.share) && member.share > 0) continue;
    return fail(Code::kBadConfig, "device '", name, "': share ", member.share, " of ", member.name, " is not above 0");
  }
  if (!composite) {
    MOEHOST_ASSIGN(const uint32_t count, count_devices(*candidate));
    if (spec.index >= count) {
      return fail(Code::kUnavailable, "device '", name, "': ", candidate->info.id, " has ", count, " devices of kind '",
                  spec.kind, "', counted from 0");
    }
  }
  MOEHOST_ASSIGN(auto device, open_by(*candidate, spec, name));
  {
    const std::lock_guard lock(open_mutex_);
    open_[name] = device;
  }
  log::info(kComponent, "device ", name, " opened: ", candidate->info.id, ", ", candidate->info.reason);
  return std::shared_ptr<Device>(std::move(device));
}

Result<std::shared_ptr<DeviceImpl>> RegistryImpl::open_by(Candidate& candidate, const DeviceSpec& spec,
                                                          const std::string& name) {
  // A composite answers under index 0 for itself: features, alignment, queues.
  MOEHOST_ASSIGN(const mh_device_info info, device_info(candidate, spec.members.empty() ? spec.index : 0));
  std::vector<const char*> members;
  std::vector<double> shares;
  std::vector<mh_option> options;
  for (const DeviceMember& member : spec.members)
    members.push_back(member.name.c_str()), shares.push_back(member.share);
  for (const auto& [key, value] : spec.options) options.push_back({key.c_str(), value.c_str()});
  const mh_device_spec raw_spec = {.size = sizeof raw_spec,
                                   .index = spec.index,
                                   .member_count = static_cast<uint32_t>(members.size()),
                                   .option_count = static_cast<uint32_t>(options.size()),
                                   .members = members.data(),
                                   .shares = shares.data(),
                                   .options = options.data()};
  const std::string who = cat("device '", name, "' (", candidate.info.id, ")");
  mh_device* raw = nullptr;
  mh_error error = fresh_error();
  const int32_t code = guarded([&] { return candidate.loaded->api().device->open(&raw_spec, &raw, &error); }, &error);
  // What a plugin finds invalid here is what the operator wrote: an option, a member.
  if (code == MH_INVALID) return fail(Code::kBadConfig, answer_status(code, error, who).message());
  MOEHOST_RETURN_IF_ERROR(answer_status(code, error, who));
  if (!raw) return fail(Code::kUnavailable, who, ": open answered ok without a device");
  return std::make_shared<DeviceImpl>(name, candidate.info, info, *candidate.loaded, raw,
                                      [self = shared_from_this(), name] { self->forget(name); });
}

// A member by the name that the operator calls it: a device that is open or being opened, or a plain "kind:index".
Status RegistryImpl::acquire(const char* name, mh_member* out) {
  const std::string text = name;
  DeviceSpec spec;
  spec.name = text;
  spec.kind = text.substr(0, text.find(':'));
  const std::string_view rest = std::string_view(text).substr(spec.kind.size());
  const std::lock_guard lock(mutex_);
  if (!rest.empty() && !parse_index(rest.substr(1), &spec.index) && !contains(opening_, text) && !already_open(text)) {
    return fail(Code::kBadConfig, "no device '", printable(text),
                "': a member is kind:index, or a device opened before");
  }
  if (rest.empty()) spec.name += ":0";
  MOEHOST_ASSIGN(auto device, open(spec));
  const mh_member lent = static_cast<DeviceImpl&>(*device).lend();
  out->plugin = lent.plugin, out->device = lent.device;
  const std::lock_guard lent_lock(lent_mutex_);
  lent_.emplace(lent.device, std::move(device));
  return Status();
}

void RegistryImpl::release(const mh_member& member) {
  std::shared_ptr<Device> device;  // closed, if this was the last, after the lock is gone
  const std::lock_guard lock(lent_mutex_);
  const auto it = lent_.find(member.device);
  if (it == lent_.end()) return;
  device = std::move(it->second);
  lent_.erase(it);
}

Result<std::shared_ptr<void>> RegistryImpl::allocate(uint64_t bytes) {
  MOEHOST_ASSIGN(void* const memory, host_->allocate(bytes, true));
  return std::shared_ptr<void>(memory, [host = host_, bytes](void* p) { host->free(p, bytes); });
}

}  // namespace

Result<std::shared_ptr<Registry>> Registry::discover(const RegistryOptions& options) {
  struct Known {
    RegistryOptions options;
    std::weak_ptr<RegistryImpl> registry;
  };
  static std::mutex mutex;
  static std::vector<Known> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const Known& known) { return known.registry.expired(); });
  for (const Known& known : all) {
    if (auto registry = known.registry.lock(); registry && known.options == options) {
      return std::shared_ptr<Registry>(std::move(registry));
    }
  }
  auto registry = std::make_shared<RegistryImpl>(options);
  MOEHOST_RETURN_IF_ERROR(registry->find(options));
  all.push_back({options, registry});
  return std::shared_ptr<Registry>(std::move(registry));
}

std::string default_plugin_folder() {
  if (const char* folder = std::getenv("MOEHOST_PLUGIN_DIR"); folder && *folder) return folder;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "lib" / "moehost").string();
}

}  // namespace moehost

// A loaded plugin: its shared object, checked tables and life. Floor 3, internal to core/backend.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/lending.h"

namespace moehost {

// The shared object is loaded once a process and never unmapped; the plugin is initialised for one owner at a time.
class Plugin {
 public:
  // Loads info.path, checks what its entry answers, and calls init. kUnavailable with the reason.
  static Result<std::unique_ptr<Plugin>> load(const PluginInfo& info, const mh_host& host);
  // Calls shutdown, unless a device was abandoned: its threads may never end.
  ~Plugin();

  const mh_plugin& api() const { return *api_; }
  // What a composite is lent in place of api(): serialises control calls.
  const mh_plugin& lent_api() const { return lent_.plugin; }
  void abandon() { abandoned_ = true; }

 private:
  Plugin(std::string path, const mh_plugin* api) : path_(std::move(path)), api_(api), lent_(*api) {}
  const std::string path_;
  const mh_plugin* const api_;
  const LentTables lent_;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace moehost

// A plugin folder made for one test: copies of the test plugins under manifests that the test writes.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/backend/backend.h"
#include "tests/backend/plugins/toy.h"

namespace moehost {

class PluginFolder {
 public:
  PluginFolder() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() / cat("moehost-backend-", getpid(), "-", number++);
    std::filesystem::create_directories(path_);
  }
  ~PluginFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string path(const std::string& file) const { return (path_ / file).string(); }

  // manifest and the plugin built as module, both under name
  void add(const std::string& name, const std::string& module, const std::string& manifest) const {
    std::filesystem::copy_file(cat(TEST_PLUGIN_DIR, "/", module, ".so"), path(name + ".so"));
    write(name + ".json", manifest);
  }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path(file)) << text; }
  // The plugin with the id of its own, for a kind.
  void add_plain(const std::string& id, const std::string& kind) const { add(id, id, manifest(id, kind)); }

  static std::string manifest(const std::string& id, const std::string& kind, int priority = 10,
                              const std::string& rest = "") {
    return cat(R"({"id": ")", id, R"(", "kinds": [")", kind, R"("], "abi": [0, 0], "priority": )", priority, rest, "}");
  }

  Result<std::shared_ptr<Registry>> discover(RegistryOptions options = {}) const {
    options.folder = path();
    return Registry::discover(options);
  }
  // A registry of which the test needs that it is there.
  std::shared_ptr<Registry> registry(const RegistryOptions& options = {}) const {
    auto found = discover(options);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return *found;
  }
  // The counters of a toy plugin that was loaded from here.
  ToyCounters& counters(const std::string& name) const {
    void* const library = dlopen(path(name + ".so").c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(library, nullptr) << name << " is not loaded";
    const auto entry = reinterpret_cast<moehost_plugin_v1_fn>(dlsym(library, "moehost_plugin_v1"));
    const void* const counters = entry(0, MH_ABI_MINOR)->extension(kToyCounters);
    dlclose(library);
    return *static_cast<ToyCounters*>(const_cast<void*>(counters));
  }

 private:
  std::filesystem::path path_;
};

inline PluginInfo info_of(const Registry& registry, const std::string& id) {
  for (const PluginInfo& info : registry.plugins()) {
    if (info.id == id) return info;
  }
  ADD_FAILURE() << "no plugin " << id;
  return {};
}

}  // namespace moehost

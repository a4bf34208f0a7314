// Loads a shared object and checks every table of it before anything is called.
#include "core/backend/plugin.h"

#include <dlfcn.h>
#include <elf.h>

#include <boost/dll/shared_library.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "core/backend/answer.h"
#include "core/base/checked.h"
#include "core/base/mapped_file.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

constexpr const char* kEntry = "moehost_plugin_v1";

// What is loaded in this process, and what of it is initialised. Never destroyed: a library must outlive everything.
struct Process {
  std::mutex mutex;
  std::map<std::string, boost::dll::shared_library> libraries;  // by path
  std::set<std::string> live;                                   // paths between init and shutdown
};
Process& process() {
  static auto* const instance = new Process;
  return *instance;
}

// The dynamic loader trusts a file's length: a truncated one would end the process with SIGBUS.
Status check_not_truncated(const std::string& path) {
  MOEHOST_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto refuse = [](const char* why) { return fail(Code::kUnavailable, "cannot be loaded: ", why); };
  Elf64_Ehdr header;
  if (file.size() < sizeof header || std::memcmp(file.bytes().data(), ELFMAG, SELFMAG) != 0) {
    return refuse("not an ELF shared object");
  }
  std::memcpy(&header, file.bytes().data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return refuse("not a 64-bit shared object");
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const auto begin = checked_add(header.e_phoff, i * sizeof segment);
    const auto end = begin ? checked_add(*begin, sizeof segment) : std::nullopt;
    if (!end || *end > file.size()) return refuse("the file is truncated");
    std::memcpy(&segment, file.bytes().data() + *begin, sizeof segment);
    const auto data_end = checked_add(segment.p_offset, segment.p_filesz);
    if (!data_end || *data_end > file.size()) return refuse("the file is truncated");
  }
  return Status();
}

Result<moehost_plugin_v1_fn> find_entry(const std::string& path) {
  boost::dll::shared_library& library = process().libraries[path];
  if (!library.is_loaded()) {
    MOEHOST_RETURN_IF_ERROR(check_not_truncated(path));
    namespace dll = boost::dll;
    boost::dll::fs::error_code error;
    library.load(path, error, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
    if (error) {
      const char* reason = ::dlerror();
      return fail(Code::kUnavailable, "cannot be loaded: ", printable(reason ? reason : error.message()));
    }
  }
  if (!library.has(kEntry)) return fail(Code::kUnavailable, path, " exports no ", kEntry, ": not a moehost plugin");
  return &library.get<std::remove_pointer_t<moehost_plugin_v1_fn>>(kEntry);
}

// A table may be longer than this core knows, not shorter, and has all functions of minor 0. Its functions are the
// pointers after the leading two 32-bit members.
template <class Table>
Status check_table(const char* name, const Table* table) {
  constexpr size_t kHeaderBytes = 2 * sizeof(uint32_t);
  if (!table) return fail(Code::kUnavailable, "has no ", name, " table");
  if (table->size < sizeof(Table)) {
    return fail(Code::kUnavailable, name, " table has ", table->size, " bytes, at least ", sizeof(Table),
                " are needed");
  }
  void* functions[(sizeof(Table) - kHeaderBytes) / sizeof(void*)];
  std::memcpy(functions, reinterpret_cast<const char*>(table) + kHeaderBytes, sizeof functions);
  for (size_t i = 0; i < std::size(functions); ++i) {
    if (!functions[i]) return fail(Code::kUnavailable, "function ", i, " of the ", name, " table is NULL");
  }
  return Status();
}

Status check_plugin(const PluginInfo& info, const mh_plugin* api) {
  if (!api) {
    return fail(Code::kUnavailable, "refuses this core: it speaks ABI 1.0 to 1.", MH_ABI_MINOR,
                ", the plugin needs another");
  }
  if (api->size < sizeof(mh_plugin)) {
    return fail(Code::kUnavailable, "plugin table has ", api->size, " bytes, at least ", sizeof(mh_plugin),
                " are needed");
  }
  if (!api->id || info.id != api->id) {
    const std::string own = api->id ? printable(std::string_view(api->id, strnlen(api->id, 64))) : "NULL";
    return fail(Code::kUnavailable, "calls itself '", own, "', its manifest '", info.id, "'");
  }
  if (!api->version || !api->init || !api->shutdown || !api->extension) {
    return fail(Code::kUnavailable, "version, init, shutdown or extension is NULL");
  }
  MOEHOST_RETURN_IF_ERROR(check_table("device", api->device));
  MOEHOST_RETURN_IF_ERROR(check_table("buffer", api->buffer));
  MOEHOST_RETURN_IF_ERROR(check_table("op", api->op));
  if (api->kv) MOEHOST_RETURN_IF_ERROR(check_table("kv", api->kv));
  return check_table("queue", api->queue);
}

}  // namespace

Result<std::unique_ptr<Plugin>> Plugin::load(const PluginInfo& info, const mh_host& host) {
  const std::lock_guard lock(process().mutex);
  if (process().live.contains(info.path)) {
    return fail(Code::kUnavailable, "is in use by another registry of this process, with other options");
  }
  MOEHOST_ASSIGN(const moehost_plugin_v1_fn entry, find_entry(info.path));
  const mh_plugin* const api = entry(0, MH_ABI_MINOR);
  MOEHOST_RETURN_IF_ERROR(check_plugin(info, api));
  mh_error error = fresh_error();
  MOEHOST_RETURN_IF_ERROR(answer_status(guarded([&] { return api->init(&host, &error); }, &error), error, "init"));
  process().live.insert(info.path);
  return std::unique_ptr<Plugin>(new Plugin(info.path, api));
}

Plugin::~Plugin() {
  if (abandoned_) return;  // stays live: it cannot be initialised again either
  const std::lock_guard lock(process().mutex);
  api_->shutdown();
  process().live.erase(path_);
}

}  // namespace moehost

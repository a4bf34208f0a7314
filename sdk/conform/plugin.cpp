// Reading a plugin from disk: JSON manifest, ELF symbol table, dlopen.
#include "plugin.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "case.h"

namespace conform {
namespace {

using Json = nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> strings(const Json& json, const char* key) {
  return json.contains(key) ? json.at(key).get<std::vector<std::string>>() : std::vector<std::string>();
}

Manifest parse_manifest(const std::string& text) {
  const Json json = Json::parse(text);
  Manifest manifest;
  manifest.id = json.at("id").get<std::string>();
  manifest.kinds = strings(json, "kinds");
  manifest.cpu_features = strings(json, "cpu_features");
  manifest.member_kind = json.value("member_kind", "");
  const auto abi = json.at("abi").get<std::vector<uint32_t>>();
  if (abi.size() != 2 || abi[0] > abi[1]) throw std::runtime_error("\"abi\" is not [lowest minor, highest minor]");
  manifest.abi_lo = abi[0], manifest.abi_hi = abi[1];
  json.at("priority").get<int>();
  if (manifest.kinds.empty() && manifest.member_kind.empty())
    throw std::runtime_error("neither \"kinds\" nor \"member_kind\" is given: no device map can name its devices");
  return manifest;
}

// The T at offset, or a failed case: every offset comes from the file.
template <class T>
T read_at(const std::string& file, uint64_t offset) {
  require(offset <= file.size() && file.size() - offset >= sizeof(T), "the ELF file ends before offset ", offset);
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::optional<Manifest> read_manifest(const std::string& plugin_path, std::string* wrong) {
  const std::string path = std::filesystem::path(plugin_path).replace_extension(".json").string();
  if (!std::filesystem::exists(path)) {
    *wrong = cat("no manifest ", path, " beside the plugin");
    return std::nullopt;
  }
  try {
    return parse_manifest(read_file(path));
  } catch (const std::exception& e) {
    *wrong = cat("manifest ", path, ": ", e.what());
    return std::nullopt;
  }
}

std::vector<std::string> missing_cpu_features(const std::vector<std::string>& features) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line) && line.rfind("flags", 0) != 0) {
  }
  std::istringstream words(line);
  const std::vector<std::string> flags{std::istream_iterator<std::string>(words), {}};
  std::vector<std::string> missing;
  for (const auto& feature : features)
    if (std::find(flags.begin(), flags.end(), feature) == flags.end()) missing.push_back(feature);
  return missing;
}

std::vector<std::string> exported_symbols(const std::string& plugin_path) {
  const std::string file = read_file(plugin_path);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  require(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64, plugin_path,
          " is no 64-bit ELF file");
  std::vector<std::string> names;
  const auto section = [&](uint64_t index) {
    return read_at<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  for (uint64_t s = 0; s < header.e_shnum; ++s) {
    const Elf64_Shdr symbols = section(s);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr strings = section(symbols.sh_link);
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, symbols.sh_offset + at);
      const int visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ||
          visibility == STV_HIDDEN || visibility == STV_INTERNAL)
        continue;
      const uint64_t name = strings.sh_offset + symbol.st_name;
      require(name < file.size(), "the ELF string table ends before offset ", name);
      names.emplace_back(file.c_str() + name);
    }
  }
  return names;
}

moehost_plugin_v1_fn load_entry(const std::string& plugin_path) {
  void* library = dlopen(std::filesystem::absolute(plugin_path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("dlopen: ", dlerror());
  const auto entry = reinterpret_cast<moehost_plugin_v1_fn>(dlsym(library, "moehost_plugin_v1"));
  require(entry != nullptr, plugin_path, " has no symbol moehost_plugin_v1");
  return entry;
}

const mh_plugin& load_plugin(const std::string& plugin_path) {
  const mh_plugin* plugin = load_entry(plugin_path)(0, MH_ABI_MINOR);
  require(plugin != nullptr, "moehost_plugin_v1(0, ", MH_ABI_MINOR, ") says it does not fit this ABI");
  require(MH_HAS(plugin, mh_plugin, queue) && plugin->device && plugin->buffer && plugin->op && plugin->queue,
          "the plugin's table is shorter than minor 0, or a table other than kv is NULL");
  return *plugin;
}

}  // namespace conform

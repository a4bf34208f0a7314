// A plugin as a file: manifest, exported symbols, the table behind its entry.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "moehost/device.h"

namespace conform {

struct Manifest {
  std::string id;
  std::vector<std::string> kinds, cpu_features;
  std::string member_kind;
  uint32_t abi_lo = 0, abi_hi = 0;
};

// The JSON beside the shared object, or what is wrong with it.
std::optional<Manifest> read_manifest(const std::string& plugin_path, std::string* wrong);

// Those of the features that this machine's processor lacks.
std::vector<std::string> missing_cpu_features(const std::vector<std::string>& features);

// Names of all symbols that the shared object defines for others, read from its .dynsym; fails the case if it is no
// ELF.
std::vector<std::string> exported_symbols(const std::string& plugin_path);

// dlopens the file and returns its entry; fails the case if there is none.
moehost_plugin_v1_fn load_entry(const std::string& plugin_path);

// The entry's table for this suite's ABI; fails the case if there is none.
const mh_plugin& load_plugin(const std::string& plugin_path);

}  // namespace conform

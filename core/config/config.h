// What the operator writes, typed: YAML, JSON, command line and environment into one Config. Floor 2.
//
// One schema table (schema.h) produces the parser, --help, docs/configuration.md and the JSON Schema.
// All errors are found in one pass, each with file:line:col, a caret and the nearest known name.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace moehost {

// A device as the operator names it: "cpu", "cuda:1", "multicuda:0:3,1:3,cpu:2".
struct DeviceName {
  std::string kind;        // "cpu", "cuda", "multicuda"
  uint32_t index = 0;      // of a simple device
  struct Member { std::string kind; uint32_t index = 0; double weight = 1; };
  std::vector<Member> members;  // of a composite, else empty
  std::string text() const;     // canonical, always with the index: "cuda:0", "cpu:0"; composites as written
  bool operator==(const DeviceName& other) const { return text() == other.text(); }
};
// "cuda" = "cuda:0". Errors: kBadConfig naming what is wrong.
Result<DeviceName> parse_device(std::string_view text);

using Shares = std::vector<std::pair<DeviceName, double>>;  // in written order; weights > 0; one entry: a plain device

enum class Split { kLayers, kExperts, kColumns };
struct IdRange { uint32_t first = 0, last = 0; };  // inclusive
struct ExpertRule {
  std::optional<IdRange> layers, experts;  // absent: all
  DeviceName device;
  std::string where;  // "file:line:col" for messages
};
struct ExpertMap {
  Split split = Split::kLayers;
  Shares shares;
  std::vector<ExpertRule> rules;
};
struct DeviceMap {
  Shares non_expert_layers;             // empty: not given (best device other than cpu, else cpu)
  ExpertMap expert_layers;              // shares empty: not given ("cpu")
  std::optional<DeviceName> kv_cache;   // absent: with the attention that uses it
};

enum class KvDtype { kF32, kF16, kBF16 };
struct CpuMoeOptions {
  std::optional<uint32_t> num_threads;  // absent: auto = physical cores this process may use
  uint32_t batch_size = 32;             // tokens an expert call takes at most during prefill
};
struct ContextConfig {
  std::optional<uint32_t> max_tokens;   // absent: what the model was trained for, at most 8192
  uint32_t max_sequences = 1;
  KvDtype kv_dtype = KvDtype::kF16;
  uint32_t block_tokens = 32;           // tokens a KV block
  uint32_t prefill_chunk = 512;         // prompt tokens a step takes at most
};
struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  uint32_t max_queue = 256;             // requests that wait; one more gets 503
};
// Sampling defaults; absent values fall back to the model's generation config, then to the built-in default.
struct SamplingConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint32_t> top_k, max_tokens;
  std::optional<uint64_t> seed;
};

struct Config {
  std::string model;                         // path; relative ones already resolved against the file that named it
  std::vector<std::string> plugins;          // ids; empty: everything in the plugin folder
  std::optional<std::string> plugin_folder;  // absent: the installed one
  DeviceMap device_map;
  CpuMoeOptions cpu_moe_options;
  ContextConfig context;
  ServerConfig server;
  SamplingConfig sampling;
  std::map<std::string, std::map<std::string, std::string>> device_options;  // device name -> plugin option -> value
};

// Where values come from, weakest first: files in order, then environment (MOEHOST_DEVICE_MAP__KV_CACHE=cpu: "__" is
// the dot; MOEHOST_PLUGIN_DIR and MOEHOST_LOG are no keys, any other unknown name is an error), then sets
// ("device_map.kv_cache=cpu", from --set and the flags).
struct ConfigSources {
  std::vector<std::string> files;
  std::vector<std::pair<std::string, std::string>> environment;  // name, value: all that start with MOEHOST_
  std::vector<std::pair<std::string, std::string>> sets;         // "--set a.b=c" -> {"a.b", "c"}
};
struct ConfigResult {
  Config config;
  // Every problem, complete with place, source line, caret and suggestion, in order. Not empty: config is not valid.
  std::vector<std::string> errors;
  // Every effective value: path, value as text, origin ("tiny.yaml:3:5", "--set", "default").
  struct Origin { std::string path, value, origin; };
  std::vector<Origin> origins;
};
ConfigResult load_config(const ConfigSources& sources);

// Generated from the schema table: docs/configuration.md and the JSON Schema, printed by `moehost check --docs` and
// `--schema`.
std::string config_markdown();
std::string config_json_schema();

}  // namespace moehost

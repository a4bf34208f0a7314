// The schema: one table of every key, from which the parser, docs/configuration.md and the JSON Schema are made.
// Floor 2.
//
// To add a key: a field in Config and one line in schema.cpp. A test fails until docs/configuration.md is regenerated.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/config/config.h"
#include "core/config/document.h"

namespace moehost {

struct WholeRange {
  uint64_t min = 0, max = 0;  // inclusive
};
struct RealRange {
  double min = 0, max = 0;  // inclusive
};
using Choices = std::vector<std::string>;

struct Entry;

// One value being read: where it goes, and who hears of errors.
struct Reading {
  const Entry& entry;
  Config& config;
  Diagnostics& errors;
  std::map<std::string, ConfigResult::Origin>& origins;  // by path; a later source replaces

  void record(const std::string& path, const std::string& value, Span span);
  // "'server.port' must be a whole number from 0 to 65535, found 'abc'".
  void refuse(const Node& node, const std::string& hint = "");
};

struct Entry {
  enum class Kind { kWhole, kReal, kChoice, kText, kPath, kNames, kDevice, kShares, kExperts, kRules, kOptions };
  std::string path;  // "server.port"
  Kind kind;
  std::variant<std::monostate, WholeRange, RealRange, Choices> limits;
  bool may_be_auto = false;  // the text 'auto' stands for the default
  std::string default_text;  // as shown; computed from Config{} where that holds the value
  std::string help;          // one line
  // Sets the value of a node that is not kRefused, or records errors.
  std::function<void(const Node&, Reading&)> read;
};

// "a whole number from 0 to 65535": for messages and the documentation.
std::string allowed(const Entry& entry);

// All keys, in the order of the documentation. Of the entries below a path that is an entry itself (kExperts) the path
// is the short form.
const std::vector<Entry>& schema();
const Entry* find_entry(const std::string& path);  // null: no such key

// Other names of keys: {"max_sequence_length", "context.max_tokens"}.
const std::map<std::string, std::string>& schema_aliases();
// Keys of the design that this version does not know how to obey, by path.
const std::vector<std::string>& schema_planned();

// The names that may stand below prefix ("" or "server."), aliases included, in the order of the table.
std::vector<std::string> schema_children(const std::string& prefix);

// expert_layers as the long form: a device or shares become {split: layers, shares: node, rules: []}.
Node expand_experts(const Node& node);

}  // namespace moehost

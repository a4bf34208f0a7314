// Applies files, environment and sets, in this order, to one Config. Each becomes a tree of the same shape, which is
// walked along the schema.
#include "core/config/load.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

#include "core/base/mapped_file.h"
#include "core/config/document.h"
#include "core/config/schema.h"

namespace moehost {
namespace {

// Variables that are not keys; who reads them documents them.
constexpr const char* kOtherVariables[] = {"MOEHOST_PLUGIN_DIR", "MOEHOST_LOG"};

Result<std::string> read_regular_file(const std::string& path) {
  MOEHOST_ASSIGN(MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// One source on its way into the config.
class Loader {
 public:
  Loader(Diagnostics& errors, Config& config, std::map<std::string, ConfigResult::Origin>& origins)
      : errors_(errors), config_(config), origins_(origins) {}

  // map: what stands below prefix ("" or "server.").
  void walk(const Node& map, const std::string& prefix);

 private:
  void read_key(const Node& key, const Node& value, const std::string& prefix);
  void read_entry(const Entry& entry, const Node& key, const Node& value);
  void refuse_unknown(const Node& key, const std::string& prefix);

  Diagnostics& errors_;
  Config& config_;
  std::map<std::string, ConfigResult::Origin>& origins_;
  std::map<const Entry*, Node> given_;  // the key that an entry was given by
};

std::string without_dot(const std::string& prefix) { return prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1); }

void Loader::walk(const Node& map, const std::string& prefix) {
  if (map.kind == Node::Kind::kNull || map.kind == Node::Kind::kRefused) return;  // a section may be empty
  if (map.kind != Node::Kind::kMap) {
    const std::string what = prefix.empty() ? "the configuration" : quote(without_dot(prefix));
    if (map.text == "auto" && prefix == "device_map.")
      errors_.add(map.span, "'auto' as device_map is not supported by this version", "name devices or shares");
    else
      errors_.add(map.span, cat(what, " must be a map of keys to values"));
    return;
  }
  for (size_t i = 0; i < map.keys.size(); ++i) read_key(map.keys[i], map.items[i], prefix);
}

void Loader::read_key(const Node& key, const Node& value, const std::string& prefix) {
  const std::string written = prefix + key.text;
  const auto alias = schema_aliases().find(written);
  const std::string& path = alias == schema_aliases().end() ? written : alias->second;
  const std::vector<std::string> names = schema_children(prefix);
  const std::vector<std::string>& planned = schema_planned();
  if (std::find(planned.begin(), planned.end(), path) != planned.end()) {
    errors_.add(key.span, cat(quote(path), " is not supported by this version"), "leave it out");
  } else if (std::find(names.begin(), names.end(), key.text) == names.end()) {
    refuse_unknown(key, prefix);
  } else if (const Entry* entry = find_entry(path)) {
    read_entry(*entry, key, value);
  } else {
    walk(value, path + ".");
  }
}

void Loader::read_entry(const Entry& entry, const Node& key, const Node& value) {
  const auto [first, is_first] = given_.emplace(&entry, key);
  if (!is_first) {
    errors_.add(key.span, cat(quote(key.text), " and ", quote(first->second.text), " are the same setting"),
                cat("keep one of them; the other is at ", place_of(errors_.source(), first->second.span)));
  } else if (entry.kind == Entry::Kind::kExperts) {
    walk(expand_experts(value), entry.path + ".");
  } else if (value.kind != Node::Kind::kRefused) {
    Reading reading{entry, config_, errors_, origins_};
    entry.read(value, reading);
  }
}

void Loader::refuse_unknown(const Node& key, const std::string& prefix) {
  std::string hint = did_you_mean(key.text, schema_children(prefix));
  for (const Entry& entry : schema()) {  // the right name in the wrong place
    if (entry.path.ends_with("." + key.text)) hint = cat("did you mean ", quote(entry.path), "?");
  }
  const std::string where = prefix.empty() ? "" : cat(" in ", quote(without_dot(prefix)));
  errors_.add(key.span, cat("unknown key ", quote(key.text), where), hint);
}

// How "a.b" or "MOEHOST_A__B" is written.
struct KeyStyle {
  std::string_view prefix, separator;
  bool upper_case;  // where the schema has lower case
};
constexpr KeyStyle kSetStyle = {"", ".", false};
constexpr KeyStyle kEnvironmentStyle = {"MOEHOST_", "__", true};
constexpr size_t kMaxKeys = 8;  // in one path; the schema needs 3

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// The keys a and b of "a.b", with their places in it.
std::vector<Node> split_keys(const std::string& name, const KeyStyle& style) {
  std::vector<Node> out;
  for (size_t begin = style.prefix.size(); begin != std::string::npos;) {
    const size_t end = out.size() + 1 < kMaxKeys ? name.find(style.separator, begin) : std::string::npos;
    Node key;
    key.kind = Node::Kind::kScalar;
    key.text = name.substr(begin, end - begin);
    if (style.upper_case) key.text = lower_case(std::move(key.text));
    key.span = {begin, begin + key.text.size()};
    out.push_back(std::move(key));
    begin = end == std::string::npos ? end : end + style.separator.size();
  }
  return out;
}

// The tree {a: {b: value}}.
Node nest(std::vector<Node> keys, Node value) {
  if (value.kind == Node::Kind::kNull) value.span = keys.back().span;
  for (; !keys.empty(); keys.pop_back()) {
    Node map;
    map.kind = Node::Kind::kMap;
    map.span = keys.back().span;
    map.keys.push_back(std::move(keys.back()));
    map.items.push_back(std::move(value));
    value = std::move(map);
  }
  return value;
}

class Collector {
 public:
  void add_file(const std::string& path, const FileReader& read_file) {
    Result<std::string> text = read_file(path);
    if (!text.ok()) {
      result_.errors.push_back(cat("error: ", text.status().message()));
      return;
    }
    Source source{path, *std::move(text), true, std::filesystem::path(path).parent_path().string()};
    if (source.text.starts_with("\xef\xbb\xbf")) source.text.erase(0, 3);  // a byte order mark
    apply(source, 0, [](Node root, Diagnostics& errors) {
      if (root.kind == Node::Kind::kNull) errors.add({0, 0}, "the file says nothing", "'model: PATH' is a start");
      return root;
    });
  }

  // A source "name=value": a --set, or an environment variable.
  void add_assignment(const std::string& source_name, const std::string& name, const std::string& value,
                      const KeyStyle& style) {
    const Source source{source_name, cat(name, "=", value), false, ""};
    apply(source, name.size() + 1,
          [&](Node node, Diagnostics&) { return nest(split_keys(name, style), std::move(node)); });
  }

  ConfigResult take() {
    for (const Entry& entry : schema()) {
      if (entry.kind == Entry::Kind::kExperts || entry.kind == Entry::Kind::kOptions) continue;  // only their parts
      origins_.try_emplace(entry.path, ConfigResult::Origin{entry.path, entry.default_text, "default"});
    }
    for (const Entry& entry : schema()) take_origins(entry);
    return std::move(result_);
  }

 private:
  template <class Finish>
  void apply(const Source& source, size_t offset, Finish finish) {
    Diagnostics errors(source);
    if (std::optional<Node> root = read_document(offset, errors))
      Loader(errors, result_.config, origins_).walk(finish(*std::move(root), errors), "");
    std::vector<std::string> texts = errors.texts();
    std::move(texts.begin(), texts.end(), std::back_inserter(result_.errors));
  }

  // The origins of an entry: one, or of options any number.
  void take_origins(const Entry& entry) {
    if (entry.kind == Entry::Kind::kOptions) {
      for (auto it = origins_.lower_bound(entry.path + ".");
           it != origins_.end() && it->first.starts_with(entry.path + "."); ++it)
        result_.origins.push_back(it->second);
    } else if (const auto it = origins_.find(entry.path); it != origins_.end()) {
      result_.origins.push_back(it->second);
    }
  }

  ConfigResult result_;
  std::map<std::string, ConfigResult::Origin> origins_;
};

}  // namespace

ConfigResult load_config(const ConfigSources& sources, const FileReader& read_file) {
  Collector collector;
  for (const std::string& path : sources.files) collector.add_file(path, read_file);
  for (const auto& [name, value] : sources.environment) {
    const auto is_name = [&name = name](const char* other) { return name == other; };
    if (std::any_of(std::begin(kOtherVariables), std::end(kOtherVariables), is_name)) continue;
    if (name.starts_with(kEnvironmentStyle.prefix)) collector.add_assignment(name, name, value, kEnvironmentStyle);
  }
  for (const auto& [path, value] : sources.sets) collector.add_assignment("--set", path, value, kSetStyle);
  return collector.take();
}

ConfigResult load_config(const ConfigSources& sources) { return load_config(sources, read_regular_file); }

}  // namespace moehost

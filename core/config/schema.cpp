// The table of keys.
#include "core/config/schema.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "core/base/status.h"
#include "core/config/number.h"
#include "core/config/values.h"

namespace moehost {
namespace {

using Kind = Entry::Kind;

template <class T>
struct StripOptional {
  using type = T;
};
template <class T>
struct StripOptional<std::optional<T>> {
  using type = T;
};
// The type of the value that an accessor of Config refers to, without std::optional.
template <class Access>
using ValueOf = typename StripOptional<std::remove_reference_t<std::invoke_result_t<Access, Config&>>>::type;

// The value at a path of members: at(&Config::server, &ServerConfig::port).
template <class... Members>
auto at(Members... members) {
  // clang-format off
  return [=](Config& config) -> auto& { return (config .* ... .* members); };
  // clang-format on
}

// An entry whose value `parse(node, reading)` returns, if it is valid, and `access(config)` holds.
template <class Access, class Parse>
Entry make(const char* path, Kind kind, Access access, Parse parse, std::string default_text, const char* help) {
  Entry entry{.path = path, .kind = kind, .default_text = std::move(default_text), .help = help};
  entry.read = [access, parse](const Node& node, Reading& reading) {
    auto value = parse(node, reading);
    if (!value) return;
    std::string shown = text_of(node);
    if constexpr (std::is_same_v<ValueOf<Access>, std::string>) shown = *value;  // a path is resolved by now
    reading.record(reading.entry.path, shown, node.span);
    access(reading.config) = static_cast<ValueOf<Access>>(*std::move(value));
  };
  return entry;
}

// The default of a number that Config{} holds.
template <class Access>
std::string default_of(Access access) {
  Config config;
  return format_real(static_cast<double>(access(config)));
}

template <class Access>
Entry whole(const char* path, Access access, WholeRange range, std::string default_text, const char* help) {
  Entry entry = make(path, Kind::kWhole, access, read_whole, std::move(default_text), help);
  entry.limits = range;
  return entry;
}

template <class Access>
Entry whole(const char* path, Access access, WholeRange range, const char* help) {
  return whole(path, access, range, default_of(access), help);
}

// A whole number that is absent from Config when it is 'auto', the default.
template <class Access>
Entry whole_or_auto(const char* path, Access access, WholeRange range, const char* help) {
  Entry entry = whole(path, access, range, "auto", help);
  entry.may_be_auto = true;
  entry.read = [access, number = entry.read](const Node& node, Reading& reading) {
    if (node.kind != Node::Kind::kScalar || node.text != "auto") return number(node, reading);
    access(reading.config).reset();
    reading.record(reading.entry.path, "auto", node.span);
  };
  return entry;
}

template <class Access>
Entry real(const char* path, Access access, RealRange range, std::string default_text, const char* help) {
  Entry entry = make(path, Kind::kReal, access, read_real, std::move(default_text), help);
  entry.limits = range;
  return entry;
}

// The names stand in the order of the enumerators, the first being 0.
template <class Access>
Entry choice(const char* path, Access access, Choices names, const char* help) {
  Config config;
  std::string default_text = names[static_cast<size_t>(access(config))];
  Entry entry = make(path, Kind::kChoice, access, read_choice, std::move(default_text), help);
  entry.limits = std::move(names);
  return entry;
}

constexpr uint64_t kMaxTokens = uint64_t{1} << 24;  // longer than the context of any model known

std::vector<Entry> device_entries() {
  Entry experts{.path = "device_map.expert_layers", .kind = Kind::kExperts, .default_text = "cpu"};
  experts.help = "Where the routed experts live: a device, shares, or the long form.";
  Entry options{.path = "device_options", .kind = Kind::kOptions, .default_text = "none"};
  options.help = "Options for the plugin of a device, handed over as text.";
  options.read = read_options;
  return {
      make("device_map.non_expert_layers", Kind::kShares, at(&Config::device_map, &DeviceMap::non_expert_layers),
           read_shares, "the best device other than cpu, else cpu",
           "Where attention, norms, router and shared experts live; shares are by layer."),
      std::move(experts),
      choice("device_map.expert_layers.split", at(&Config::device_map, &DeviceMap::expert_layers, &ExpertMap::split),
             {"layers", "experts", "columns"},
             "What the shares divide: whole layers, the experts of every layer, or every expert."),
      make("device_map.expert_layers.shares", Kind::kShares,
           at(&Config::device_map, &DeviceMap::expert_layers, &ExpertMap::shares), read_shares, "cpu",
           "Devices with their weights; the unit is the sum."),
      make("device_map.expert_layers.rules", Kind::kRules,
           at(&Config::device_map, &DeviceMap::expert_layers, &ExpertMap::rules), read_rules, "none",
           "Exceptions from the shares; later rules win."),
      make("device_map.kv_cache", Kind::kDevice, at(&Config::device_map, &DeviceMap::kv_cache), read_device,
           "with the attention that uses it", "Where keys and values of past tokens are kept."),
      std::move(options),
  };
}

std::vector<Entry> limit_entries() {
  return {
      whole_or_auto("cpu_moe_options.num_threads", at(&Config::cpu_moe_options, &CpuMoeOptions::num_threads), {1, 4096},
                    "Threads of a cpu device; auto: the physical cores this process may use."),
      whole("cpu_moe_options.batch_size", at(&Config::cpu_moe_options, &CpuMoeOptions::batch_size), {1, 65536},
            "Tokens an expert call takes at most during prefill."),
      whole_or_auto("context.max_tokens", at(&Config::context, &ContextConfig::max_tokens), {1, kMaxTokens},
                    "Prompt and answer together; auto: what the model was trained for, at most 8192."),
      whole("context.max_sequences", at(&Config::context, &ContextConfig::max_sequences), {1, 4096},
            "Sequences that have a place in the KV cache."),
      choice("context.kv_dtype", at(&Config::context, &ContextConfig::kv_dtype), {"f32", "f16", "bf16"},
             "How keys and values are stored."),
      whole("context.block_tokens", at(&Config::context, &ContextConfig::block_tokens), {1, 4096},
            "Tokens a block of the KV cache holds."),
      whole("context.prefill_chunk", at(&Config::context, &ContextConfig::prefill_chunk), {1, 65536},
            "Prompt tokens a step takes at most."),
      make("server.host", Kind::kText, at(&Config::server, &ServerConfig::host), read_text, ServerConfig().host,
           "Address to listen on; 0.0.0.0 is reachable from other machines."),
      whole("server.port", at(&Config::server, &ServerConfig::port), {0, 65535}, "Port to listen on; 0: any free one."),
      whole("server.max_queue", at(&Config::server, &ServerConfig::max_queue), {0, 65536},
            "Requests that may wait; one more is answered 503."),
  };
}

std::vector<Entry> sampling_entries() {
  return {
      real("sampling.temperature", at(&Config::sampling, &SamplingConfig::temperature), {0, 100},
           "the model's, else 0.7", "0 always takes the most likely token; higher is more varied."),
      whole("sampling.top_k", at(&Config::sampling, &SamplingConfig::top_k), {0, kMaxTokens}, "the model's, else 40",
            "Draws from this many most likely tokens; 0: from all."),
      real("sampling.top_p", at(&Config::sampling, &SamplingConfig::top_p), {0, 1}, "the model's, else 0.95",
           "Draws from the fewest tokens whose probabilities reach this sum."),
      real("sampling.min_p", at(&Config::sampling, &SamplingConfig::min_p), {0, 1}, "the model's, else 0",
           "Drops tokens less likely than this fraction of the most likely one."),
      real("sampling.repetition_penalty", at(&Config::sampling, &SamplingConfig::repetition_penalty), {0.01, 100},
           "the model's, else 1", "Above 1 makes tokens seen before less likely."),
      whole("sampling.seed", at(&Config::sampling, &SamplingConfig::seed), {0, UINT64_MAX}, "0",
            "Same seed, prompt and settings give the same answer."),
      whole("sampling.max_tokens", at(&Config::sampling, &SamplingConfig::max_tokens), {1, kMaxTokens}, "256",
            "Tokens an answer has at most."),
  };
}

// Checked only: Config is of version 1.
Entry version_entry() {
  Entry entry{.path = "version", .kind = Kind::kWhole, .limits = WholeRange{1, 1}, .default_text = "1"};
  entry.help = "Version of this format.";
  entry.read = [](const Node& node, Reading& reading) {
    if (read_whole(node, reading)) reading.record(reading.entry.path, node.text, node.span);
  };
  return entry;
}

std::vector<Entry> make_schema() {
  std::vector<Entry> out = {
      version_entry(),
      make("model", Kind::kPath, at(&Config::model), read_path, "none: named on the command line",
           "A GGUF file (or its first shard). Relative to the file that names it."),
      make("plugins", Kind::kNames, at(&Config::plugins), read_names, "everything in the plugin folder",
           "Ids of the plugins that may be loaded."),
      make("plugin_folder", Kind::kPath, at(&Config::plugin_folder), read_path, "the installed one",
           "Where plugins are looked for. Relative to the file that names it."),
  };
  const auto append = [&](std::vector<Entry> entries) {
    std::move(entries.begin(), entries.end(), std::back_inserter(out));
  };
  append(device_entries());
  append(limit_entries());
  append(sampling_entries());
  return out;
}

}  // namespace

std::string allowed(const Entry& entry) {
  switch (entry.kind) {
    case Kind::kWhole: {
      const auto& range = std::get<WholeRange>(entry.limits);
      if (range.min == range.max) return std::to_string(range.min);
      return cat("a whole number from ", range.min, " to ", range.max, entry.may_be_auto ? ", or auto" : "");
    }
    case Kind::kReal: {
      const auto& range = std::get<RealRange>(entry.limits);
      return cat("a number from ", range.min, " to ", range.max);
    }
    case Kind::kChoice: {
      const auto& names = std::get<Choices>(entry.limits);
      std::string out;
      for (size_t i = 0; i < names.size(); ++i)
        out += cat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", names[i]);
      return out;
    }
    case Kind::kText:
      return "text";
    case Kind::kPath:
      return "a path";
    case Kind::kNames:
      return "a list of plugin ids";
    case Kind::kDevice:
      return "a device";
    case Kind::kShares:
      return "a device, or a map of devices to weights";
    case Kind::kExperts:
      return "a device, a map of devices to weights, or the long form";
    case Kind::kRules:
      return "a list of rules";
    case Kind::kOptions:
      return "a map of devices to maps of options";
  }
  MOEHOST_CHECK(!"every kind has its text");
  return "";
}

const std::vector<Entry>& schema() {
  static const std::vector<Entry> entries = make_schema();
  return entries;
}

const Entry* find_entry(const std::string& path) {
  for (const Entry& entry : schema()) {
    if (entry.path == path) return &entry;
  }
  return nullptr;
}

const std::map<std::string, std::string>& schema_aliases() {
  static const std::map<std::string, std::string> aliases = {{"max_sequence_length", "context.max_tokens"}};
  return aliases;
}

const std::vector<std::string>& schema_planned() {
  static const std::vector<std::string> planned = {
      "device_map.prefill",
      "device_map.expert_profile",
      "device_map.expert_layers.prefill",
      "device_map.expert_layers.expert_profile",
      "device_map.expert_layers.balance",
  };
  return planned;
}

std::vector<std::string> schema_children(const std::string& prefix) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& path) {
    if (!path.starts_with(prefix)) return;
    std::string name = path.substr(prefix.size(), path.find('.', prefix.size()) - prefix.size());
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(std::move(name));
  };
  for (const Entry& entry : schema()) add(entry.path);
  for (const auto& alias : schema_aliases()) add(alias.first);
  return out;
}

Node expand_experts(const Node& node) {
  const auto is_long_key = [](const Node& key) {
    const std::string prefix = "device_map.expert_layers.";
    const std::vector<std::string> names = schema_children(prefix);
    const std::vector<std::string>& planned = schema_planned();
    return std::find(names.begin(), names.end(), key.text) != names.end() ||
           std::find(planned.begin(), planned.end(), prefix + key.text) != planned.end();
  };
  // A map below a device can only be a long form with a key misspelt: `share: {cpu: 1}`.
  const auto is_container = [](const Node& item) {
    return item.kind == Node::Kind::kMap || item.kind == Node::Kind::kList;
  };
  if (node.kind == Node::Kind::kMap && (std::any_of(node.keys.begin(), node.keys.end(), is_long_key) ||
                                        std::any_of(node.items.begin(), node.items.end(), is_container)))
    return node;
  const auto scalar = [&](const char* text) { return Node{Node::Kind::kScalar, text, false, node.span, {}, {}}; };
  Node out{Node::Kind::kMap, "", false, node.span, {}, {}};
  out.keys = {scalar("split"), scalar("shares"), scalar("rules")};
  out.items = {scalar("layers"), node, Node{Node::Kind::kList, "", false, node.span, {}, {}}};
  return out;
}

}  // namespace moehost

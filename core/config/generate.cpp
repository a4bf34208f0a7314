// docs/configuration.md and the JSON Schema, made from the schema table.
#include <nlohmann/json.hpp>

#include "core/base/status.h"
#include "core/config/schema.h"

namespace moehost {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kIntroduction = R"(# Configuration

<!-- Made by `moehost check --docs > docs/configuration.md` from the table in core/config/schema.cpp. Do not edit. -->

A configuration is a YAML file, or a JSON file with the same keys:

    moehost --config configs/demo.yaml

Every key has a default, so a file says only what differs. Examples are in `configs/`. `moehost check` validates a
file and shows all errors at once; `moehost check --origin` prints every value in force and where it came from;
`moehost check --schema` prints a JSON Schema for editors.

## Where values come from

The later of these wins: built-in defaults; the model's own generation settings (for `sampling`); files in the order
given; the environment; `--set` and the flags.

| where | how |
|---|---|
| file | `device_map: {kv_cache: cpu}` |
| environment | `MOEHOST_DEVICE_MAP__KV_CACHE=cpu`: upper case, two underscores for the dot |
| command line | `--set device_map.kv_cache=cpu` |

Values of the environment and of `--set` are YAML too: `--set 'device_map.expert_layers={cuda:0: 1, cpu: 19}'`. A map
of shares replaces the one of an earlier source, it does not add to it. `MOEHOST_PLUGIN_DIR` (the plugin folder) and
`MOEHOST_LOG` are not keys; any other variable that begins with `MOEHOST_` and is no key is an error.
`--device X` stands for `device_map.non_expert_layers`, `--moe-device X` for `device_map.expert_layers`.

## Keys
)";

constexpr const char* kDevices = R"(
## Devices and shares

    device  := kind [":" index]                          cpu   cuda:1   reference   cuda = cuda:0
             | "multi" kind ":" member ("," member)*     multicuda:0,1
    member  := index [":" weight] | kind [":" weight]    multicuda:0:3,1:3,cpu:2
    shares  := { device: weight, ... }                   weights above 0; the unit is their sum

`{cuda:0: 1, cpu: 19}` gives `cuda:0` 1/20 and `cpu` 19/20. In braces a space follows the colon before the weight, and a
composite is quoted, as it holds commas: `{'multicuda:0:3,1:3,cpu:2': 15, cpu: 85}`. The form
`{'cuda':1,'cpu':19}` is read as well.

The long form of `device_map.expert_layers` says how to split and lists exceptions:

```yaml
device_map:
  expert_layers:
    split: layers                # layers | experts | columns
    shares: {cuda:0: 1, cpu: 19}
    rules:                       # later rules win; a rule that matches nothing is an error
      - {layers: 0-3, device: cuda:0}
      - {layers: 58, experts: 0-31, device: cuda:0}
```

* `layers`: `cuda:0` runs 1/20 of the MoE layers, in listed order from the first, at least one layer a share.
* `experts`: in every layer it runs 1/20 of the experts, by index.
* `columns`: it computes 1/20 of every expert's intermediate dimension, rounded to what the devices can slice.

A device or shares in place of the long form mean `split: layers` without rules. The long form sets only the keys that
it names, the short form replaces all three.

`device_options` hands text to the plugin of a device: `device_options: {cpu: {pin_threads: no}}`.
)";

constexpr const char* kErrors = R"(
## Errors

All of them at once, with place, caret and the nearest known name; `moehost` then exits with 78:

    deepseek.yaml:14:5: error: unknown key 'max_contxt' in 'context'
       14 |     max_contxt: 32768
          |     ^~~~~~~~~~ did you mean 'max_tokens'?

What YAML would let pass is refused: duplicate keys, a second document, anchors and aliases, tags, numbers with leading
zeros (`010` is 8 to YAML) or in quotes, `.nan` and `.inf`, invalid UTF-8, files without content or above 1 MiB. There
are no true and false: `no` is the text `no`.
)";

// The table of the entries of one section; entries without section have the empty one.
std::string section_table(const std::string& section) {
  std::string out = cat("\n### ", section.empty() ? "Top level" : cat("`", section, "`"), "\n\n",
                        "| key | value | default | meaning |\n|---|---|---|---|\n");
  for (const Entry& entry : schema()) {
    if (entry.path.substr(0, entry.path.find('.')) != section &&
        !(section.empty() && entry.path.find('.') == std::string::npos))
      continue;
    out += cat("| `", entry.path, "` | ", allowed(entry), " | ", entry.default_text, " | ", entry.help, " |\n");
  }
  return out;
}

Json device_schema() { return {{"type", "string"}}; }
Json shares_schema() {
  return {{"type", "object"},
          {"minProperties", 1},
          {"additionalProperties", {{"type", "number"}, {"exclusiveMinimum", 0}}}};
}
Json text_schema() { return {{"type", "string"}, {"minLength", 1}}; }

Json rules_schema() {
  const Json range = {{"type", {"integer", "string"}}, {"minimum", 0}, {"pattern", "^[0-9]+(-[0-9]+)?$"}};
  const Json rule = {{"type", "object"},
                     {"properties", {{"layers", range}, {"experts", range}, {"device", device_schema()}}},
                     {"required", Json::array({"device"})},
                     {"additionalProperties", false}};
  return {{"type", "array"}, {"items", rule}};
}

Json object_schema(const std::string& prefix);

Json value_schema(const Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::kWhole: {
      const auto& range = std::get<WholeRange>(entry.limits);
      const Json number = {{"type", "integer"}, {"minimum", range.min}, {"maximum", range.max}};
      return entry.may_be_auto ? Json{{"anyOf", Json::array({number, {{"const", "auto"}}})}} : number;
    }
    case Entry::Kind::kReal: {
      const auto& range = std::get<RealRange>(entry.limits);
      return {{"type", "number"}, {"minimum", range.min}, {"maximum", range.max}};
    }
    case Entry::Kind::kChoice:
      return {{"enum", std::get<Choices>(entry.limits)}};
    case Entry::Kind::kText:
    case Entry::Kind::kPath:
      return text_schema();
    case Entry::Kind::kNames:
      return {{"type", "array"}, {"minItems", 1}, {"items", text_schema()}};
    case Entry::Kind::kDevice:
      return device_schema();
    case Entry::Kind::kShares:
      return {{"anyOf", Json::array({device_schema(), shares_schema()})}};
    case Entry::Kind::kExperts:
      return {{"anyOf", Json::array({device_schema(), shares_schema(), object_schema(entry.path + ".")})}};
    case Entry::Kind::kRules:
      return rules_schema();
    case Entry::Kind::kOptions:
      return {{"type", "object"},
              {"additionalProperties",
               {{"type", "object"}, {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}}}};
  }
  MOEHOST_CHECK(!"every kind has its schema");
  return {};
}

// The object of the keys below prefix ("" or "server.").
Json object_schema(const std::string& prefix) {
  Json properties = Json::object();
  for (const std::string& name : schema_children(prefix)) {
    const auto alias = schema_aliases().find(prefix + name);
    const std::string path = alias == schema_aliases().end() ? prefix + name : alias->second;
    if (const Entry* entry = find_entry(path)) {
      properties[name] = value_schema(*entry);
      properties[name]["description"] = cat(entry->help, " Default: ", entry->default_text, ".");
    } else {
      properties[name] = object_schema(path + ".");
    }
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

}  // namespace

std::string config_markdown() {
  std::string out = kIntroduction;
  out += section_table("");
  for (const std::string& name : schema_children("")) {
    const bool is_section = !find_entry(name) && !schema_aliases().contains(name);
    if (is_section) out += section_table(name);
  }
  out += "\nOther names of the same keys:";
  for (const auto& [alias, path] : schema_aliases()) out += cat(" `", alias, "` for `", path, "`");
  out += ". Reserved, and refused by this version:";
  for (const std::string& path : schema_planned())
    out += cat(&path == &schema_planned().front() ? " `" : ", `", path, "`");
  out += ", and `auto` in place of a device.\n";
  return cat(out, kDevices, kErrors);
}

std::string config_json_schema() {
  Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "moehost configuration"}};
  out.update(object_schema(""));
  return out.dump(2) + "\n";
}

}  // namespace moehost

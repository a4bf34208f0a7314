// The readers of values.h, and what they say of a value that is not allowed.
#include "core/config/values.h"

#include <algorithm>
#include <filesystem>

#include "core/base/status.h"
#include "core/config/number.h"

namespace moehost {
namespace {

constexpr uint32_t kMaxId = 65535;  // of a layer or an expert

std::string found(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kMap:
      return node.items.empty() ? "found an empty map" : "found a map";
    case Node::Kind::kList:
      return node.items.empty() ? "found an empty list" : "found a list";
    case Node::Kind::kScalar:
      return cat("found ", quote(node.text), node.quoted ? " in quotes" : "");
    default:
      return "found no value";
  }
}

bool is_number_shaped(const Node& node) { return node.kind == Node::Kind::kScalar && !node.quoted; }

// What to do about a number that is not read, where that is not obvious.
std::string number_hint(const Node& node) {
  if (node.kind != Node::Kind::kScalar) return "";
  if (node.quoted && parse_real(node.text)) return "write it without quotes";
  if (node.text.size() > 1 && node.text[0] == '0' && !parse_real(node.text))
    return "write decimal numbers without leading zeros";
  return "";
}

std::optional<DeviceName> device_of(const Node& node, Reading& reading) {
  Result<DeviceName> device = parse_device(node.text);
  if (device.ok()) return *std::move(device);
  reading.errors.add(node.span, device.status().message());
  return std::nullopt;
}

// "3" or "0-31".
std::optional<IdRange> parse_range(const std::string& text) {
  const size_t dash = text.find('-');
  const std::optional<uint64_t> first = parse_whole(text.substr(0, dash));
  const std::optional<uint64_t> last = dash == std::string::npos ? first : parse_whole(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last > kMaxId) return std::nullopt;
  return IdRange{static_cast<uint32_t>(*first), static_cast<uint32_t>(*last)};
}

std::optional<IdRange> read_range(const std::string& key, const Node& node, Reading& reading) {
  std::optional<IdRange> range;
  if (node.kind == Node::Kind::kScalar) range = parse_range(node.text);
  if (!range)
    reading.errors.add(node.span, cat(quote(key), " of a rule must be a number or a range such as 0-3, up to ", kMaxId,
                                      ", ", found(node)));
  return range;
}

std::optional<ExpertRule> read_rule(const Node& node, Reading& reading) {
  static const std::vector<std::string> keys = {"layers", "experts", "device"};
  if (node.kind != Node::Kind::kMap) {
    if (node.kind != Node::Kind::kRefused)
      reading.errors.add(node.span, cat("a rule must be a map such as {layers: 0-3, device: cpu}, ", found(node)));
    return std::nullopt;
  }
  const size_t errors_before = reading.errors.count();
  ExpertRule rule;
  bool has_device = false;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const Node& key = node.keys[i];
    const Node& value = node.items[i];
    if (std::find(keys.begin(), keys.end(), key.text) == keys.end()) {
      reading.errors.add(key.span, cat("unknown key ", quote(key.text), " in a rule"), did_you_mean(key.text, keys));
    } else if (key.text == "device") {
      has_device = true;
      if (std::optional<DeviceName> device = read_device(value, reading)) rule.device = *std::move(device);
    } else if (value.kind != Node::Kind::kRefused) {
      (key.text == "layers" ? rule.layers : rule.experts) = read_range(key.text, value, reading);
    }
  }
  if (!has_device) reading.errors.add(node.span, "a rule must name its 'device'");
  rule.where = place_of(reading.errors.source(), node.span);
  if (reading.errors.count() != errors_before) return std::nullopt;
  return rule;
}

void read_options_of(const DeviceName& device, const Node& options, Reading& reading) {
  for (size_t i = 0; i < options.keys.size(); ++i) {
    const Node& key = options.keys[i];
    std::optional<std::string> value = read_text(options.items[i], reading);
    if (!value) continue;
    reading.record(cat(reading.entry.path, ".", device.text(), ".", key.text), *value, options.items[i].span);
    reading.config.device_options[device.text()][key.text] = *std::move(value);
  }
}

}  // namespace

void Reading::refuse(const Node& node, const std::string& hint) {
  if (node.kind == Node::Kind::kRefused) return;
  errors.add(node.span, cat(quote(entry.path), " must be ", allowed(entry), ", ", found(node)), hint);
}

void Reading::record(const std::string& path, const std::string& value, Span span) {
  origins[path] = {path, value, place_of(errors.source(), span)};
}

std::optional<uint64_t> read_whole(const Node& node, Reading& reading) {
  const auto& range = std::get<WholeRange>(reading.entry.limits);
  const std::optional<uint64_t> value = is_number_shaped(node) ? parse_whole(node.text) : std::nullopt;
  if (value && *value >= range.min && *value <= range.max) return value;
  reading.refuse(node, number_hint(node));
  return std::nullopt;
}

std::optional<double> read_real(const Node& node, Reading& reading) {
  const auto& range = std::get<RealRange>(reading.entry.limits);
  const std::optional<double> value = is_number_shaped(node) ? parse_real(node.text) : std::nullopt;
  if (value && *value >= range.min && *value <= range.max) return value;
  reading.refuse(node, number_hint(node));
  return std::nullopt;
}

std::optional<size_t> read_choice(const Node& node, Reading& reading) {
  const auto& names = std::get<Choices>(reading.entry.limits);
  const bool scalar = node.kind == Node::Kind::kScalar;
  const auto it = scalar ? std::find(names.begin(), names.end(), node.text) : names.end();
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  reading.refuse(node, scalar ? did_you_mean(node.text, names) : "");
  return std::nullopt;
}

std::optional<std::string> read_text(const Node& node, Reading& reading) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  const std::string& text = node.text;
  if (node.kind == Node::Kind::kScalar && !text.empty() && std::none_of(text.begin(), text.end(), control)) return text;
  reading.refuse(node, node.kind == Node::Kind::kMap ? "quote text with ': ' in it" : "");
  return std::nullopt;
}

std::optional<std::string> read_path(const Node& node, Reading& reading) {
  std::optional<std::string> text = read_text(node, reading);
  const std::string& folder = reading.errors.source().folder;
  if (!text || folder.empty() || std::filesystem::path(*text).is_absolute()) return text;
  return (std::filesystem::path(folder) / *text).string();  // not normalised: `..` may leave a symbolic link
}

std::optional<std::vector<std::string>> read_names(const Node& node, Reading& reading) {
  constexpr const char* kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  if (node.kind != Node::Kind::kList || node.items.empty()) {
    reading.refuse(node, node.kind == Node::Kind::kScalar ? "put it in brackets: [...]" : "");
    return std::nullopt;
  }
  const size_t errors_before = reading.errors.count();
  std::vector<std::string> out;
  for (const Node& item : node.items) {
    if (item.kind == Node::Kind::kRefused) continue;
    if (item.kind != Node::Kind::kScalar || item.text.empty() ||
        item.text.find_first_not_of(kCharacters) != std::string::npos) {
      reading.errors.add(item.span, cat("a plugin id must be letters, digits, '_' or '-', ", found(item)));
    } else if (std::find(out.begin(), out.end(), item.text) != out.end()) {
      reading.errors.add(item.span, cat(quote(item.text), " is listed twice"));
    } else {
      out.push_back(item.text);
    }
  }
  if (reading.errors.count() != errors_before) return std::nullopt;
  return out;
}

std::optional<DeviceName> read_device(const Node& node, Reading& reading) {
  if (node.kind == Node::Kind::kScalar) return device_of(node, reading);
  if (node.kind != Node::Kind::kRefused)
    reading.errors.add(node.span, cat("a device name such as cpu or cuda:0 is expected, ", found(node)));
  return std::nullopt;
}

std::optional<Shares> read_shares(const Node& node, Reading& reading) {
  if (node.kind == Node::Kind::kScalar) {
    std::optional<DeviceName> device = device_of(node, reading);
    if (!device) return std::nullopt;
    return Shares{{*std::move(device), 1.0}};
  }
  if (node.kind != Node::Kind::kMap || node.items.empty()) {
    reading.refuse(node);
    return std::nullopt;
  }
  const size_t errors_before = reading.errors.count();
  Shares out;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const Node& key = node.keys[i];
    const Node& value = node.items[i];
    const std::optional<DeviceName> device = device_of(key, reading);
    if (!device || value.kind == Node::Kind::kRefused) continue;
    const auto same = [&](const auto& share) { return share.first == *device; };
    if (std::any_of(out.begin(), out.end(), same))
      reading.errors.add(key.span, cat("the device ", quote(device->text()), " has a share already"));
    if (!is_number_shaped(value)) {
      reading.errors.add(value.span, cat("the weight of ", quote(key.text), " must be a number, ", found(value)),
                         value.kind == Node::Kind::kNull ? "write 'device: weight', with a space" : number_hint(value));
      continue;
    }
    const Result<double> weight = parse_weight(value.text);
    if (!weight.ok()) reading.errors.add(value.span, weight.status().message(), number_hint(value));
    out.emplace_back(*device, weight.ok() ? *weight : 0.0);
  }
  if (reading.errors.count() != errors_before) return std::nullopt;
  return out;
}

std::optional<std::vector<ExpertRule>> read_rules(const Node& node, Reading& reading) {
  if (node.kind != Node::Kind::kList) {
    reading.refuse(node);
    return std::nullopt;
  }
  const size_t errors_before = reading.errors.count();
  std::vector<ExpertRule> out;
  for (const Node& item : node.items) {
    if (std::optional<ExpertRule> rule = read_rule(item, reading)) out.push_back(*std::move(rule));
  }
  if (reading.errors.count() != errors_before) return std::nullopt;
  return out;
}

void read_options(const Node& node, Reading& reading) {
  if (node.kind != Node::Kind::kMap) return reading.refuse(node);
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const Node& key = node.keys[i];
    const Node& options = node.items[i];
    const std::optional<DeviceName> device = device_of(key, reading);
    if (!device) continue;
    if (!device->members.empty())
      reading.errors.add(key.span, "options belong to one device, not to a composite", "name its members");
    else if (options.kind != Node::Kind::kMap)
      reading.refuse(options);
    else
      read_options_of(*device, options, reading);
  }
}

}  // namespace moehost

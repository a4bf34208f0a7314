// moehost inspect: what is in a model file.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/moehost/commands.h"
#include "core/base/text_format.h"
#include "core/format/dtype.h"
#include "core/format/gguf.h"

namespace moehost {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownEntries = 8;  // of an array, without --json
constexpr size_t kShownText = 100;   // bytes of a string, without --json

Json to_json(const GgufValue& value) {
  return std::visit([](const auto& data) { return Json(data); }, value.data);
}

std::string shape_text(const GgufTensor& tensor) {
  std::string out = "[";
  for (uint32_t i = 0; i < tensor.dimensions; ++i) out += cat(i ? ", " : "", tensor.shape[i]);
  return out + "]";
}

// One line, cut where it is long.
std::string short_text(const GgufValue& value) {
  Json json = to_json(value);
  if (!json.is_array()) {
    std::string text = json.is_string() ? printable(json.get<std::string>()) : json.dump();
    return text.size() <= kShownText ? text : cat(text.substr(0, kShownText), " ... (", text.size(), " bytes)");
  }
  const size_t count = json.size();
  if (count > kShownEntries) json.erase(json.begin() + kShownEntries, json.end());
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return count <= kShownEntries ? text : cat(text.substr(0, text.size() - 1), ", ...] (", count, " entries)");
}

void print_text(const GgufFile& file) {
  uint64_t bytes = 0;
  for (const MappedFile& shard : file.files()) bytes += shard.size();
  std::cout << file.path() << ": GGUF v" << file.version() << ", " << file.files().size() << " file(s), "
            << format_bytes(bytes) << ", " << file.metadata().size() << " keys, " << file.tensors().size()
            << " tensors\n";
  for (const auto& [key, value] : file.metadata())
    std::cout << "  " << printable(key) << " = " << short_text(value) << "\n";
  for (const GgufTensor& tensor : file.tensors())
    std::cout << "  " << printable(tensor.name) << "  " << format_name(tensor.format) << " " << shape_text(tensor)
              << "  " << format_bytes(tensor.bytes) << " at byte " << tensor.offset << "\n";
}

void print_json(const GgufFile& file) {
  Json out = {{"path", file.path()},
              {"version", file.version()},
              {"files", file.files().size()},
              {"metadata", Json::object()},
              {"tensors", Json::array()}};
  for (const auto& [key, value] : file.metadata()) out["metadata"][key] = to_json(value);
  for (const GgufTensor& tensor : file.tensors())
    out["tensors"].push_back(
        Json{{"name", tensor.name},
             {"format", format_name(tensor.format)},
             {"shape", std::vector(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions)},
             {"bytes", tensor.bytes},
             {"file", tensor.shard},
             {"offset", tensor.offset}});
  std::cout << out.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

Status inspect(const CommandLine& line) {
  MOEHOST_ASSIGN(const GgufFile file, GgufFile::open(line.positional().front()));
  line.has("json") ? print_json(file) : print_text(file);
  return {};
}

}  // namespace

Command inspect_command() {
  return {"inspect", "MODEL", "What is in a model file: metadata and tensors. Shapes: fastest dimension first.",
          1,         1,       {{"json", 0, "", "print all of it as JSON"}},
          &inspect};
}

}  // namespace moehost

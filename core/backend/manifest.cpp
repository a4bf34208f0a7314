// Reads and judges one manifest. Nothing of the plugin runs here.
#include "core/backend/manifest.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/text_format.h"

namespace moehost {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kMaxManifestBytes = 64 << 10;
constexpr size_t kMaxNameBytes = 64, kMaxListLength = 32;

Status malformed(const std::string& what) { return fail(Code::kUnavailable, "malformed manifest: ", what); }

// A regular file whose real place is inside the folder.
Status check_place(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error), real_folder = fs::canonical(folder, error);
  if (error || !fs::is_regular_file(real, error)) return fail(Code::kUnavailable, "no file ", file.string());
  const auto outside = std::mismatch(real_folder.begin(), real_folder.end(), real.begin(), real.end());
  if (outside.first == real_folder.end()) return Status();
  return fail(Code::kUnavailable, file.string(), " is a link out of the plugin folder, to ", real.string());
}

bool is_name(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), allowed);
}

Status read_name(const std::string& key, const Json& value, std::string* out) {
  if (!is_name(value)) return malformed(cat("'", key, "' must be a name of letters, digits, '_', '-' and '.'"));
  *out = value.get<std::string>();
  return Status();
}

Status read_names(const std::string& key, const Json& value, std::vector<std::string>* out) {
  if (!value.is_array() || value.size() > kMaxListLength || !std::all_of(value.begin(), value.end(), is_name)) {
    return malformed(cat("'", key, "' must be a list of at most ", kMaxListLength, " names"));
  }
  *out = value.get<std::vector<std::string>>();
  return Status();
}

Status read_abi(const Json& value, PluginInfo* info) {
  const auto is_minor = [](const Json& v) { return v.is_number_unsigned() && v.get<uint64_t>() <= UINT32_MAX; };
  if (!value.is_array() || value.size() != 2 || !is_minor(value[0]) || !is_minor(value[1]) || value[0] > value[1]) {
    return malformed("'abi' must be [lowest minor, highest minor]");
  }
  info->abi_lo = value[0].get<uint32_t>(), info->abi_hi = value[1].get<uint32_t>();
  return Status();
}

Status read_priority(const Json& value, PluginInfo* info) {
  constexpr int kMaxPriority = 1'000'000;
  if (!value.is_number_integer() || value < -kMaxPriority || value > kMaxPriority) {
    return malformed(cat("'priority' must be a whole number from ", -kMaxPriority, " to ", kMaxPriority));
  }
  info->priority = value.get<int>();
  return Status();
}

// A misspelt key could hide a CPU feature, and end in an illegal instruction: unknown keys are refused.
Status read_key(const std::string& key, const Json& value, PluginInfo* info) {
  if (key == "id") return read_name(key, value, &info->id);
  if (key == "kinds") return read_names(key, value, &info->kinds);
  if (key == "member_kind") return read_name(key, value, &info->member_kind);
  if (key == "abi") return read_abi(value, info);
  if (key == "cpu_features") return read_names(key, value, &info->cpu_features);
  if (key == "priority") return read_priority(value, info);
  return malformed(
      cat("unknown key '", printable(key), "'; known: id, kinds, member_kind, abi, cpu_features, priority"));
}

Status read_text(const std::string& text, PluginInfo* info) {
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return malformed("not a JSON object");
  for (const char* key : {"id", "kinds", "abi"}) {
    if (!root.contains(key)) return malformed(cat("'", key, "' is missing"));
  }
  for (const auto& [key, value] : root.items()) MOEHOST_RETURN_IF_ERROR(read_key(key, value, info));
  return info->kinds.empty() ? malformed("'kinds' is empty") : Status();
}

Status check_machine(const PluginInfo& info) {
  if (info.abi_lo > MH_ABI_MINOR) {
    return fail(Code::kUnavailable, "needs ABI 1.", info.abi_lo, " or newer; this core speaks 1.0 to 1.", MH_ABI_MINOR);
  }
  for (const std::string& feature : info.cpu_features) {
    bool known = false;
    if (has_cpu_feature(feature, &known)) continue;
    return fail(Code::kUnavailable, known ? "this machine lacks the CPU feature " : "this core knows no CPU feature ",
                feature);
  }
  return Status();
}

Status read(const fs::path& folder, const fs::path& manifest, PluginInfo* info) {
  MOEHOST_RETURN_IF_ERROR(check_place(manifest, folder));
  std::error_code error;
  const uintmax_t bytes = fs::file_size(manifest, error);
  if (error || bytes > kMaxManifestBytes) return malformed(cat(bytes, " bytes, at most ", kMaxManifestBytes));
  std::ifstream file(manifest, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  MOEHOST_RETURN_IF_ERROR(read_text(text, info));
  MOEHOST_RETURN_IF_ERROR(check_place(info->path, folder));
  return check_machine(*info);
}

}  // namespace

PluginInfo read_manifest(const std::string& folder, const std::string& name) {
  PluginInfo info;
  info.id = name;
  info.path = (fs::path(folder) / (name + ".so")).string();
  info.reason = read(folder, fs::path(folder) / (name + ".json"), &info).message();
  return info;
}

}  // namespace moehost

// GgufFile: one header or those of all shards, and typed reading of metadata. Floor 2.
#include "core/format/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/base/text_format.h"
#include "core/format/gguf_header.h"
#include "core/format/gguf_types.h"

namespace moehost {

struct GgufFile::State {
  std::string path;
  std::vector<MappedFile> files;
  gguf::Header header;  // of the first file, with the tensors of all

  template <class... Parts>
  Status refuse_key(size_t index, const Parts&... parts) const {
    const auto& [key, value] = header.metadata[index];
    const bool is_array = value.type == kGgufArray;
    return gguf::fail_at(path, header.value_offsets[index], key, " (", is_array ? "array of " : "",
                         gguf::type_name(is_array ? value.element_type : value.type), ") ", parts...);
  }

  // Looks the key up and converts its value: convert(data, out) fills out, or says what is wrong with it.
  template <class T, class Convert>
  Result<std::optional<T>> get(std::string_view key, Convert convert) const {
    const auto found = header.keys.find(key);
    if (found == header.keys.end()) return std::optional<T>();
    T out{};
    const std::string wrong = std::visit([&](const auto& data) { return std::string(convert(data, out)); },
                                         header.metadata[found->second].second.data);
    if (!wrong.empty()) return refuse_key(found->second, wrong);
    return std::optional<T>(std::move(out));
  }

  Status add_shards(uint64_t count);
};

namespace {

using gguf::fail_at;

template <class T, class... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);

constexpr const char* kSplitNo = "split.no";
constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitTensors = "split.tensors.count";

// "-00002-of-00005.gguf"
std::string shard_suffix(uint64_t number, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(number),
                static_cast<unsigned long long>(count));
  return text;
}

}  // namespace

// Opens shards 2 to count of a split model beside the first, checks that all agree and adds their tensors.
Status GgufFile::State::add_shards(uint64_t count) {
  const uint64_t count_at = header.value_offsets[header.keys.at(kSplitCount)];
  const std::string own_suffix = shard_suffix(1, count);
  if (!path.ends_with(own_suffix)) {
    return fail_at(path, count_at, kSplitCount, " is ", count, ", so the name of this first file must end in ",
                   own_suffix);
  }
  const std::string stem = path.substr(0, path.size() - own_suffix.size());
  for (uint64_t number = 2; number <= count; ++number) {
    Result<MappedFile> file = MappedFile::open(stem + shard_suffix(number, count));
    if (!file.ok()) {
      return fail_at(path, count_at, kSplitCount, " is ", count, ", but of shard ", number, ": ",
                     file.status().message());
    }
    Result<gguf::Header> parsed = gguf::parse_header(*file);
    if (!parsed.ok()) return parsed.status();
    for (const auto& [key, wanted] : {std::pair(kSplitNo, number - 1), std::pair(kSplitCount, count)}) {
      const auto found = parsed->keys.find(key);
      const size_t index = found == parsed->keys.end() ? 0 : found->second;
      const uint64_t at = parsed->metadata.empty() ? 0 : parsed->value_offsets[index];
      const auto* seen =
          found == parsed->keys.end() ? nullptr : std::get_if<uint64_t>(&parsed->metadata[index].second.data);
      if (!seen || *seen != wanted) {
        return fail_at(file->path(), at, key, seen ? cat(" is ", *seen) : " is no unsigned integer", "; shard ", number,
                       " of ", count, " must say ", wanted);
      }
    }
    for (size_t i = 0; i < parsed->tensors.size(); ++i) {
      GgufTensor& tensor = parsed->tensors[i];
      tensor.shard = static_cast<uint32_t>(number - 1);
      if (header.names.contains(tensor.name)) {
        return fail_at(file->path(), parsed->tensor_offsets[i], "the tensor ", tensor.name,
                       " is in an earlier shard too");
      }
      header.tensors.push_back(std::move(tensor));
    }
    for (const auto& [name, index] : parsed->names) {
      header.names.emplace(name, header.tensors.size() - parsed->tensors.size() + index);
    }
    files.push_back(*std::move(file));
  }
  return {};
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  MOEHOST_ASSIGN(MappedFile first, MappedFile::open(path));
  auto state = std::make_shared<State>();
  state->path = path;
  MOEHOST_ASSIGN(state->header, gguf::parse_header(first));
  state->files.push_back(std::move(first));
  const GgufFile file(state);

  MOEHOST_ASSIGN(const std::optional<uint64_t> count, file.get_uint(kSplitCount));
  if (count.value_or(1) != 1) {
    constexpr uint64_t kMaxShards = 1024;
    const size_t count_index = state->header.keys.at(kSplitCount);
    if (*count < 1 || *count > kMaxShards) {
      return state->refuse_key(count_index, "is ", *count, "; 1 to ", kMaxShards, " are allowed");
    }
    MOEHOST_ASSIGN(const std::optional<uint64_t> number, file.get_uint(kSplitNo));
    if (number != 0u) {
      return state->refuse_key(count_index, "is ", *count,
                               ", but this is not its first shard: open the file that ends in ",
                               shard_suffix(1, *count));
    }
    MOEHOST_RETURN_IF_ERROR(state->add_shards(*count));
  }
  MOEHOST_ASSIGN(const std::optional<uint64_t> total, file.get_uint(kSplitTensors));
  if (total && *total != state->header.tensors.size()) {
    return state->refuse_key(state->header.keys.at(kSplitTensors), "is ", *total, "; the files hold ",
                             state->header.tensors.size(), " tensors");
  }
  return file;
}

const std::string& GgufFile::path() const { return state_->path; }
uint32_t GgufFile::version() const { return state_->header.version; }
std::span<const MappedFile> GgufFile::files() const { return state_->files; }
std::span<const GgufTensor> GgufFile::tensors() const { return state_->header.tensors; }
const std::vector<std::pair<std::string, GgufValue>>& GgufFile::metadata() const { return state_->header.metadata; }

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = state_->header.names.find(name);
  return found == state_->header.names.end() ? nullptr : &state_->header.tensors[found->second];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = state_->header.keys.find(key);
  return found == state_->header.keys.end() ? nullptr : &state_->header.metadata[found->second].second;
}

Result<std::optional<uint64_t>> GgufFile::get_uint(std::string_view key) const {
  return state_->get<uint64_t>(key, []<class T>(const T& data, uint64_t& out) -> std::string {
    if constexpr (kIsOneOf<T, uint64_t, int64_t>) {
      if (std::cmp_less(data, 0)) return cat("is ", data, "; 0 or more is allowed");
      out = static_cast<uint64_t>(data);
      return "";
    } else {
      return "must be an integer";
    }
  });
}

Result<std::optional<double>> GgufFile::get_float(std::string_view key) const {
  return state_->get<double>(key, []<class T>(const T& data, double& out) -> std::string {
    if constexpr (kIsOneOf<T, double, uint64_t, int64_t>) {
      out = static_cast<double>(data);
      return std::isfinite(out) ? "" : cat("is ", out, "; a finite number is needed");
    } else {
      return "must be a number";
    }
  });
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view key) const {
  return state_->get<bool>(key, []<class T>(const T& data, bool& out) -> std::string {
    if constexpr (kIsOneOf<T, bool>) out = data;
    return kIsOneOf<T, bool> ? "" : "must be a bool";
  });
}

Result<std::optional<std::string>> GgufFile::get_string(std::string_view key) const {
  return state_->get<std::string>(key, []<class T>(const T& data, std::string& out) -> std::string {
    if constexpr (kIsOneOf<T, std::string>) out = data;
    return kIsOneOf<T, std::string> ? "" : "must be a string";
  });
}

Result<std::optional<std::vector<std::string>>> GgufFile::get_strings(std::string_view key) const {
  using Strings = GgufValue::Strings;
  return state_->get<Strings>(key, []<class T>(const T& data, Strings& out) -> std::string {
    if constexpr (kIsOneOf<T, Strings>) out = data;
    return kIsOneOf<T, Strings> ? "" : "must be an array of strings";
  });
}

Result<std::optional<std::vector<float>>> GgufFile::get_floats(std::string_view key) const {
  using Floats = std::vector<float>;
  return state_->get<Floats>(key, []<class T>(const T& data, Floats& out) -> std::string {
    if constexpr (kIsOneOf<T, Floats, std::vector<double>>) {
      out.assign(data.begin(), data.end());
      const auto wrong = std::ranges::find_if_not(out, [](float x) { return std::isfinite(x); });
      if (wrong != out.end())
        return cat("has ", *wrong, " at index ", wrong - out.begin(), "; f32 must hold all values");
      return "";
    } else {
      return "must be an array of floating-point numbers";
    }
  });
}

Result<std::optional<std::vector<int64_t>>> GgufFile::get_ints(std::string_view key) const {
  using Ints = std::vector<int64_t>;
  return state_->get<Ints>(key, []<class T>(const T& data, Ints& out) -> std::string {
    if constexpr (kIsOneOf<T, Ints, std::vector<uint64_t>>) {
      const auto wrong = std::ranges::find_if_not(data, [](auto x) { return std::in_range<int64_t>(x); });
      if (wrong != data.end()) return cat("has ", *wrong, " at index ", wrong - data.begin(), ", which is too large");
      out.assign(data.begin(), data.end());
      return "";
    } else {
      return "must be an array of integers";
    }
  });
}

}  // namespace moehost

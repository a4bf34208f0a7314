// The safetensors reader checks every rule of the format; the writer is atomic. Floor 2.
#include "core/format/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/checked.h"
#include "core/base/text_format.h"
#include "core/format/output_file.h"

namespace moehost {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read in place");

using Json = nlohmann::json;
// Ours: the format allows 100 MB, but a parsed header takes up to ten times its size, and real ones stay below 1 MiB.
constexpr uint64_t kMaxHeaderBytes = 8 << 20;
constexpr uint64_t kAlignment = 8;  // of the data, by spaces after the header
constexpr size_t kMaxDimensions = 16;
constexpr int kMaxDepth = 3;  // file, tensor, shape

struct Dtype {
  const char* name;
  uint64_t bits;
};
constexpr Dtype kDtypes[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
                             {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
                             {"I32", 32},    {"U32", 32}, {"F32", 32}, {"F64", 64},    {"I64", 64},
                             {"U64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};

// Bytes of a tensor, or nothing for an unknown dtype, a size that wraps or no whole number of bytes.
std::optional<uint64_t> tensor_bytes(const std::string& dtype, const std::vector<uint64_t>& shape) {
  const auto found = std::ranges::find(kDtypes, dtype, &Dtype::name);
  if (found == std::end(kDtypes)) return std::nullopt;
  std::optional<uint64_t> bits = found->bits;
  for (const uint64_t dimension : shape) bits = bits ? checked_mul(*bits, dimension) : bits;
  if (!bits || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

// Parses JSON, refusing deep nesting and members that occur twice. Nothing, and a reason in `wrong`, when it is none.
std::optional<Json> parse_json(std::string_view text, std::string& wrong) {
  std::vector<std::set<std::string>> members;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth && wrong.empty()) wrong = "it nests too deeply";
    if (event == Json::parse_event_t::object_start) members.emplace_back();
    if (event == Json::parse_event_t::object_end && !members.empty()) members.pop_back();
    if (event == Json::parse_event_t::key && !members.back().insert(parsed.get<std::string>()).second &&
        wrong.empty()) {
      wrong = cat("the name \"", printable(parsed.get<std::string>()), "\" occurs twice");
    }
    return wrong.empty();  // keeps nothing more of what is refused anyway
  };
  Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (wrong.empty() && json.is_discarded()) wrong = "it is no valid JSON";
  if (wrong.empty() && !json.is_object()) wrong = "it is no JSON object";
  if (!wrong.empty()) return std::nullopt;
  return json;
}

std::optional<std::vector<uint64_t>> unsigned_list(const Json& json) {
  if (!json.is_array() || json.size() > kMaxDimensions) return std::nullopt;
  std::vector<uint64_t> out;
  for (const Json& item : json) {
    if (!item.is_number_unsigned()) return std::nullopt;
    out.push_back(item.get<uint64_t>());
  }
  return out;
}

// Fills tensor from its entry of the header; `data` is all tensor bytes of the file. Returns what is wrong, or "".
std::string read_entry(const Json& entry, std::span<const std::byte> data, SafetensorsTensor& tensor) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets") || !entry["dtype"].is_string()) {
    return "an entry has dtype, shape and data_offsets, nothing else";
  }
  const auto shape = unsigned_list(entry["shape"]), offsets = unsigned_list(entry["data_offsets"]);
  if (!shape) return cat("shape must be a list of at most ", kMaxDimensions, " unsigned integers");
  if (!offsets || offsets->size() != 2) return "data_offsets must be two unsigned integers";
  const uint64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data.size()) {
    return cat("data_offsets ", begin, " to ", end, " do not lie within the ", data.size(), " bytes of data");
  }
  tensor.dtype = entry["dtype"].get<std::string>();
  tensor.shape = *shape;
  tensor.data = data.subspan(begin, end - begin);
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) return cat("dtype ", printable(tensor.dtype), " is unknown, or its shape has no size in whole bytes");
  if (*bytes != end - begin) return cat("data_offsets span ", end - begin, " bytes, dtype and shape take ", *bytes);
  return "";
}

template <class T>
Result<std::span<const T>> typed(const SafetensorsFile& file, const std::string& path, std::string_view name,
                                 const char* dtype) {
  const SafetensorsTensor* tensor = file.find(name);
  if (!tensor) return fail(Code::kBadModel, path, ": no tensor ", name);
  if (tensor->dtype != dtype) return fail(Code::kBadModel, path, ": ", name, " is ", tensor->dtype, ", not ", dtype);
  if (reinterpret_cast<uintptr_t>(tensor->data.data()) % alignof(T) != 0) {
    return fail(Code::kBadModel, path, ": ", name, " is not aligned to ", alignof(T), " bytes");
  }
  return std::span(reinterpret_cast<const T*>(tensor->data.data()), tensor->data.size() / sizeof(T));
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  MOEHOST_ASSIGN(out.file_, MappedFile::open(path));
  const auto refuse = [&](uint64_t at, const auto&... parts) {
    return fail(Code::kBadModel, path, ":byte ", at, ": ", parts...);
  };
  const std::span<const std::byte> bytes = out.file_.bytes();
  uint64_t header_bytes;
  if (bytes.size() < sizeof header_bytes) return refuse(0, "the header's size takes 8 bytes, the file ends before");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return refuse(0, "the header's size is ", header_bytes, "; at most ", std::min(kMaxHeaderBytes, bytes.size() - 8),
                  " is allowed in this file");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  if (!header.starts_with('{')) return refuse(8, "the header does not start with {");
  std::string wrong;
  const std::optional<Json> json = parse_json(header, wrong);
  if (!json) return refuse(8, "the header: ", wrong);

  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  for (const auto& [name, entry] : json->items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return refuse(8, "__metadata__ must be an object of strings");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return refuse(8, "__metadata__ \"", printable(key), "\" must be a string");
        out.metadata_.emplace(key, value.get<std::string>());
      }
      continue;
    }
    SafetensorsTensor& tensor = out.tensors_.emplace_back();
    tensor.name = name;
    wrong = read_entry(entry, data, tensor);
    if (!wrong.empty()) return refuse(8, "tensor \"", printable(name), "\": ", wrong);
  }
  std::ranges::sort(out.tensors_, {}, [](const auto& t) { return std::pair(t.data.data(), t.data.size()); });
  const std::byte* expected = data.data();
  for (const SafetensorsTensor& tensor : out.tensors_) {
    if (tensor.data.data() != expected) {
      return refuse(8 + header_bytes + (tensor.data.data() - data.data()), "tensor \"", printable(tensor.name),
                    "\" must begin at byte ", 8 + header_bytes + (expected - data.data()),
                    ": tensors lie one after another");
    }
    expected += tensor.data.size();
  }
  if (const uint64_t end = 8 + header_bytes + (expected - data.data()); end != bytes.size()) {
    return refuse(end, bytes.size() - end, " bytes follow the last tensor");
  }
  return out;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &SafetensorsTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Result<std::span<const float>> SafetensorsFile::floats(std::string_view name) const {
  return typed<float>(*this, file_.path(), name, "F32");
}

Result<std::span<const int32_t>> SafetensorsFile::ints(std::string_view name) const {
  return typed<int32_t>(*this, file_.path(), name, "I32");
}

Status write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (bytes != tensor.data.size()) {
      return fail(Code::kUsage, path, ": tensor ", tensor.name, " has ", tensor.data.size(),
                  " bytes, which is not what dtype ", tensor.dtype, " and its shape take");
    }
    if (header.contains(tensor.name)) return fail(Code::kUsage, path, ": two tensors are called ", tensor.name);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = header.dump();
  text.resize(*checked_align(text.size(), kAlignment), ' ');
  const uint64_t text_bytes = text.size();

  OutputFile file(path);
  MOEHOST_RETURN_IF_ERROR(file.open());
  MOEHOST_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(&text_bytes, 1))));
  MOEHOST_RETURN_IF_ERROR(file.write(text));
  for (const SafetensorsTensor& tensor : tensors) MOEHOST_RETURN_IF_ERROR(file.write(tensor.data));
  return file.commit();
}

}  // namespace moehost

// GGUF files: metadata and tensor directory, v2 and v3, split files, mapped, every size checked. Floor 2.
// Layout: reference in docs (GGUF v3); a file is untrusted input, every error names file and byte offset.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/status.h"

namespace moehost {

// Types of metadata values, numbered as in the file.
enum GgufType : uint32_t {
  kGgufU8 = 0,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64
};

// A metadata value. Integers keep signedness only; arrays are homogeneous and not nested.
struct GgufValue {
  using Strings = std::vector<std::string>;
  std::variant<bool, uint64_t, int64_t, double, std::string, std::vector<bool>, std::vector<uint64_t>,
               std::vector<int64_t>, std::vector<float>, std::vector<double>, Strings>
      data;
  uint32_t type = 0;          // a GgufType, as stored
  uint32_t element_type = 0;  // of an array
};

// One tensor of a file. data points into the mapping and lives as long as the GgufFile.
struct GgufTensor {
  std::string name;
  uint32_t format = 0;                        // a number of the registry (dtype.h)
  std::array<uint64_t, 4> shape{1, 1, 1, 1};  // ne: fastest dimension first
  uint32_t dimensions = 0;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint32_t shard = 0;   // which file
  uint64_t offset = 0;  // of the data in that file
};

// A model file, or all shards of a split one (open the first). A copy shares the mapping. [any thread once open]
class GgufFile {
 public:
  // Reads headers only: no tensor page is touched. Refuses (kBadModel, "path:byte N: ...") what is malformed: magic,
  // version, sizes that wrap or pass the end, duplicate keys or names, overlapping tensors, unknown types, bad
  // alignment, shards missing or disagreeing.
  static Result<GgufFile> open(const std::string& path);

  const std::string& path() const;
  uint32_t version() const;
  std::span<const MappedFile> files() const;
  std::span<const GgufTensor> tensors() const;                             // in file order
  const GgufTensor* tensor(std::string_view name) const;                   // null: absent
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const;  // of the first file, in file order
  const GgufValue* find(std::string_view key) const;                       // null: absent

  // Typed reading: nothing when the key is absent; kBadModel naming key, type and range when it is of another kind or
  // does not fit. Integers of any width and sign convert.
  Result<std::optional<uint64_t>> get_uint(std::string_view key) const;
  Result<std::optional<double>> get_float(std::string_view key) const;  // finite only
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> get_strings(std::string_view key) const;
  Result<std::optional<std::vector<float>>> get_floats(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> get_ints(std::string_view key) const;

 private:
  struct State;
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Writes one GGUF v3 file: metadata in the given order, then tensors, padded to alignment 32 (or general.alignment).
struct GgufOut {
  std::string name;
  uint32_t format = 0;
  std::vector<uint64_t> shape;  // ne, fastest first
  // Called once, in order, while writing: hands the tensor's bytes to sink in pieces of any size.
  std::function<Status(const std::function<Status(std::span<const std::byte>)>& sink)> produce;
};
Status write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                  const std::vector<GgufOut>& tensors);

}  // namespace moehost

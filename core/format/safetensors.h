// safetensors: one file, read and written. Untrusted input; every error names file and offset or tensor. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/status.h"

namespace moehost {

struct SafetensorsTensor {
  std::string name, dtype;  // dtype as in the file: "F32", "BF16", "I32", "U8"
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;  // into the mapping; little-endian, row-major
};

// Moves only. All rules of the format are checked: header size and JSON, dtype sizes, no holes, no trailing bytes.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Values of an F32 / I32 tensor; kBadModel when it is absent or of another dtype.
  Result<std::span<const float>> floats(std::string_view name) const;
  Result<std::span<const int32_t>> ints(std::string_view name) const;

 private:
  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes the tensors in the given order (name, dtype, shape, data of the right size). Atomic: a temporary, then rename.
Status write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors);

}  // namespace moehost

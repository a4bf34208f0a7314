// The header of one GGUF file, parsed: what GgufFile is assembled from. Floor 2.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/status.h"
#include "core/format/gguf.h"

namespace moehost::gguf {

// Failure at a byte of a file: "path:byte N: ...".
template <class... Parts>
Status fail_at(const std::string& path, uint64_t offset, const Parts&... parts) {
  return fail(Code::kBadModel, path, ":byte ", offset, ": ", parts...);
}

struct Header {
  uint32_t version = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata;  // in file order
  std::vector<uint64_t> value_offsets;                      // of metadata[i]'s value in the file
  std::map<std::string_view, size_t> keys;                  // into the mapping -> index of metadata
  std::vector<GgufTensor> tensors;                          // in file order; data points into the mapping
  std::vector<uint64_t> tensor_offsets;                     // of tensors[i]'s directory entry
  std::map<std::string_view, size_t> names;                 // into the mapping -> index of tensors
};

// Parses and checks the header of a file; views and pointers stay valid as long as its mapping. No tensor page is read.
Result<Header> parse_header(const MappedFile& file);

}  // namespace moehost::gguf

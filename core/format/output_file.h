// A file that appears whole or not at all: written under a temporary name, then renamed. Floor 2.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace moehost {

// Neither copied nor moved. Destruction without commit removes the temporary and leaves an earlier file of that name as
// it was. Errors: kNoResource, with path and reason. One thread at a time.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status open();  // creates the temporary in the same folder
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status pad_to(uint64_t alignment);       // zero bytes, up to a multiple of alignment
  Status commit();                         // on disk, under its name
  uint64_t size() const { return size_; }  // bytes written so far

 private:
  Status flush();
  Status refuse(const char* what) const;

  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace moehost

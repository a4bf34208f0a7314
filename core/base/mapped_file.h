// A file mapped read-only. Floor 1.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace moehost {

// Moves only. The bytes stay mapped, and the pointers valid, until destruction. [any thread]
class MappedFile {
 public:
  // Regular files only (no folder, FIFO or device). Errors: kBadModel, with path and reason.
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Tells the system that [offset, offset + size) will not be read again soon: whole pages are dropped from memory.
  void drop(uint64_t offset, uint64_t size) const;
  // Asks the system to read ahead of a sequential pass over the range.
  void will_need(uint64_t offset, uint64_t size) const;

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::string path_;
};

}  // namespace moehost

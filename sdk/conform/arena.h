// Host memory that the suite shares with a device: boundaries, fences, the step block.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace conform {

// Rows of a boundary in the arena. width_bytes of every row belong to the value, the rest to nobody.
struct Region {
  uint64_t offset = 0, row_stride_bytes = 0, width_bytes = 0;
  uint32_t max_rows = 0;
};

// A fence: its line in the arena.
struct Fence {
  uint64_t offset = 0;
  uint64_t* counter = nullptr;
};

// One mapping. What is placed is filled with a pattern that is a NaN in f32, and so are unused bytes around it. Not
// thread-safe, but for the fence counters.
class Arena {
 public:
  static constexpr uint32_t kPattern = 0xffa5a5a5;
  explicit Arena(uint64_t bytes);
  Arena(const Arena&) = delete;
  ~Arena();
  char* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  uint64_t place(uint64_t bytes);  // on a line of 64 bytes
  Region place_rows(uint32_t max_rows, uint64_t width_bytes, uint64_t padding_bytes);
  Fence place_fence();
  const std::vector<Fence>& fences() const { return fences_; }
  void set_fences(uint64_t serial);

  // Fills the values of a region with the pattern.
  void wipe(const Region& region);
  // Remembers all bytes, to ask after a run which of them changed.
  void remember();
  // Where a byte changed since remember, outside the first `rows` rows of the given regions and outside fences, or
  // empty. The place is given relative to the nearest region.
  std::string changed_outside(const std::vector<Region>& regions, const std::vector<uint32_t>& rows) const;
  // True if a byte within all rows of the region changed since remember.
  bool changed_inside(const Region& region) const;

 private:
  char* base_;
  uint64_t bytes_, end_ = 0;
  std::vector<char> remembered_;
  std::vector<Fence> fences_;
};

}  // namespace conform

// Placing boundaries, and finding out who wrote where.
#include "arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "case.h"

namespace conform {
namespace {

constexpr uint64_t kLine = 64, kRedZone = 256;

uint64_t line_end(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Arena::Arena(uint64_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "no memory for boundaries: ", bytes, " bytes");
  base_ = static_cast<char*>(memory);
  std::fill_n(at<uint32_t>(0), kRedZone / 4, kPattern);
}

Arena::~Arena() { munmap(base_, bytes_); }

uint64_t Arena::place(uint64_t bytes) {
  const uint64_t offset = end_ + kRedZone;
  end_ = line_end(offset + bytes);
  require(end_ + kRedZone <= bytes_, "moehost-conform: its arena of ", bytes_, " bytes is too small");
  std::fill_n(at<uint32_t>(offset), (end_ + kRedZone - offset) / 4, kPattern);
  return offset;
}

Region Arena::place_rows(uint32_t max_rows, uint64_t width_bytes, uint64_t padding_bytes) {
  const uint64_t stride = width_bytes + padding_bytes;
  return {place(max_rows * stride), stride, width_bytes, max_rows};
}

Fence Arena::place_fence() {
  const uint64_t offset = place(kLine);
  std::memset(base_ + offset, 0, kLine);
  fences_.push_back({offset, at<uint64_t>(offset)});
  return fences_.back();
}

void Arena::set_fences(uint64_t serial) {
  for (const Fence& fence : fences_) __atomic_store_n(fence.counter, serial, __ATOMIC_RELEASE);
}

void Arena::wipe(const Region& region) {
  for (uint64_t r = 0; r < region.max_rows; ++r)
    std::fill_n(at<uint32_t>(region.offset + r * region.row_stride_bytes), region.width_bytes / 4, kPattern);
}

void Arena::remember() { remembered_.assign(base_, base_ + end_ + kRedZone); }

std::string Arena::changed_outside(const std::vector<Region>& regions, const std::vector<uint32_t>& rows) const {
  std::vector<std::pair<uint64_t, uint64_t>> allowed;
  for (size_t i = 0; i < regions.size(); ++i)
    for (uint64_t r = 0; r < rows[i]; ++r) {
      const uint64_t start = regions[i].offset + r * regions[i].row_stride_bytes;
      allowed.emplace_back(start, start + regions[i].width_bytes);
    }
  for (const Fence& fence : fences_) allowed.emplace_back(fence.offset, fence.offset + sizeof(uint64_t));
  allowed.emplace_back(remembered_.size(), remembered_.size());
  std::sort(allowed.begin(), allowed.end());
  uint64_t from = 0;
  for (const auto& [start, end] : allowed) {
    const auto changed = std::mismatch(base_ + from, base_ + start, remembered_.begin() + static_cast<int64_t>(from));
    if (changed.first != base_ + start) {
      const auto where = static_cast<uint64_t>(changed.first - base_);
      for (size_t i = 0; i < regions.size(); ++i) {
        const Region& region = regions[i];
        if (where < region.offset || where >= region.offset + region.max_rows * region.row_stride_bytes) continue;
        return cat("row ", (where - region.offset) / region.row_stride_bytes, ", byte ",
                   (where - region.offset) % region.row_stride_bytes, " of output ", i, " (", rows[i], " rows of ",
                   region.width_bytes, " bytes)");
      }
      return cat("byte ", where, " of the imported buffer, which is part of no output");
    }
    from = std::max(from, end);
  }
  return {};
}

bool Arena::changed_inside(const Region& region) const {
  for (uint64_t r = 0; r < region.max_rows; ++r) {
    const uint64_t start = region.offset + r * region.row_stride_bytes;
    if (std::memcmp(base_ + start, remembered_.data() + start, region.width_bytes) != 0) return true;
  }
  return false;
}

}  // namespace conform

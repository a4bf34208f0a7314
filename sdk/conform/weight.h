// Weights with random contents in any storage format, and what they decode to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moehost/codec.hpp"
#include "random.h"

namespace conform {

// The formats that the suite can decode: those of codec.hpp.
const std::vector<mh::FormatInfo>& weight_formats();

// How much larger the matrix is that a slice is cut from, on each side.
struct Margin {
  uint64_t rows = 0, cols = 0;
};

// Slabs of [rows, cols]. Owns the bytes.
class Weight {
 public:
  // Random contents in a format.
  Weight(Random& random, uint32_t format, uint64_t rows, uint64_t cols, uint32_t slabs, Margin margin);
  // The given values, [slabs, rows, cols], as f32.
  Weight(const std::vector<float>& values, uint64_t rows, uint64_t cols, uint32_t slabs);
  Weight(const Weight&) = delete;

  const mh_weight& described() const { return described_; }  // without data
  const mh_weight& loaded() const { return loaded_; }
  uint64_t rows() const { return described_.rows; }
  uint64_t cols() const { return described_.cols; }
  bool is_block() const { return mh::find_format(described_.format)->block_elements > 1; }
  const float* row(uint32_t slab, uint64_t row) const {
    return values_.data() + (slab * described_.rows + row) * described_.cols;
  }
  double rms() const;
  void scrub();

 private:
  void describe(uint32_t format, uint64_t rows, uint64_t cols, uint32_t slabs, uint64_t stride_bytes);
  std::vector<std::byte> bytes_;
  std::vector<const void*> slabs_;
  std::vector<float> values_;  // decoded, [slabs, rows, cols]
  mh_weight described_{}, loaded_{};
};

}  // namespace conform

// Random bytes that are valid blocks with sensible scales.
#include "weight.h"

#include <algorithm>
#include <cmath>

#include "case.h"

namespace conform {
namespace {

// Where a block holds f16 scales, and how large a scale makes weights of about 0.1. A second scale is that of the
// minimum.
struct ScaleFields {
  uint32_t format;
  std::vector<uint32_t> offsets;
  float scale;
};
const std::vector<ScaleFields>& scale_fields() {
  static const std::vector<ScaleFields> kFields = {
      {MH_FORMAT_Q8_0, {0}, 0.0015F},    {MH_FORMAT_Q4_0, {0}, 0.02F},      {MH_FORMAT_Q4_1, {0, 2}, 0.015F},
      {MH_FORMAT_Q4_K, {0, 2}, 0.0004F}, {MH_FORMAT_Q5_K, {0, 2}, 0.0002F}, {MH_FORMAT_Q6_K, {208}, 0.0001F},
  };
  return kFields;
}

void put_u16(std::byte* at, uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }

// One block, or one element of a plain format.
void randomise_block(Random& random, const mh::FormatInfo& format, std::byte* block) {
  if (format.block_elements == 1) {  // F32, F16 or BF16
    const float value = random.normal() * 0.1F;
    return mh::encode_row(format.number, &value, 1, block);
  }
  for (uint32_t i = 0; i < format.block_bytes; i += 8) {
    const uint64_t bits = random.bits();
    std::memcpy(block + i, &bits, std::min<size_t>(sizeof bits, format.block_bytes - i));
  }
  if (format.number == MH_FORMAT_MXFP4) {
    block[0] = static_cast<std::byte>(121 + random.below(4));  // 2^-6 and nearby
    return;
  }
  for (const ScaleFields& fields : scale_fields()) {
    if (fields.format != format.number) continue;
    for (const uint32_t offset : fields.offsets)
      put_u16(block + offset, mh::float_to_half(fields.scale * static_cast<float>(0.5 + random.uniform())));
    return;
  }
  fail("moehost-conform: no random blocks for format ", format.name);
}

}  // namespace

const std::vector<mh::FormatInfo>& weight_formats() {
  static const std::vector<mh::FormatInfo> kFormats = [] {
    std::vector<mh::FormatInfo> out;
#define CONFORM_FORMAT(name, number, elements, bytes) \
  if (mh::can_decode(number)) out.push_back(*mh::find_format(number));
    MH_FORMATS(CONFORM_FORMAT)
#undef CONFORM_FORMAT
    return out;
  }();
  return kFormats;
}

void Weight::describe(uint32_t format, uint64_t rows, uint64_t cols, uint32_t slabs, uint64_t stride_bytes) {
  described_.size = sizeof described_, described_.format = format;
  described_.rows = rows, described_.cols = cols, described_.row_stride_bytes = stride_bytes;
  described_.slab_count = slabs;
  loaded_ = described_;
  loaded_.slabs = slabs_.data();
}

Weight::Weight(Random& random, uint32_t format_number, uint64_t rows, uint64_t cols, uint32_t slabs, Margin margin) {
  const mh::FormatInfo& format = *mh::find_format(format_number);
  const uint64_t all_rows = rows + 2 * margin.rows, all_cols = cols + 2 * margin.cols;
  const uint64_t stride = mh::row_bytes(format_number, all_cols);
  bytes_.resize(slabs * all_rows * stride);
  for (uint64_t at = 0; at < bytes_.size(); at += format.block_bytes) randomise_block(random, format, &bytes_[at]);
  values_.resize(slabs * rows * cols);
  for (uint64_t s = 0; s < slabs; ++s) {
    const std::byte* first = &bytes_[(s * all_rows + margin.rows) * stride] + mh::row_bytes(format_number, margin.cols);
    slabs_.push_back(first);
    for (uint64_t r = 0; r < rows; ++r)
      mh::decode_row(format_number, first + r * stride, cols, &values_[(s * rows + r) * cols]);
  }
  describe(format_number, rows, cols, slabs, stride);
}

Weight::Weight(const std::vector<float>& values, uint64_t rows, uint64_t cols, uint32_t slabs) : values_(values) {
  bytes_.resize(values.size() * sizeof(float));
  std::memcpy(bytes_.data(), values.data(), bytes_.size());
  for (uint64_t s = 0; s < slabs; ++s) slabs_.push_back(&bytes_[s * rows * cols * sizeof(float)]);
  describe(MH_FORMAT_F32, rows, cols, slabs, cols * sizeof(float));
}

double Weight::rms() const {
  double sum = 0;
  for (const float v : values_) sum += double{v} * v;
  return std::sqrt(sum / static_cast<double>(values_.size()));
}

void Weight::scrub() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0x5b}); }

}  // namespace conform

// Packing and unpacking, derived from the descriptions in format.h: one template for all formats.
#include "plugins/cpu/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mh_cpu {
namespace {

constexpr const Format* kFormats[] = {
#define MH_POINTER_(format) &format,
    MH_CPU_FORMATS(MH_POINTER_)
#undef MH_POINTER_
};

// Where input i has its bits above the nibble: a byte of 32-byte spans, and the shift in it.
struct Place {
  uint32_t byte, shift;
};
template <const Format& F>
constexpr Place high_place(uint32_t i) {
  constexpr uint32_t kBits = F.code_bits - 4, kInputs = 32 * (8 / kBits);
  return {F.high_at + i / kInputs * 32 + i % 32, i % kInputs / 32 * kBits};
}
template <const Format& F>
constexpr uint32_t high_mask() {
  return (1u << (F.code_bits - 4)) - 1;
}

// The codes of a storage block, one a byte. Q8_0 stores signed codes: the offset makes them unsigned.
template <const Format& F>
void read_codes(const uint8_t* block, uint8_t* codes) {
  if constexpr (F.code_bits == 8) {
    for (uint32_t i = 0; i < F.elements; ++i) codes[i] = static_cast<uint8_t>(block[F.low_at + i] + F.offset);
    return;
  } else {
    for (uint32_t first = 0; first < F.elements; first += 2 * F.low_span)
      for (uint32_t i = 0; i < F.low_span; ++i) {
        const uint8_t byte = block[F.low_at + first / 2 + i];
        codes[first + i] = byte & 15;
        codes[first + F.low_span + i] = byte >> 4;
      }
    if constexpr (F.code_bits > 4)
      for (uint32_t i = 0; i < F.elements; ++i) {
        const Place p = high_place<F>(i);
        codes[i] |= static_cast<uint8_t>((block[p.byte] >> p.shift & high_mask<F>()) << 4);
      }
  }
}
template <const Format& F>
void write_codes(const uint8_t* codes, uint8_t* block) {
  if constexpr (F.code_bits == 8) {
    for (uint32_t i = 0; i < F.elements; ++i) block[F.low_at + i] = static_cast<uint8_t>(codes[i] - F.offset);
  } else {
    for (uint32_t first = 0; first < F.elements; first += 2 * F.low_span)
      for (uint32_t i = 0; i < F.low_span; ++i)
        block[F.low_at + first / 2 + i] =
            static_cast<uint8_t>((codes[first + i] & 15) | codes[first + F.low_span + i] << 4);
    if constexpr (F.code_bits > 4)
      for (uint32_t i = 0; i < F.elements; ++i) {
        const Place p = high_place<F>(i);
        block[p.byte] = static_cast<uint8_t>(block[p.byte] | codes[i] >> 4 << p.shift);
      }
  }
}

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes: the first four of each in the low bits of bytes 0..3 and
// 4..7, the last four in the nibbles of bytes 8..11 with their upper two bits on top of the former.
void read_sub6(const uint8_t* p, uint8_t* scales, uint8_t* mins) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = p[i] & 63;
    mins[i] = p[i + 4] & 63;
    scales[i + 4] = static_cast<uint8_t>((p[i + 8] & 15) | p[i] >> 6 << 4);
    mins[i + 4] = static_cast<uint8_t>(p[i + 8] >> 4 | p[i + 4] >> 6 << 4);
  }
}
void write_sub6(const uint8_t* scales, const uint8_t* mins, uint8_t* p) {
  for (int i = 0; i < 4; ++i) {
    p[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
    p[i + 4] = static_cast<uint8_t>(mins[i] | mins[i + 4] >> 4 << 6);
    p[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
  }
}

uint32_t dword(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// One code group (32 inputs) of row `row` in its planes. `out` is zero before.
template <const Format& F>
void put_slots(const uint8_t* codes, uint32_t row, uint8_t* out) {
  const auto put = [&](uint32_t vector, uint32_t value) { std::memcpy(out + 64 * vector + 4 * row, &value, 4); };
  uint32_t high[2] = {0, 0};
  for (uint32_t j = 0; j < 4; ++j) {
    const uint32_t a = dword(codes + 4 * j), b = dword(codes + 4 * (j + 4));
    if constexpr (F.code_bits == 8) {
      put(j, a), put(j + 4, b);
    } else {
      put(j, (a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4);
      if constexpr (F.code_bits == 5) high[0] |= (a >> 4 & 0x01010101) << j | (b >> 4 & 0x01010101) << (j + 4);
      if constexpr (F.code_bits == 6)
        high[0] |= (a >> 4 & 0x03030303) << 2 * j, high[1] |= (b >> 4 & 0x03030303) << 2 * j;
    }
  }
  if constexpr (F.code_bits == 5 || F.code_bits == 6) put(4, high[0]);
  if constexpr (F.code_bits == 6) put(5, high[1]);
}
template <const Format& F>
void take_slots(const uint8_t* in, uint32_t row, uint8_t* codes) {
  const auto take = [&](uint32_t vector) { return dword(in + 64 * vector + 4 * row); };
  for (uint32_t j = 0; j < 4; ++j) {
    uint32_t a = take(j), b = a >> 4;
    if constexpr (F.code_bits == 8) {
      b = take(j + 4);
    } else {
      a &= 0x0f0f0f0f, b &= 0x0f0f0f0f;
      if constexpr (F.code_bits == 5)
        a |= (take(4) >> j & 0x01010101) << 4, b |= (take(4) >> (j + 4) & 0x01010101) << 4;
      if constexpr (F.code_bits == 6)
        a |= (take(4) >> 2 * j & 0x03030303) << 4, b |= (take(5) >> 2 * j & 0x03030303) << 4;
    }
    std::memcpy(codes + 4 * j, &a, 4);
    std::memcpy(codes + 4 * (j + 4), &b, 4);
  }
}

// One storage block of row `row`, into its lanes of a packed block.
template <const Format& F>
void pack_block(const uint8_t* block, uint32_t row, uint8_t* out) {
  if constexpr (is_plain(F)) {
    std::memcpy(out + F.bytes * row, block, F.bytes);
  } else {
    constexpr uint32_t kScaleBytes = F.scales == Scales::kE8m0 ? 1 : 2;
    std::memcpy(out + kScaleBytes * row, block + F.scale_at, kScaleBytes);
    if constexpr (has_min(F)) std::memcpy(out + packed_min_at(F) + 2 * row, block + F.min_at, 2);
    if constexpr (F.scales == Scales::kSignedSub)
      for (uint32_t i = 0; i < sub_blocks(F); ++i) out[packed_sub_at(F) + kGroupRows * i + row] = block[F.sub_at + i];
    if constexpr (F.scales == Scales::kSub6Min) {
      uint8_t scales[8], mins[8];
      read_sub6(block + F.sub_at, scales, mins);
      for (uint32_t i = 0; i < 8; ++i) {
        out[packed_sub_at(F) + kGroupRows * i + row] = scales[i];
        out[packed_sub_min_at(F) + 64 * (i / 4) + 4 * row + i % 4] = mins[i];
      }
    }
    uint8_t codes[F.elements];
    read_codes<F>(block, codes);
    for (uint32_t g = 0; g < F.elements / kSlotInputs; ++g)
      put_slots<F>(codes + kSlotInputs * g, row, out + packed_codes_at(F) + g * packed_slots_bytes(F));
  }
}
template <const Format& F>
void unpack_block(const uint8_t* in, uint32_t row, uint8_t* block) {
  if constexpr (is_plain(F)) {
    std::memcpy(block, in + F.bytes * row, F.bytes);
  } else {
    std::memset(block, 0, F.bytes);
    constexpr uint32_t kScaleBytes = F.scales == Scales::kE8m0 ? 1 : 2;
    std::memcpy(block + F.scale_at, in + kScaleBytes * row, kScaleBytes);
    if constexpr (has_min(F)) std::memcpy(block + F.min_at, in + packed_min_at(F) + 2 * row, 2);
    if constexpr (F.scales == Scales::kSignedSub)
      for (uint32_t i = 0; i < sub_blocks(F); ++i) block[F.sub_at + i] = in[packed_sub_at(F) + kGroupRows * i + row];
    if constexpr (F.scales == Scales::kSub6Min) {
      uint8_t scales[8], mins[8];
      for (uint32_t i = 0; i < 8; ++i) {
        scales[i] = in[packed_sub_at(F) + kGroupRows * i + row];
        mins[i] = in[packed_sub_min_at(F) + 64 * (i / 4) + 4 * row + i % 4];
      }
      write_sub6(scales, mins, block + F.sub_at);
    }
    uint8_t codes[F.elements];
    for (uint32_t g = 0; g < F.elements / kSlotInputs; ++g)
      take_slots<F>(in + packed_codes_at(F) + g * packed_slots_bytes(F), row, codes + kSlotInputs * g);
    write_codes<F>(codes, block);
  }
}

// Block by block and not row by row: a packed block stays in the first cache while its 16 rows arrive.
template <const Format& F>
void pack_rows(const std::byte* rows, uint64_t row_stride, uint32_t row_count, uint64_t cols, uint8_t* group) {
  const uint8_t* source = reinterpret_cast<const uint8_t*>(rows);
  for (uint64_t b = 0; b < cols / F.elements; ++b, group += packed_block_bytes(F), source += F.bytes) {
    if (row_count < kGroupRows) std::memset(group, 0, packed_block_bytes(F));
    for (uint32_t r = 0; r < row_count; ++r) pack_block<F>(source + r * row_stride, r, group);
  }
}
template <const Format& F>
void unpack_rows(const uint8_t* group, uint32_t row_count, uint64_t cols, std::byte* rows, uint64_t row_stride) {
  uint8_t* target = reinterpret_cast<uint8_t*>(rows);
  for (uint64_t b = 0; b < cols / F.elements; ++b, group += packed_block_bytes(F), target += F.bytes)
    for (uint32_t r = 0; r < row_count; ++r) unpack_block<F>(group, r, target + r * row_stride);
}

}  // namespace

int format_index(uint32_t id) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [id](const Format* f) { return f->id == id; });
  return found == std::end(kFormats) ? -1 : static_cast<int>(found - std::begin(kFormats));
}
const Format& format_at(uint32_t index) { return *kFormats[index]; }

uint64_t group_bytes(const Format& format, uint64_t cols) {
  return cols / format.elements * packed_block_bytes(format);
}

void pack_group(const Format& format, const std::byte* rows, uint64_t row_stride, uint32_t row_count, uint64_t cols,
                uint8_t* group) {
  using Pack = void (*)(const std::byte*, uint64_t, uint32_t, uint64_t, uint8_t*);
#define MH_PACK_(f) pack_rows<f>,
  static constexpr Pack kPack[] = {MH_CPU_FORMATS(MH_PACK_)};
#undef MH_PACK_
  kPack[format_index(format.id)](rows, row_stride, row_count, cols, group);
}
void unpack_group(const Format& format, const uint8_t* group, uint32_t row_count, uint64_t cols, std::byte* rows,
                  uint64_t row_stride) {
  using Unpack = void (*)(const uint8_t*, uint32_t, uint64_t, std::byte*, uint64_t);
#define MH_UNPACK_(f) unpack_rows<f>,
  static constexpr Unpack kUnpack[] = {MH_CPU_FORMATS(MH_UNPACK_)};
#undef MH_UNPACK_
  kUnpack[format_index(format.id)](group, row_count, cols, rows, row_stride);
}

}  // namespace mh_cpu

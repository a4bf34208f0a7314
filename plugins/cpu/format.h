// Weight formats of the CPU backends, each described once: where a storage block keeps its codes and scales, and how 16
// rows of it lie interleaved in memory. Packing, unpacking, the kernels and the tests all derive from these
// descriptions. Included by kernel units: no std:: and nothing but constants.
//
// A packed row group holds 16 rows, block after block. Of a coded format a packed block is, in this order:
//   scales      16 x f16 (kE8m0: 16 x u8)
//   mins        16 x f16, where the format has them
//   sub-scales  one row of 16 x u8 (kSignedSub: i8) for every sub-block
//   sub-mins    kSub6: two vectors of 16 dwords; byte j of dword r of vector t: sub-block 4t + j of row r
//   codes       for every 32 inputs: 16 x 32 codes in the planes below
// The code planes are made of 64-byte vectors with one dword a row. Slot s of a group (0..7) is inputs 4s..4s+3, one a
// byte:
//   low nibbles  4 vectors: vector j holds slot j in the low halves and slot j + 4 in the high halves
//   5th bit      1 vector: bit s of byte b of the dword is input 4s + b
//   5th, 6th     2 vectors: vector t, bits 2j and 2j + 1 of byte b: input 4 (4t + j) + b
//   8 bits       8 vectors: vector s is slot s; signed codes are stored as code + 128
// Plain formats (F32, F16, BF16) hold 16 values, one a row, for every input.
#pragma once
#include <cstdint>

namespace mh_cpu {

constexpr uint32_t kGroupRows = 16;   // rows interleaved in a row group
constexpr uint32_t kSlotInputs = 32;  // inputs of one code group: 8 slots of 4

enum class Scales : uint8_t {
  kNone,       // plain values
  kHalf,       // value = d * code
  kHalfMin,    // value = d * code + m
  kE8m0,       // value = 2^(e - 128) * code
  kSub6Min,    // value = d * sub_scale * code - m * sub_min, eight 6-bit pairs in 12 bytes
  kSignedSub,  // value = d * sub_scale * code, sixteen i8
};

struct Format {
  uint32_t id;  // MH_FORMAT_*
  const char* name;
  uint16_t elements, bytes;  // of a storage block
  uint8_t code_bits;         // 4, 5, 6, 8; plain formats 16 or 32
  Scales scales;
  uint8_t scale_at, min_at, sub_at;  // byte offsets in the storage block
  // Low nibbles: input i is in byte low_at + i / (2 span) * span + i % span, in its high half if i / span is odd.
  // 8-bit codes: byte low_at + i.
  uint8_t low_at, low_span;
  uint8_t high_at;  // bits above the nibble: spans of 32 bytes, the first 32 inputs in the lowest bits
  uint8_t offset;   // value of a code = code - offset
  bool codebook;    // ... or kMxfp4Codes[code]
};

constexpr int8_t kMxfp4Codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// clang-format off
constexpr Format kF32{.id = 0, .name = "F32", .elements = 1, .bytes = 4, .code_bits = 32, .scales = Scales::kNone};
constexpr Format kF16{.id = 1, .name = "F16", .elements = 1, .bytes = 2, .code_bits = 16, .scales = Scales::kNone};
constexpr Format kBf16{.id = 30, .name = "BF16", .elements = 1, .bytes = 2, .code_bits = 16, .scales = Scales::kNone};
constexpr Format kQ4_0{.id = 2, .name = "Q4_0", .elements = 32, .bytes = 18, .code_bits = 4, .scales = Scales::kHalf,
                       .low_at = 2, .low_span = 16, .offset = 8};
constexpr Format kQ4_1{.id = 3, .name = "Q4_1", .elements = 32, .bytes = 20, .code_bits = 4, .scales = Scales::kHalfMin,
                       .min_at = 2, .low_at = 4, .low_span = 16};
constexpr Format kQ8_0{.id = 8, .name = "Q8_0", .elements = 32, .bytes = 34, .code_bits = 8, .scales = Scales::kHalf,
                       .low_at = 2, .offset = 128};
constexpr Format kMxfp4{.id = 39, .name = "MXFP4", .elements = 32, .bytes = 17, .code_bits = 4,
                        .scales = Scales::kE8m0, .low_at = 1, .low_span = 16, .codebook = true};
constexpr Format kQ4_K{.id = 12, .name = "Q4_K", .elements = 256, .bytes = 144, .code_bits = 4,
                       .scales = Scales::kSub6Min, .min_at = 2, .sub_at = 4, .low_at = 16, .low_span = 32};
constexpr Format kQ5_K{.id = 13, .name = "Q5_K", .elements = 256, .bytes = 176, .code_bits = 5,
                       .scales = Scales::kSub6Min, .min_at = 2, .sub_at = 4, .low_at = 48, .low_span = 32,
                       .high_at = 16};
constexpr Format kQ6_K{.id = 14, .name = "Q6_K", .elements = 256, .bytes = 210, .code_bits = 6,
                       .scales = Scales::kSignedSub, .scale_at = 208, .sub_at = 192, .low_span = 64, .high_at = 128,
                       .offset = 32};
// clang-format on

// X(description) for every format; the order is the index in tables of kernels.
#define MH_CPU_FORMATS(X) X(kF32) X(kF16) X(kBf16) X(kQ4_0) X(kQ4_1) X(kQ8_0) X(kMxfp4) X(kQ4_K) X(kQ5_K) X(kQ6_K)
#define MH_CPU_COUNT_(format) +1
constexpr uint32_t kFormatCount = 0 MH_CPU_FORMATS(MH_CPU_COUNT_);

// static: no weak symbol may come from here.
static constexpr bool is_plain(const Format& f) { return f.scales == Scales::kNone; }
static constexpr bool has_min(const Format& f) { return f.scales == Scales::kHalfMin || f.scales == Scales::kSub6Min; }
// Sub-blocks of a block, each with a scale of its own beside the block's; 0 where there are none.
static constexpr uint32_t sub_blocks(const Format& f) {
  return f.scales == Scales::kSub6Min ? 8 : f.scales == Scales::kSignedSub ? 16 : 0;
}

// Byte offsets in a packed block, in the order of the description above.
static constexpr uint32_t packed_min_at(const Format& f) { return f.scales == Scales::kE8m0 ? 16 : 32; }
static constexpr uint32_t packed_sub_at(const Format& f) { return packed_min_at(f) + (has_min(f) ? 32 : 0); }
static constexpr uint32_t packed_sub_min_at(const Format& f) { return packed_sub_at(f) + kGroupRows * sub_blocks(f); }
static constexpr uint32_t packed_codes_at(const Format& f) {
  return packed_sub_min_at(f) + (f.scales == Scales::kSub6Min ? 2 * 64 : 0);
}
static constexpr uint32_t packed_slots_bytes(const Format& f) { return 64u * f.code_bits; }  // of 16 rows x 32 inputs
// Bytes of 16 rows x f.elements inputs.
static constexpr uint32_t packed_block_bytes(const Format& f) {
  return is_plain(f) ? kGroupRows * f.bytes : packed_codes_at(f) + f.elements / kSlotInputs * packed_slots_bytes(f);
}

}  // namespace mh_cpu

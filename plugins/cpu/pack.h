// Weights to and from the packed layout of format.h. Exact both ways: unpack_group(pack_group(x)) is x, bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "plugins/cpu/format.h"

namespace mh_cpu {

// Index of a MH_FORMAT_* number in MH_CPU_FORMATS, or -1.
int format_index(uint32_t id);
const Format& format_at(uint32_t index);

// Bytes of one row group of `cols` inputs (a whole number of blocks).
uint64_t group_bytes(const Format& format, uint64_t cols);

// 16 rows, row_stride bytes apart, into one row group; rows beyond row_count become zeros. group: group_bytes(cols).
// [any]
void pack_group(const Format& format, const std::byte* rows, uint64_t row_stride, uint32_t row_count, uint64_t cols,
                uint8_t* group);
// The way back.
void unpack_group(const Format& format, const uint8_t* group, uint32_t row_count, uint64_t cols, std::byte* rows,
                  uint64_t row_stride);

}  // namespace mh_cpu

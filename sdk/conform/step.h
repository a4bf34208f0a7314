// What changes between two steps, and the step block that tells a device.
#pragma once
#include <cstdint>
#include <vector>

#include "arena.h"
#include "moehost/ops.h"

namespace conform {

// The most that a program is built for.
struct Limits {
  uint32_t tokens = 512, outputs = 512, sequences = 16, table_stride = 128, groups = 2;
};

// Block table of a kv group, a row of table_stride a sequence, and copies (from, to).
struct StepGroup {
  std::vector<int32_t> table, copies;
};

struct Step {
  std::vector<int32_t> token_ids, positions, output_rows, sequence_rows{0}, sequence_lengths;
  uint32_t decode_sequences = 0;
  std::vector<StepGroup> groups;

  uint32_t tokens() const { return static_cast<uint32_t>(token_ids.size()); }
  uint32_t outputs() const { return static_cast<uint32_t>(output_rows.size()); }
  // MH_ROWS_* to a count.
  uint32_t rows(uint32_t symbol) const { return symbol == MH_ROWS_OUTPUTS ? outputs() : tokens(); }
  // Appends a sequence of `count` rows, whose first one is at `position`; one-row sequences must come first.
  void add_sequence(uint32_t count, uint32_t position);
};

// One sequence of `tokens` rows from position 0, with token ids 0, 1, ...
Step plain_step(uint32_t tokens);

// The step block in an arena: fixed offsets, contents of one step after the other.
class StepBlock {
 public:
  StepBlock(Arena& arena, const Limits& limits);
  uint64_t offset() const { return offset_; }
  void write(const Step& step, uint64_t serial);

 private:
  void put(uint32_t offset, const std::vector<int32_t>& values);
  Arena& arena_;
  Limits limits_;
  uint64_t offset_;
  uint32_t token_ids_, positions_, output_rows_, sequence_rows_, sequence_lengths_, groups_, tables_, copies_, bytes_;
};

}  // namespace conform

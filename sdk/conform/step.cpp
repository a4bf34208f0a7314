// Layout and contents of the step block.
#include "step.h"

#include <algorithm>
#include <numeric>

#include "case.h"

namespace conform {
namespace {

constexpr uint32_t kMaxCopies = 8;

}  // namespace

void Step::add_sequence(uint32_t count, uint32_t position) {
  for (uint32_t i = 0; i < count; ++i) {
    token_ids.push_back(static_cast<int32_t>(i));
    positions.push_back(static_cast<int32_t>(position + i));
  }
  sequence_rows.push_back(static_cast<int32_t>(tokens()));
  sequence_lengths.push_back(static_cast<int32_t>(position + count));
  decode_sequences += count == 1;
}

Step plain_step(uint32_t tokens) {
  Step step;
  step.add_sequence(tokens, 0);
  step.output_rows.resize(tokens);
  std::iota(step.output_rows.begin(), step.output_rows.end(), 0);
  return step;
}

StepBlock::StepBlock(Arena& arena, const Limits& limits) : arena_(arena), limits_(limits) {
  uint32_t end = (sizeof(mh_step) + 63) / 64 * 64;
  const auto take = [&end](uint32_t ints) {
    const uint32_t at = end;
    end += (ints * 4 + 63) / 64 * 64;
    return at;
  };
  token_ids_ = take(limits.tokens), positions_ = take(limits.tokens), output_rows_ = take(limits.outputs);
  sequence_rows_ = take(limits.sequences + 1), sequence_lengths_ = take(limits.sequences);
  groups_ = take(limits.groups * sizeof(mh_step_group) / 4);
  tables_ = take(limits.groups * limits.sequences * limits.table_stride);
  copies_ = take(limits.groups * kMaxCopies * 2);
  bytes_ = end;
  offset_ = arena.place(bytes_);
}

void StepBlock::put(uint32_t offset, const std::vector<int32_t>& values) {
  std::copy(values.begin(), values.end(), arena_.at<int32_t>(offset_ + offset));
}

void StepBlock::write(const Step& step, uint64_t serial) {
  std::memset(arena_.base() + offset_, 0x7e, bytes_);  // nothing of the last step helps
  mh_step head{};
  head.size = sizeof head, head.serial = serial;
  head.tokens = step.tokens(), head.outputs = step.outputs(), head.decode_sequences = step.decode_sequences;
  head.sequences = static_cast<uint32_t>(step.sequence_lengths.size());
  head.token_ids = token_ids_, head.positions = positions_, head.output_rows = output_rows_;
  head.sequence_rows = sequence_rows_, head.sequence_lengths = sequence_lengths_;
  head.group_count = static_cast<uint32_t>(step.groups.size()), head.groups = groups_;
  *arena_.at<mh_step>(offset_) = head;
  put(token_ids_, step.token_ids), put(positions_, step.positions), put(output_rows_, step.output_rows);
  put(sequence_rows_, step.sequence_rows), put(sequence_lengths_, step.sequence_lengths);
  for (uint32_t g = 0; g < step.groups.size(); ++g) {
    const StepGroup& group = step.groups[g];
    require(group.copies.size() <= kMaxCopies * 2, "moehost-conform: too many copies in a step");
    const uint32_t table = tables_ + g * limits_.sequences * limits_.table_stride * 4;
    const uint32_t copies = copies_ + g * kMaxCopies * 8;
    put(table, group.table), put(copies, group.copies);
    arena_.at<mh_step_group>(offset_ + groups_)[g] = {table, limits_.table_stride, copies,
                                                      static_cast<uint32_t>(group.copies.size() / 2)};
  }
}

}  // namespace conform

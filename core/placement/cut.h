// Cuts a placed program into one program a device, with fences and exchange memory where values cross. Floor 4.
//
// Every value that is used in more than one domain becomes a boundary in the exchange arena. A domain is a device; for
// a device that cannot wait or signal inside a program it is a segment of its items between hand-offs, and core relays.
#pragma once
#include <cstdint>
#include <vector>

#include "core/placement/placed.h"

namespace moehost {

// Where things lie in the exchange arena (host memory that every device imports).
struct StepLayout {
  uint64_t offset = 0, bytes = 0;  // of the mh_step
  uint32_t token_ids = 0, positions = 0, output_rows = 0, sequence_rows = 0, sequence_lengths = 0, groups = 0;
  uint32_t table_stride = 0;             // entries of one sequence's block table
  std::vector<uint32_t> tables, copies;  // by kv group
};

struct CutItem {
  uint32_t what = MH_ITEM_OP;  // MH_ITEM_*
  uint32_t index = 0;          // OP: in PlacedProgram::ops; WAIT, SIGNAL: global fence
};

// One program of one device: a run of items. Values are global ids until the engine numbers them.
struct CutProgram {
  uint32_t device = 0;
  std::vector<CutItem> items;            // what the device runs
  std::vector<uint32_t> waits, signals;  // relay: global fences core waits on before and signals after; else empty
};

struct Boundary {
  ValueId root = 0;
  uint64_t offset = 0, row_stride_bytes = 0;
  std::vector<bool> written_by;  // by program: this program writes it
};

struct CutResult {
  std::vector<CutProgram> programs;  // by device, segments in order
  std::vector<bool> relayed;         // by device
  uint32_t fence_count = 0;          // each on 64 bytes, from offset 0; the last ones, one a device, say "done"
  uint32_t done_fence(uint32_t device) const { return fence_count - static_cast<uint32_t>(relayed.size()) + device; }
  std::vector<Boundary> boundaries;         // roots
  int32_t boundary_of(ValueId root) const;  // index, or -1
  StepLayout step;
  uint64_t arena_bytes = 0;
};

// captured: roots that the host wants to read after the step, besides the logits.
CutResult cut_program(const PlacedProgram& program, const std::vector<ValueId>& captured = {});

// A cut program in the form of the ABI, with the arrays it points to.
struct ProgramBinding {
  mh_buffer* arena = nullptr;  // the device's import; NULL for program_cost
  char* arena_host = nullptr;
  const std::vector<mh_op*>* ops = nullptr;  // by placed op; NULL for program_cost
};
class ProgramDescription {
 public:
  ProgramDescription(const PlacedProgram& program, const CutResult& cut, size_t index,
                     std::vector<OpDescription>& descriptions, const ProgramBinding& binding);
  const mh_program_desc& get() const { return desc_; }

 private:
  mh_program_desc desc_{};
  std::vector<mh_value> values_;
  std::vector<mh_item> items_;
  std::vector<mh_fence> fences_;
  std::vector<mh_binding> bindings_;
  std::vector<std::vector<uint32_t>> ids_;
};

}  // namespace moehost

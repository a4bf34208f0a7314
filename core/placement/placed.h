// A Program with every op on exactly one device: what placement makes and the engine runs. Floor 4.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/config/config.h"
#include "core/model/program.h"
#include "core/placement/device_map.h"

namespace moehost {

// One op on one device.
struct PlacedOp {
  ProgramOp op;                     // values: ids in PlacedProgram::values; weights: already the device's slices
  uint32_t device = 0;              // index in PlacedProgram::devices
  std::vector<int32_t> expert_ids;  // of an experts op
  std::optional<uint32_t> kv;       // of an attention op: index in PlacedProgram::kvs
};

// One cache on one device.
struct PlacedKv {
  uint32_t device = 0;
  mh_kv_desc desc{};
};

// The bounds of a step.
struct StepLimits {
  uint32_t max_tokens = 0, max_outputs = 0, max_sequences = 0, context_tokens = 0, block_tokens = 0;
  uint32_t blocks_per_sequence() const { return (context_tokens + block_tokens - 1) / block_tokens; }
};

// The whole: devices, values, ops and caches.
struct PlacedProgram {
  std::vector<std::shared_ptr<Device>> devices;  // in order of first use
  std::vector<Value> values;
  std::vector<PlacedOp> ops;  // in an order in which they can run
  std::vector<PlacedKv> kvs;
  StepLimits limits;
  ValueId logits = 0;
  uint32_t max_rows(ValueId id) const {
    return values[id].view.rows == MH_ROWS_TOKENS ? limits.max_tokens : limits.max_outputs;
  }
};

// A description in the form of the ABI, with the arrays it points to. Moves only; addresses stay.
class OpDescription {
 public:
  OpDescription(const PlacedProgram& program, const PlacedOp& placed);
  // with_data false: slabs are NULL, as op.cost takes it. kv: NULL for op.cost.
  const mh_op_desc& describe(bool with_data, mh_kv* kv = nullptr);

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

// Distributes the program's ops over the devices of the map; open() gives a device by name, once each. Experts that
// several devices share become one op a device and an `add` of their partial results, in listed order. Errors: what
// open says; kUnavailable when a device cannot do an op (names op, device, reason); kBadConfig when a column share is
// too small to cut.
using OpenDevice = std::function<Result<std::shared_ptr<Device>>(const DeviceName&)>;
Result<PlacedProgram> place_program(const Program& program, const ResolvedMap& map, const StepLimits& limits,
                                    KvDtype kv_dtype, const OpenDevice& open, std::vector<std::string>* notes);

}  // namespace moehost

// From a Program and a config to a placement with its plan: everything that can be known before a weight is read.
// Floor 4.
#pragma once
#include <memory>
#include <vector>

#include "core/placement/cut.h"
#include "core/placement/placed.h"
#include "core/placement/plan.h"

namespace moehost {

struct Placement {
  PlacedProgram program;
  std::vector<OpDescription> descriptions;  // by op
  CutResult cut;
  Plan plan;
};

// Opens the devices that the map names and asks them for the cost of every op, cache and program. A plan that does not
// fit is a result (plan.fits, plan.problems). Errors: as resolve_device_map and place_program; kUnavailable when a
// device cannot do an op, with the reason and a way out. captured: values the host reads after every step, besides the
// logits.
Result<Placement> make_placement(const Program& program, const Config& config, Registry& registry,
                                 const std::vector<ValueId>& captured = {});

}  // namespace moehost

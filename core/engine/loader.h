// Loads the weights of a placement into its devices. Floor 5.
#pragma once
#include <atomic>
#include <functional>
#include <vector>

#include "core/engine/engine.h"
#include "core/format/gguf.h"
#include "core/placement/placement.h"

namespace moehost {

struct LoadedWeights {
  std::vector<KvHandle> kvs;  // by index of PlacedProgram::kvs
  std::vector<OpHandle> ops;  // by index of PlacedProgram::ops; they hold their kvs
};
// Creates the caches, then loads ops on several threads; source pages are dropped as they are done with.
// Errors: as the devices say, with the op's name; kInterrupted when options.cancel is set.
Result<LoadedWeights> load_weights(Placement& placement, const GgufFile& file, const EngineOptions& options);

}  // namespace moehost

// The build says what it is through the definitions of CMakeLists.txt; only this file is compiled with them.
#include "apps/moehost/version.h"

#include "core/base/status.h"

namespace moehost {

std::string version_line() {
  return cat("moehost ", MOEHOST_VERSION, " (", MOEHOST_BUILD_TYPE, ", ", MOEHOST_COMPILER, ", ", MOEHOST_CUDA_TEXT,
             ")");
}

}  // namespace moehost

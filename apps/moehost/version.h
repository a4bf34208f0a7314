// The version of the program and how it was built. Floor 6.
#pragma once
#include <string>

namespace moehost {

// "moehost 0.1.0 (Release, GCC 12.2.0, without CUDA)".
std::string version_line();

}  // namespace moehost

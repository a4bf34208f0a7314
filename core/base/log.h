// Logging facade: one line a call to standard error, thread-safe. The library behind it stays out of our headers.
// Floor 1.
#pragma once
#include <string_view>

#include "core/base/status.h"

namespace moehost::log {

enum class Level { kError = 0, kWarning, kInfo, kDebug };  // the numbers of mh_host.log

// Lines above the level are dropped. Default kInfo. [any thread]
void set_level(Level level);
// component: who speaks ("engine", a plugin id). Control characters in text are escaped. [any thread]
void write(Level level, std::string_view component, std::string_view text);

// One line of that level: the parts, printed one after another. [any thread]
template <class... Parts>
void error(std::string_view component, const Parts&... parts) {
  write(Level::kError, component, cat(parts...));
}
// As error.
template <class... Parts>
void warning(std::string_view component, const Parts&... parts) {
  write(Level::kWarning, component, cat(parts...));
}
// As error.
template <class... Parts>
void info(std::string_view component, const Parts&... parts) {
  write(Level::kInfo, component, cat(parts...));
}
// As error; dropped by default.
template <class... Parts>
void debug(std::string_view component, const Parts&... parts) {
  write(Level::kDebug, component, cat(parts...));
}

}  // namespace moehost::log

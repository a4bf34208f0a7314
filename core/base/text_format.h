// Small helpers for messages people read. Floor 1.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moehost {

// text with control characters escaped (\n, \t, \x1b), so that it stays one line.
std::string printable(std::string_view text);
// "512 B", "1.50 GiB".
std::string format_bytes(uint64_t bytes);
// Insertions, deletions and changes from a to b.
size_t edit_distance(std::string_view a, std::string_view b);
// The known name closest to name, or empty when half of it or more would have to change: "did you mean".
std::string nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace moehost

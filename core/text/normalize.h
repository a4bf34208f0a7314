// Unicode normalization form C. Floor 2.
#pragma once
#include <string>
#include <string_view>

namespace moehost {

// text: valid UTF-8. O(n log n) for any text, also for endless runs of combining marks.
std::string to_nfc(std::string_view text);

}  // namespace moehost

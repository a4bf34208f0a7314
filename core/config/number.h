// Numbers as the configuration writes them, whatever the locale: decimal, no leading zeros. Floor 2.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace moehost {

// "0", "42". Nothing for "010" (8 to a YAML reader), "-1", "+1", "0x10", "1e3", "1_000", more than 64 bits.
std::optional<uint64_t> parse_whole(std::string_view text);
// What JSON calls a number: "1", "-0.5", "1e-3". Nothing for "010", ".5", ".nan", ".inf", what is infinite as a double.
std::optional<double> parse_real(std::string_view text);
// The weight of a share or member: above 0, at most 1e9. kBadConfig says so and quotes text.
Result<double> parse_weight(std::string_view text);
// The shortest text that reads back as value.
std::string format_real(double value);

}  // namespace moehost

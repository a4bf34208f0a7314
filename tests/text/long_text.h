// Texts so long that anything quadratic would take hours, and a bound that only says it was not.
#pragma once
#include <ctime>
#include <string>

namespace moehost {

#ifdef __SANITIZE_ADDRESS__
inline constexpr size_t kLongTextBytes = 512 << 10;
#else
inline constexpr size_t kLongTextBytes = 4 << 20;
#endif
inline constexpr double kGenerousSeconds = 120;

inline std::string long_text(const std::string& unit) {
  std::string out;
  while (out.size() < kLongTextBytes) out += unit;
  return out;
}

// Of processor time, since this was made.
class CpuSeconds {
 public:
  double passed() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t begin_ = std::clock();
};

}  // namespace moehost

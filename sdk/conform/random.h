// Random data that is the same on every machine for a seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace conform {

class Random {
 public:
  // name: of the case, so that two cases with one seed differ.
  Random(uint64_t seed, const std::string& name) : state_(seed) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * UINT64_C(0x100000001b3);
  }
  uint64_t bits() {  // splitmix64
    uint64_t z = state_ += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(bits() % limit); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  // Near enough to a normal number with deviation 1: the sum of four uniform ones. Most of a case's time would be logs.
  float normal() {
    const uint64_t b = bits();
    const auto sum = static_cast<int32_t>((b & 0xffff) + ((b >> 16) & 0xffff) + ((b >> 32) & 0xffff) + (b >> 48));
    return static_cast<float>(sum - 2 * 0xffff) *
           2.6428e-5F;  // sqrt(3) / 65535: the deviation of the sum is 65535 / sqrt(3)
  }
  std::vector<float> normals(size_t count, double scale) {
    std::vector<float> out(count);
    for (float& v : out) v = static_cast<float>(normal() * scale);
    return out;
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
  }

 private:
  uint64_t state_;
};

}  // namespace conform

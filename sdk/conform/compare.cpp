// Comparing element by element.
#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arena.h"
#include "case.h"

namespace conform {
namespace {

constexpr double kNoiseDeviations = 6;  // of 10^9 results, two are farther off

void compare_reals(const std::string& where, const Answer& right, const Matrix& got, uint32_t width, Worst& worst) {
  for (size_t i = 0; i < got.reals.size(); ++i) {
    const Number& want = right.reals[i];
    const float value = got.reals[i];
    const auto at = [&] { return cat(where, ": row ", i / width, ", column ", i % width); };
    require(got.ids[i] != static_cast<int32_t>(Arena::kPattern), at(), " was not written");
    const double error = std::fabs(value - want.value), wide = want.bound + kNoiseDeviations * want.noise;
    require(error <= wide, at(), " is ", value, ", right is ", want.value, " +- ", wide,
            want.noise > 0 ? " (8-bit activations allowed for)" : " (f32 arithmetic)");
    if (want.bound > 0) worst.of_bound = std::max(worst.of_bound, error / want.bound);
    if (want.noise > 0) worst.of_noise = std::max(worst.of_noise, error / wide);
  }
}

}  // namespace

std::string Worst::text() const {
  if (of_bound <= 1) return cat("largest error ", of_bound, " of the f32 bound");
  return cat("activations in 8 bit: largest error ", of_noise, " of the bound for that");
}

void compare(const std::string& where, const Op& op, const std::vector<Answer>& right, const std::vector<Matrix>& got,
             Worst& worst) {
  for (size_t k = 0; k < right.size(); ++k) {
    const uint32_t width = op.outputs[k].width();
    if (right[k].ids.empty()) {
      compare_reals(where, right[k], got[k], width, worst);
      continue;
    }
    for (size_t i = 0; i < got[k].ids.size(); ++i)
      require(got[k].ids[i] == right[k].ids[i], where, ": id of row ", i / width, ", place ", i % width, " is ",
              got[k].ids[i], ", right is ", right[k].ids[i]);
  }
}

bool same_bits(const std::vector<Matrix>& a, const std::vector<Matrix>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Matrix& x, const Matrix& y) { return x.ids == y.ids; });
}

}  // namespace conform

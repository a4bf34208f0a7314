// Results of a device against right answers.
#pragma once
#include <string>
#include <vector>

#include "op.h"

namespace conform {

// What the worst element of a case was, as shares of its two tolerances.
struct Worst {
  double of_bound = 0, of_noise = 0;
  std::string text() const;
};

// Fails the case, naming the element, if a result is not written or not within its bounds. got may have fewer rows than
// right has answers.
void compare(const std::string& where, const Op& op, const std::vector<Answer>& right, const std::vector<Matrix>& got,
             Worst& worst);

bool same_bits(const std::vector<Matrix>& a, const std::vector<Matrix>& b);

}  // namespace conform

// libFuzzer target: any bytes as a text and as token ids.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz_text/round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string failure = moehost::round_trip_failure({reinterpret_cast<const char*>(data), size});
  if (failure.empty()) return 0;
  std::fprintf(stderr, "%s\n", failure.c_str());
  std::abort();
}

// What `moehost plan` shows: which device holds what, in exact bytes, and whether it fits. Floor 4.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace moehost {

struct DevicePlan {
  std::string name, plugin;                                      // "cpu:0", "backend_cpu_avx512"
  std::string layers, experts;                                   // for people: "0-29", "4-29 (all 8)"; empty: none
  uint64_t weight_bytes = 0, kv_bytes = 0, workspace_bytes = 0;  // on the device: what it promised to allocate
  uint64_t overhead_bytes = 0;                                   // taken by opening it
  uint64_t host_bytes = 0;                                       // staging in pinned host memory
  uint64_t free_bytes = 0;                                       // before loading
  bool host_memory = false;                                      // its bytes are host RAM
  bool fits = true;
};

struct Plan {
  std::string model;  // one line: name, architecture, layers, experts, parameters, bytes
  bool fits = true;
  std::vector<DevicePlan> devices;    // in order of first use
  std::vector<std::string> problems;  // what does not fit, with the numbers and a way out
  std::vector<std::string> notes;     // slow paths, shares reached by rounding
  uint64_t exchange_bytes = 0;        // host memory for values that cross devices, fences, step block
  uint64_t host_free_bytes = 0;
  uint32_t max_tokens = 0, prefill_chunk = 0;
  std::string kv_dtype;
};

}  // namespace moehost

// What a plugin answers, judged: codes, texts, facts and costs. Floor 3, internal to core/backend.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "moehost/device.h"

namespace moehost {

// The code itself when version 1 knows it, else MH_INTERNAL.
int32_t known_code(int32_t code);
// The code in the low half of a poisoned counter.
int32_t known_cause(uint64_t poisoned_counter);
// "unsupported", "no memory".
const char* code_name(int32_t code);

// An empty place for an explanation.
mh_error fresh_error();
// The explanation as one printable line; it ends where the slot ends, whatever the plugin wrote.
std::string error_text(const mh_error& error);
// Writes an explanation for a plugin; error may be null.
void explain(mh_error* error, std::string_view text);

// Calls into a plugin: the code it answers. An exception that crosses the ABI ends here, as MH_INTERNAL.
template <class Call>
int32_t guarded(Call&& call, mh_error* error) {
  try {
    return call();
  } catch (...) {
    explain(error, "threw an exception across the ABI");
    return MH_INTERNAL;
  }
}

// A plugin's answer as a Status: "<who>: <text> (<code>)". kUnavailable, kNoResource or kInternal.
Status answer_status(int32_t code, const mh_error& error, std::string_view who);

// Nothing, or why an answer cannot be true. Text members are required to end in NUL.
Status check_info(const mh_device_info& info);
Status check_cost(const mh_op_cost& cost);
Status check_bytes(std::string_view what, uint64_t bytes);

}  // namespace moehost

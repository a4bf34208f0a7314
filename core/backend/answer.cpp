// Judges what plugins answer: nothing of it is believed unseen.
#include "core/backend/answer.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/base/text_format.h"

namespace moehost {
namespace {

constexpr const char* kCodeNames[] = {"ok",      "unsupported", "invalid", "no memory",      "busy",
                                      "timeout", "device lost", "aborted", "internal error", "wrong ABI"};
constexpr int32_t kLowestCode = MH_ABI;
constexpr uint64_t kMaxBytes = UINT64_C(1) << 60;  // no machine has an exbibyte: such a number is a bug
constexpr uint32_t kMaxAlign = 1u << 30;

bool ends(const char* text, size_t size) { return std::memchr(text, 0, size) != nullptr; }

}  // namespace

int32_t known_code(int32_t code) { return code > 0 || code < kLowestCode ? MH_INTERNAL : code; }

int32_t known_cause(uint64_t poisoned_counter) {
  const uint64_t cause = poisoned_counter & 0xffffffffu;
  return cause == 0 || cause > -kLowestCode ? MH_INTERNAL : -static_cast<int32_t>(cause);
}

const char* code_name(int32_t code) { return kCodeNames[-known_code(code)]; }

mh_error fresh_error() {
  mh_error error;
  error.size = sizeof error, error.item = -1, error.text[0] = 0;
  return error;
}

std::string error_text(const mh_error& error) {
  return printable(std::string_view(error.text, strnlen(error.text, sizeof error.text)));
}

void explain(mh_error* error, std::string_view text) {
  if (!error || !MH_HAS(error, mh_error, text)) return;
  error->item = -1;
  std::snprintf(error->text, sizeof error->text, "%.*s", static_cast<int>(text.size()), text.data());
}

Status answer_status(int32_t code, const mh_error& error, std::string_view who) {
  if (code == MH_OK) return Status();
  std::string text = error_text(error);
  if (text.empty()) text = "failed without an explanation";
  const int32_t known = known_code(code);
  const Code kind = known == MH_NO_MEMORY ? Code::kNoResource
                    : known == MH_INVALID ? Code::kInternal
                                          : Code::kUnavailable;
  const std::string note = known == code ? "" : cat(", unknown code ", code);
  return fail(kind, who, ": ", text, " (", code_name(known), note, ")");
}

Status check_info(const mh_device_info& info) {
  const auto refuse = [](const auto&... what) { return fail(Code::kUnavailable, "device info is wrong: ", what...); };
  if (!ends(info.name, sizeof info.name)) return refuse("name does not end within ", sizeof info.name, " bytes");
  if (!ends(info.uuid, sizeof info.uuid)) return refuse("uuid does not end within ", sizeof info.uuid, " bytes");
  if (!std::has_single_bit(info.import_align) || info.import_align > kMaxAlign) {
    return refuse("import_align ", info.import_align, " is no power of two up to ", kMaxAlign);
  }
  if (info.max_queues == 0) return refuse("max_queues is 0");
  if (info.numa_node < -1) return refuse("numa_node ", info.numa_node, " is below -1");
  MOEHOST_RETURN_IF_ERROR(check_bytes("memory_bytes", info.memory_bytes));
  return check_bytes("overhead_bytes", info.overhead_bytes);
}

Status check_cost(const mh_op_cost& cost) {
  if (cost.verdict != MH_NATIVE && cost.verdict != MH_SLOW) {
    return fail(Code::kUnavailable, "verdict ", cost.verdict, " is neither native (0) nor slow (1)");
  }
  for (const float us : {cost.one_row_us, cost.full_batch_us}) {
    if (!std::isfinite(us) || us < 0) return fail(Code::kUnavailable, "estimated time ", us, " us is no time");
  }
  MOEHOST_RETURN_IF_ERROR(check_bytes("resident_bytes", cost.resident_bytes));
  return check_bytes("peak_bytes", cost.peak_bytes);
}

Status check_bytes(std::string_view what, uint64_t bytes) {
  if (bytes <= kMaxBytes) return Status();
  return fail(Code::kUnavailable, what, " ", bytes, " is more than any machine has");
}

}  // namespace moehost

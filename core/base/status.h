// Status and Result: how everything in core says what went wrong. Floor 1.
//
// Operational failures (files, configs, requests, devices) are values, never exceptions. A message names the thing,
// the value seen, what was allowed, and what to do. Context is added on the way up with Status::in.
#pragma once
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace moehost {

// What kind of failure, and with it the exit code of the program (sysexits where one fits).
enum class Code {
  kOk = 0,
  kUsage = 2,          // a command line or call that cannot be meant
  kBadModel = 65,      // a model file that is malformed, or says something not supported
  kUnavailable = 69,   // a device or plugin that is missing, refused, lost or failing
  kInternal = 70,      // our own mistake
  kNoResource = 71,    // out of memory or disk
  kBadConfig = 78,     // a configuration that is wrong
  kInterrupted = 130,  // cancelled by the user
};

// The parts, printed one after another with operator<<.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// Ok, or a code and a message for people.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }
  const std::string& message() const { return message_; }
  // The same failure with "context: " in front; ok stays ok.
  Status in(std::string_view context) const { return ok() ? *this : Status(code_, cat(context, ": ", message_)); }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A failure whose message is the parts, one after another.
template <class... Parts>
Status fail(Code code, const Parts&... parts) {
  return Status(code, cat(parts...));
}

// A T, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return value_.value(); }
  const T& operator*() const& { return value_.value(); }
  T&& operator*() && { return std::move(value_).value(); }
  T* operator->() { return &value_.value(); }
  const T* operator->() const { return &value_.value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace moehost

// Returns the failure of a Status expression to the caller.
#define MOEHOST_RETURN_IF_ERROR(expression)                                                           \
  do {                                                                                                \
    if (::moehost::Status moehost_status = (expression); !moehost_status.ok()) return moehost_status; \
  } while (0)
#define MOEHOST_CONCAT2_(a, b) a##b
#define MOEHOST_CONCAT_(a, b) MOEHOST_CONCAT2_(a, b)
// MOEHOST_ASSIGN(auto x, expression): x is the value of a Result expression, or its failure is returned.
#define MOEHOST_ASSIGN(declaration, expression) \
  MOEHOST_ASSIGN_(MOEHOST_CONCAT_(result_, __LINE__), declaration, expression)
#define MOEHOST_ASSIGN_(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result.ok()) return result.status();              \
  declaration = *std::move(result)

// Our own mistakes only, never input. Stays on in release.
#define MOEHOST_CHECK(condition) ((condition) ? void() : ::moehost::check_failed(__FILE__, __LINE__, #condition))
namespace moehost {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

// A plugin brought up: host, device, one imported arena, one queue; and ops loaded on it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "arena.h"
#include "case.h"
#include "host.h"
#include "op.h"
#include "plugin.h"

namespace conform {

// A fresh mh_error.
struct Error : mh_error {
  Error() : mh_error{sizeof(mh_error), -1, {}} {}
};

std::string code_name(int32_t code);
// Goes on when code is MH_OK, skips the case on MH_UNSUPPORTED with a text, else fails it with `what` and the text.
void check(int32_t code, const Error& error, const std::string& what);
// A failing call must answer `code` and give a text, with all of `named` in it.
void check_refused(int32_t answer, int32_t code, const Error& error, const std::string& what,
                   const std::vector<std::string>& named = {});

struct SessionOptions {
  std::vector<mh_option> device_options;
  uint64_t arena_bytes = UINT64_C(32) << 20;  // pages that are not used take nothing
};

class Session {
 public:
  explicit Session(const Context& context, const SessionOptions& options = {});
  // Ends the plugin's life: frees in reverse order, close, shutdown.
  void end();

  uint64_t used_bytes() const { return memory().used_bytes; }
  mh_device_memory memory() const;
  bool relays() const;  // the device neither waits nor signals inside programs
  mh_queue* new_queue();
  uint64_t next_serial() { return ++serial_; }
  uint64_t serial() const { return serial_; }
  // After an error: every queue answers wait, then reset; then all fences stand at the last serial.
  void recover(const std::vector<mh_queue*>& queues);

  const Context& context;
  Host host;
  const mh_plugin& api;
  mh_device_info info{};
  mh_device* device = nullptr;
  Arena arena;
  mh_buffer* buffer = nullptr;
  mh_queue* queue = nullptr;

 private:
  uint64_t serial_ = 0;
};

// Opens the device that the case is about, with these options and those of the command line; skips the case when there
// is no device.
mh_device* open_device(const mh_plugin& api, const Context& context, std::vector<mh_option> options);

// An op priced, with its cache, and loaded. Skips the case if the device does not support it.
class LoadedOp {
 public:
  LoadedOp(Session& session, Op& op, const Limits& limits);
  // As above, but shares the cache of another op.
  LoadedOp(Session& session, Op& op, const Limits& limits, mh_kv* kv);
  void free();
  Op& op() const { return op_; }
  mh_op* raw() const { return raw_; }
  mh_kv* kv() const { return kv_; }
  const mh_op_cost& cost() const { return cost_; }
  const mh_op_desc& desc() const { return desc_; }

 private:
  void load(const Limits& limits);
  Session& session_;
  Op& op_;
  mh_op* raw_ = nullptr;
  mh_kv* kv_ = nullptr;
  bool owns_kv_;
  mh_op_cost cost_{};
  mh_op_desc desc_{};
};

// Whether the device would take the op: MH_OK, or MH_UNSUPPORTED with the reason; anything else fails the case.
bool supports(const Session& session, Op& op, const Limits& limits, std::string* reason = nullptr);

}  // namespace conform

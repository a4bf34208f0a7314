// Bringing a plugin up, and the codes it answers.
#include "session.h"

#include <algorithm>

namespace conform {
namespace {

const mh_plugin& start(const Context& context, const Host& host) {
  const mh_plugin& api = load_plugin(context.plugin_path);
  Error error;
  check(api.init(host.table(), &error), error, "init");
  return api;
}

}  // namespace

std::string code_name(int32_t code) {
  static const char* const kNames[] = {"MH_OK",      "MH_UNSUPPORTED", "MH_INVALID", "MH_NO_MEMORY", "MH_BUSY",
                                       "MH_TIMEOUT", "MH_DEVICE_LOST", "MH_ABORTED", "MH_INTERNAL",  "MH_ABI"};
  return code <= 0 && code >= MH_ABI ? kNames[-code] : cat("code ", code);
}

void check(int32_t code, const Error& error, const std::string& what) {
  if (code == MH_OK) return;
  require(error.text[0] != 0, what, ": ", code_name(code), " without a text");
  if (code == MH_UNSUPPORTED) skip(what, ": ", error.text);
  fail(what, ": ", code_name(code), ": ", error.text);
}

void check_refused(int32_t answer, int32_t code, const Error& error, const std::string& what,
                   const std::vector<std::string>& named) {
  require(answer == code, what, ": answered ", code_name(answer), " instead of ", code_name(code),
          error.text[0] ? cat(" (\"", error.text, "\")") : "");
  require(std::find(std::begin(error.text), std::end(error.text), '\0') != std::end(error.text), what,
          ": the error text does not end in NUL");
  const std::string text = error.text;
  require(!text.empty(), what, ": ", code_name(code), " without a text");
  for (const auto& name : named)
    require(text.find(name) != std::string::npos, what, ": the text does not name ", name, ": \"", text, "\"");
}

mh_device* open_device(const mh_plugin& api, const Context& context, std::vector<mh_option> options) {
  for (const auto& [key, value] : context.device_options) options.push_back({key.c_str(), value.c_str()});
  uint32_t count = 0;
  Error error;
  check(api.device->count(&count, &error), error, "device.count");
  if (count == 0) skip("the plugin names no device by index (no hardware here, or a composite)");
  require(context.device_index < count, "there is no device ", context.device_index, ", the plugin has ", count);
  mh_device_spec spec{};
  spec.size = sizeof spec, spec.index = context.device_index;
  spec.option_count = static_cast<uint32_t>(options.size());
  spec.options = options.data();
  mh_device* device = nullptr;
  check(api.device->open(&spec, &device, &error), error, "device.open");
  require(device != nullptr, "device.open: MH_OK without a device");
  return device;
}

Session::Session(const Context& context_of_case, const SessionOptions& options)
    : context(context_of_case),
      host(context_of_case.verbose),
      api(start(context_of_case, host)),
      arena(options.arena_bytes) {
  Error error;
  device = open_device(api, context, options.device_options);
  info.size = sizeof info;
  check(api.device->info(context.device_index, &info, &error), error, "device.info");
  check(api.buffer->import(device, arena.base(), arena.bytes(), &buffer, &error), error, "buffer.import");
  queue = new_queue();
}

void Session::end() {
  api.queue->free(queue);
  api.buffer->free(buffer);
  const uint64_t used = used_bytes();
  require(used == 0, "device.memory says ", used, " bytes are in use after every object was freed");
  api.device->close(device);
  require(host.bytes() == 0, "leaked host memory: ", host.bytes(),
          " bytes of memory_alloc are left after device.close");
  api.shutdown();
}

mh_device_memory Session::memory() const {
  mh_device_memory memory{};
  memory.size = sizeof memory;
  Error error;
  check(api.device->memory(device, &memory, &error), error, "device.memory");
  return memory;
}

bool Session::relays() const {
  constexpr uint32_t kBoth = MH_DEVICE_WAITS | MH_DEVICE_SIGNALS;
  return (info.features & kBoth) != kBoth;
}

mh_queue* Session::new_queue() {
  Error error;
  mh_queue* made = nullptr;
  check(api.queue->create(device, &made, &error), error, "queue.create");
  require(made != nullptr, "queue.create: MH_OK without a queue");
  return made;
}

void Session::recover(const std::vector<mh_queue*>& queues) {
  for (mh_queue* each : queues) {
    Error error;
    const int32_t code = api.queue->wait(each, UINT64_C(5000000000), &error);
    require(code != MH_TIMEOUT, "queue.wait gave no answer in 5 s after an error or abort");
  }
  for (mh_queue* each : queues) {
    Error error;
    check(api.queue->reset(each, &error), error, "queue.reset");
  }
  arena.set_fences(serial_);
}

LoadedOp::LoadedOp(Session& session, Op& op, const Limits& limits) : session_(session), op_(op), owns_kv_(true) {
  if (const mh_kv_desc* kv_desc = op.kv_desc()) {
    if (!session.api.kv) skip("kv: the plugin has no kv table");
    Error error;
    check(session.api.kv->create(session.device, kv_desc, &kv_, &error), error, "kv.create");
    require(kv_ != nullptr, "kv.create: MH_OK without a kv");
  }
  load(limits);
}

LoadedOp::LoadedOp(Session& session, Op& op, const Limits& limits, mh_kv* kv)
    : session_(session), op_(op), kv_(kv), owns_kv_(false) {
  load(limits);
}

void LoadedOp::load(const Limits& limits) {
  op_.set_kv(kv_);
  cost_.size = sizeof cost_;
  desc_ = op_.describe(false, limits);
  Error error;
  check(session_.api.op->cost(session_.device, &desc_, &cost_, &error), error, "op.cost of " + op_.name);
  const mh_op_desc full = op_.describe(true, limits);
  check(session_.api.op->load(session_.device, &full, &raw_, &error), error, "op.load of " + op_.name);
  require(raw_ != nullptr, "op.load of ", op_.name, ": MH_OK without an op");
}

void LoadedOp::free() {
  session_.api.op->free(raw_);
  if (kv_ && owns_kv_) session_.api.kv->free(kv_);
}

bool supports(const Session& session, Op& op, const Limits& limits, std::string* reason) {
  mh_op_cost cost{};
  cost.size = sizeof cost;
  const mh_op_desc desc = op.describe(false, limits);
  Error error;
  const int32_t code = session.api.op->cost(session.device, &desc, &cost, &error);
  require(code == MH_OK || (code == MH_UNSUPPORTED && error.text[0]), "op.cost of ", op.name, ": ", code_name(code),
          ": \"", error.text, "\"; a device takes an op, or says MH_UNSUPPORTED and why");
  if (reason) *reason = error.text;
  return code == MH_OK;
}

}  // namespace conform

// ABI: what a plugin promises before any number is computed: symbols, versions, sizes, unknown things, error texts.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <filesystem>

#include "case.h"
#include "job.h"
#include "process.h"

extern char** environ;

namespace conform {
namespace {

constexpr uint32_t kUnknown = 9999;  // a kind, format or code that no minor has
const Limits kSmall{16, 16, 4};

// T, and bytes behind it that a later minor may have appended.
template <class T>
struct Longer {
  T value{};
  uint64_t tail[4] = {};
  explicit Longer(const T& known) : value(known) { value.size = sizeof(Longer); }
};

// Bytes that a plugin must leave alone when it fails.
template <class T>
T sentinel() {
  T value;
  std::memset(&value, 0x5a, sizeof value);
  return value;
}
template <class T>
bool is_sentinel(const T& value) {
  const T expected = sentinel<T>();
  return std::memcmp(&value, &expected, sizeof value) == 0;
}

// The first op of the catalogue that the device takes, smallest kinds first; skips the case if there is none.
std::unique_ptr<Op> any_op(const Session& session, Random& random, bool with_params) {
  for (const OpVariant& variant : all_ops()) {
    auto op = variant.make(random, false);
    if (op->kv_desc() || !supports(session, *op, kSmall)) continue;
    if (!with_params || op->describe(false, kSmall).params) return op;
  }
  skip("no op", with_params ? " with parameters" : "", " is supported");
}

struct Costing {
  Session& session;
  // Prices a description that must be refused with `code`; the text names all of `named`, nothing is written.
  void refused(const mh_op_desc& desc, int32_t code, const std::string& what,
               const std::vector<std::string>& named) const {
    mh_op_cost out = sentinel<mh_op_cost>();
    out.size = sizeof out;
    mh_op_cost before = out;
    Error error;
    check_refused(session.api.op->cost(session.device, &desc, &out, &error), code, error, "op.cost with " + what,
                  named);
    require(std::memcmp(&out, &before, sizeof out) == 0, "op.cost with ", what, " failed, but changed its output");
    require(session.api.op->cost(session.device, &desc, &out, nullptr) == code, "op.cost with ", what,
            " answers otherwise when error is NULL");
  }
  mh_op_cost accepted(const mh_op_desc& desc, const std::string& what) const {
    mh_op_cost out{};
    out.size = sizeof out;
    Error error;
    const int32_t code = session.api.op->cost(session.device, &desc, &out, &error);
    require(code == MH_OK, "op.cost with ", what, " answers ", code_name(code), ": ", error.text);
    return out;
  }
};

void exports(const Context& context) {
  const auto names = exported_symbols(context.plugin_path);
  require(std::find(names.begin(), names.end(), "moehost_plugin_v1") != names.end(),
          "moehost_plugin_v1 is not exported");
  for (const auto& name : names)
    require(name == "moehost_plugin_v1", "exports a second symbol, ", name,
            ": moehost_plugin_v1 must be the only one (version script)");
}

void manifest(const Context& context) {
  std::string wrong;
  const auto manifest = read_manifest(context.plugin_path, &wrong);
  require(manifest.has_value(), wrong);
  const mh_plugin& api = load_plugin(context.plugin_path);
  require(manifest->id == api.id, "the manifest's id is \"", manifest->id, "\", the plugin's \"", api.id, "\"");
  require(manifest->id == std::filesystem::path(context.plugin_path).stem(), "the manifest's id is \"", manifest->id,
          "\", the file is ", context.plugin_path);
  for (uint32_t minor = manifest->abi_lo; minor <= std::min(manifest->abi_hi, MH_ABI_MINOR); ++minor)
    require(load_entry(context.plugin_path)(minor, MH_ABI_MINOR) != nullptr, "the manifest promises minor ", minor,
            ", the entry denies it");
  require(manifest->abi_hi >= api.minor, "the manifest ends at minor ", manifest->abi_hi,
          ", the plugin was built with ", api.minor);
}

void versions(const Context& context) {
  const auto entry = load_entry(context.plugin_path);
  const size_t threads = thread_count(), files = open_files();
  const uint64_t allocations = thread_allocations();
  const mh_plugin* plugin = entry(0, MH_ABI_MINOR);
  require(thread_allocations() == allocations, "the entry allocates memory");
  require(thread_count() == threads, "the entry starts a thread");
  require(open_files() == files, "the entry opens a file");
  require(plugin != nullptr, "the entry denies minors 0 to ", MH_ABI_MINOR);
  require(entry(0, MH_ABI_MINOR) == plugin && entry(0, MH_ABI_MINOR + 7) == plugin,
          "the entry gives another table the second time, or to a newer core");
  require(entry(plugin->minor + 1, plugin->minor + 9) == nullptr, "the entry claims to serve minors above its own, ",
          plugin->minor);
}

void tables(const Context& context) {
  const mh_plugin& api = load_plugin(context.plugin_path);
  require(api.id && api.id[0] && api.version, "id or version is missing");
  require(api.init && api.shutdown && api.extension, "a function of the plugin's table is NULL");
  const auto complete = [](const auto* table, size_t functions, const char* name) {
    require(table->size >= sizeof *table, "the table ", name, " has ", table->size, " bytes, minor 0 has ",
            sizeof *table);
    const auto* first = reinterpret_cast<void* const*>(table) + 1;  // after size and reserved
    for (size_t i = 0; i < functions; ++i)
      require(first[i] != nullptr, "function ", i, " of the table ", name, " is NULL");
  };
  complete(api.device, 5, "device"), complete(api.buffer, 2, "buffer"), complete(api.op, 3, "op");
  complete(api.queue, 9, "queue");
  if (api.kv) complete(api.kv, 3, "kv");
  require(api.extension("com.example.nobody/1") == nullptr, "answers to an extension that does not exist");
}

void newer_host(const Context& context) {
  const mh_plugin& api = load_plugin(context.plugin_path);
  Host host(context.verbose);
  Longer<mh_host> table(*host.table());
  table.value.minor = MH_ABI_MINOR + 7;
  std::fill(std::begin(table.tail), std::end(table.tail), UINT64_MAX);  // functions of a later minor
  Error error;
  check(api.init(&table.value, &error), error, "init by a newer host");
  api.device->close(open_device(api, context, {}));
  api.shutdown();
}

void device_info(const Context& context) {
  Session session(context);
  const mh_plugin& api = session.api;
  uint32_t count = 0;
  require(api.device->count(&count, nullptr) == MH_OK && count > 0, "device.count with a NULL error fails");
  Error error;
  mh_device_info info = sentinel<mh_device_info>();
  info.size = sizeof info;
  const mh_device_info before = info;
  check_refused(api.device->info(count, &info, &error), MH_INVALID, error,
                cat("device.info of device ", count, " of ", count));
  require(std::memcmp(&info, &before, sizeof info) == 0, "device.info failed, but changed its output");
  require(api.device->info(count, &info, nullptr) == MH_INVALID, "device.info answers otherwise when error is NULL");
  info.size = offsetof(mh_device_info, uuid);  // an older caller
  check(api.device->info(context.device_index, &info, &error), error, "device.info with a short struct");
  require(std::memcmp(info.uuid, before.uuid, sizeof info - offsetof(mh_device_info, uuid)) == 0,
          "device.info fills more than the size that the caller set");
  require(info.size == offsetof(mh_device_info, uuid), "device.info changes the size that the caller set");
  const auto ends = [](const char* text, size_t size) { return std::find(text, text + size, '\0') != text + size; };
  require(ends(session.info.name, sizeof info.name) && session.info.name[0], "the device has no name");
  require(ends(session.info.uuid, sizeof info.uuid), "the device's uuid does not end in NUL");
  const uint32_t align = session.info.import_align;
  require(align > 0 && (align & (align - 1)) == 0, "import_align ", align, " is no power of two");
  require(session.info.max_queues > 0, "max_queues is 0");
  session.end();
}

void open_spec(const Context& context) {
  Session session(context);
  const auto open = [&](mh_device_spec spec, const std::string& what, int32_t code,
                        const std::vector<std::string>& named) {
    auto* out = sentinel<mh_device*>();
    Error error;
    check_refused(session.api.device->open(&spec, &out, &error), code, error, "device.open with " + what, named);
    require(is_sentinel(out), "device.open with ", what, " failed, but changed its output");
    require(session.api.device->open(&spec, &out, nullptr) == code, "device.open with ", what,
            " answers otherwise when error is NULL");
  };
  mh_device_spec spec{};
  spec.size = sizeof spec, spec.option_count = 1;
  const mh_option unknown{"conform.colour", "red"}, limit{"memory_limit", "much"}, import{"import", "sideways"};
  spec.options = &unknown;
  open(spec, "an unknown option", MH_INVALID, {"conform.colour"});
  spec.options = &limit;
  open(spec, "memory_limit \"much\"", MH_INVALID, {"memory_limit"});
  spec.options = &import;
  open(spec, "import \"sideways\"", MH_INVALID, {"import"});
  spec.option_count = 0, spec.index = kUnknown;
  open(spec, "device 9999", MH_INVALID, {});
  spec.index = context.device_index;
  Longer<mh_device_spec> longer(spec);
  mh_device* device = nullptr;
  Error error;
  check(session.api.device->open(&longer.value, &device, &error), error,
        "device.open with a longer struct and a zero tail");
  session.api.device->close(device);
  longer.tail[2] = 1;
  auto* out = sentinel<mh_device*>();
  check_refused(session.api.device->open(&longer.value, &out, &error), MH_UNSUPPORTED, error,
                "device.open with a longer struct and a non-zero tail");
  session.end();
}

void op_sizes(const Context& context) {
  Session session(context);
  Random random(context.seed, "op_sizes");
  const auto op = any_op(session, random, false);
  const mh_op_desc desc = op->describe(false, kSmall);
  const Costing costing{session};
  const mh_op_cost known = costing.accepted(desc, "a known description");
  Longer<mh_op_desc> longer(desc);
  require(costing.accepted(longer.value, "a longer description and a zero tail").resident_bytes == known.resident_bytes,
          "a longer description with a zero tail costs something else");
  longer.tail[3] = 1;
  costing.refused(longer.value, MH_UNSUPPORTED, "a longer description and a non-zero tail", {});
  mh_op_desc shorter = desc;
  shorter.size = sizeof(uint32_t);
  costing.refused(shorter, MH_INVALID, "a description of 4 bytes", {});
  mh_op_cost cost = sentinel<mh_op_cost>();
  cost.size = offsetof(mh_op_cost, slice_align);
  Error error;
  check(session.api.op->cost(session.device, &desc, &cost, &error), error, "op.cost with a short result");
  require(cost.slice_align == sentinel<uint32_t>(), "op.cost fills more than the size that the caller set");
  session.end();
}

void params_sizes(const Context& context) {
  Session session(context);
  Random random(context.seed, "params_sizes");
  // Parameter structs begin with their size; the longest known ends well before this.
  struct alignas(8) {
    uint32_t size;
    uint32_t rest[63];
  } longer{};
  const auto op = any_op(session, random, true);
  mh_op_desc desc = op->describe(false, kSmall);
  uint32_t known = 0;
  std::memcpy(&known, desc.params, sizeof known);
  std::memcpy(&longer, desc.params, known);
  longer.size = sizeof longer;
  desc.params = &longer;
  const Costing costing{session};
  costing.accepted(desc, "longer parameters and a zero tail");
  longer.rest[62] = 1;
  costing.refused(desc, MH_UNSUPPORTED, "longer parameters and a non-zero tail", {});
  session.end();
}

void weight_sizes(const Context& context) {
  Session session(context);
  Random random(context.seed, "weight_sizes");
  for (const OpVariant& variant : all_ops()) {
    auto op = variant.make(random, false);
    mh_op_desc desc = op->describe(false, kSmall);
    const bool has_weight =
        desc.weight_count > 0 && std::all_of(desc.weights, desc.weights + desc.weight_count, [](auto* w) { return w; });
    if (!has_weight || op->kv_desc() || !supports(session, *op, kSmall)) continue;
    std::vector<const mh_weight*> list(desc.weights, desc.weights + desc.weight_count);
    Longer<mh_weight> longer(*list[0]);
    list[0] = &longer.value, desc.weights = list.data();
    const Costing costing{session};
    costing.accepted(desc, "a longer weight and a zero tail");
    longer.tail[1] = 1;
    costing.refused(desc, MH_UNSUPPORTED, "a longer weight and a non-zero tail", {});
    longer.tail[1] = 0, longer.value.format = 777;
    costing.refused(desc, MH_UNSUPPORTED, "an unknown format", {"777"});
    return session.end();
  }
  skip("no op with weights is supported");
}

void unknown_names(const Context& context) {
  Session session(context);
  Random random(context.seed, "unknown_names");
  const Costing costing{session};
  const auto op = any_op(session, random, false);
  mh_op_desc desc = op->describe(false, kSmall);
  desc.kind = kUnknown;
  costing.refused(desc, MH_UNSUPPORTED, "an unknown kind", {"9999"});
  desc = op->describe(false, kSmall);
  desc.flags = 1U << 20;
  costing.refused(desc, MH_UNSUPPORTED, "an unknown flag", {"1048576"});
  for (const OpVariant& variant : all_ops()) {
    auto ffn = variant.make(random, false);
    if ((ffn->kind != MH_OP_EXPERTS && ffn->kind != MH_OP_FFN) || !supports(session, *ffn, kSmall)) continue;
    desc = ffn->describe(false, kSmall);
    auto params = *static_cast<const mh_experts_params*>(desc.params);
    params.activation.kind = kUnknown;
    desc.params = &params;
    costing.refused(desc, MH_UNSUPPORTED, "an unknown activation", {"9999"});
    break;
  }
  session.end();
}

void kv_descriptions(const Context& context) {
  Session session(context);
  if (!session.api.kv) skip("the plugin has no kv table");
  Random random(context.seed, "kv");
  const auto op = attention_ops().front().make(random, false);
  const auto refused = [&](const mh_kv_desc& desc, const std::string& what, const std::vector<std::string>& named) {
    Error error;
    auto bytes = sentinel<uint64_t>();
    check_refused(session.api.kv->cost(session.device, &desc, &bytes, &error), MH_UNSUPPORTED, error,
                  "kv.cost with " + what, named);
    auto* kv = sentinel<mh_kv*>();
    Error create_error;
    check_refused(session.api.kv->create(session.device, &desc, &kv, &create_error), MH_UNSUPPORTED, create_error,
                  "kv.create with " + what, named);
    require(is_sentinel(bytes) && is_sentinel(kv), "kv.cost or kv.create with ", what,
            " failed, but changed its output");
  };
  mh_kv_desc desc = *op->kv_desc();
  desc.kind = kUnknown;
  refused(desc, "an unknown kind", {"9999"});
  desc = *op->kv_desc(), desc.k_format = 777;
  refused(desc, "an unknown format", {"777"});
  Longer<mh_kv_desc> longer(*op->kv_desc());
  longer.tail[0] = 1;
  refused(longer.value, "a longer struct and a non-zero tail", {});
  session.end();
}

// An error struct of an older, shorter kind: text cut to fit, nothing behind it.
void short_error(const Context& context) {
  Session session(context);
  struct {
    mh_error error;
  } holder{};
  Error whole;
  mh_device_info info{};
  info.size = sizeof info;
  std::memset(&holder, 0x5a, sizeof holder);
  holder.error.size = offsetof(mh_error, text) + 8;
  require(session.api.device->info(kUnknown, &info, &holder.error) == MH_INVALID,
          "device.info of device 9999 succeeds");
  for (size_t i = 8; i < sizeof holder.error.text; ++i)
    require(holder.error.text[i] == 0x5a, "the error text passes the end of a shorter mh_error");
  session.end();
}

void program_descriptions(const Context& context) {
  Session session(context);
  Random random(context.seed, "programs");
  const auto op = any_op(session, random, false);
  LoadedOp loaded(session, *op, kSmall);
  OpJob job(session, loaded, kSmall, 1, 0);
  const auto refused = [&](mh_program_desc desc, int32_t code, const std::string& what) {
    Error error;
    mh_program_cost cost = sentinel<mh_program_cost>();
    cost.size = sizeof cost;
    const mh_program_cost before = cost;
    check_refused(session.api.queue->program_cost(session.device, &desc, &cost, &error), code, error,
                  "program_cost with " + what);
    require(std::memcmp(&cost, &before, sizeof cost) == 0, "program_cost with ", what,
            " failed, but changed its output");
  };
  const mh_program_desc desc = job.job().describe(false);
  mh_program_cost cost{};
  cost.size = sizeof cost;
  Error error;
  check(session.api.queue->program_cost(session.device, &desc, &cost, &error), error, "program_cost");
  Longer<mh_program_desc> longer(desc);
  check(session.api.queue->program_cost(session.device, &longer.value, &cost, &error), error,
        "program_cost with a longer struct and a zero tail");
  longer.tail[0] = 1;
  Error tail_error;
  check_refused(session.api.queue->program_cost(session.device, &longer.value, &cost, &tail_error), MH_UNSUPPORTED,
                tail_error, "program_cost with a longer struct and a non-zero tail");

  std::vector<mh_item> items(desc.items, desc.items + desc.item_count);
  mh_program_desc changed = desc;
  changed.items = items.data();
  mh_item& run = *std::find_if(items.begin(), items.end(), [](const mh_item& item) { return item.what == MH_ITEM_OP; });
  const mh_item good = run;
  run.what = 7;
  refused(changed, MH_UNSUPPORTED, "an unknown item");
  run = good;
  const std::vector<uint32_t> nowhere(good.output_count, desc.value_count);
  run.outputs = nowhere.data();
  refused(changed, MH_INVALID, "a value that does not exist");
  run = good;
  run.what = MH_ITEM_SIGNAL, run.fence = desc.fence_count;
  refused(changed, MH_INVALID, "a fence that does not exist");

  auto* program = sentinel<mh_program*>();
  changed = job.job().describe(true);
  items.assign(changed.items, changed.items + changed.item_count);
  items.back().what = 7, changed.items = items.data();
  Error create_error;
  check_refused(session.api.queue->program_create(session.queue, &changed, &program, &create_error), MH_UNSUPPORTED,
                create_error, "program_create with an unknown item");
  require(is_sentinel(program), "program_create failed, but changed its output");
  job.job().free();
  loaded.free();
  session.end();
}

void load_refused(const Context& context) {
  Session session(context);
  Random random(context.seed, "load");
  const auto op = any_op(session, random, false);
  mh_op_desc desc = op->describe(true, kSmall);
  desc.kind = kUnknown;
  auto* out = sentinel<mh_op*>();
  Error error;
  check_refused(session.api.op->load(session.device, &desc, &out, &error), MH_UNSUPPORTED, error,
                "op.load with an unknown kind", {"9999"});
  require(is_sentinel(out), "op.load failed, but changed its output");
  require(session.api.op->load(session.device, &desc, &out, nullptr) == MH_UNSUPPORTED,
          "op.load answers otherwise when error is NULL");
  if (session.info.import_align > 1) {
    auto* buffer = sentinel<mh_buffer*>();
    Error import_error;
    check_refused(session.api.buffer->import(session.device, session.arena.base() + 1, 4096, &buffer, &import_error),
                  MH_INVALID, import_error, "buffer.import of a misaligned address");
    require(is_sentinel(buffer), "buffer.import failed, but changed its output");
  }
  session.end();
}

void supports_something(const Context& context) {
  Session session(context);
  Random random(context.seed, "supports");
  size_t count = 0, all = 0;
  for (const OpVariant& variant : all_ops()) {
    auto op = variant.make(random, false);
    ++all;
    count += supports(session, *op, kSmall);
  }
  require(count > 0, "supports none of the ", all, " ops of the suite: there is nothing that it could compute");
  note(count, " of ", all, " op variants are supported");
  session.end();
}

// What a process has only one of.
struct ProcessState {
  std::vector<std::string> environment;
  std::string locale, folder;
  std::vector<struct sigaction> handlers;
  cpu_set_t affinity;
  unsigned float_mode;
  ProcessState()
      : locale(std::setlocale(LC_ALL, nullptr)), folder(std::filesystem::current_path()), handlers(SIGRTMAX) {
    for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
    for (int s = 1; s < SIGRTMAX; ++s) sigaction(s, nullptr, &handlers[static_cast<size_t>(s)]);
    sched_getaffinity(0, sizeof affinity, &affinity);
    float_mode = float_control();
  }
  static unsigned float_control() {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fU;  // without the exception flags
#else
    return 0;
#endif
  }
};

void process_state(const Context& context) {
  const int saved_stdout = dup(STDOUT_FILENO);
  FILE* capture = tmpfile();
  require(capture != nullptr, "moehost-conform: no temporary file");
  dup2(fileno(capture), STDOUT_FILENO);
  const ProcessState before;
  Session session(context);
  Random random(context.seed, "process_state");
  const auto op = any_op(session, random, false);
  LoadedOp loaded(session, *op, kSmall);
  OpJob job(session, loaded, kSmall, 1, 0);
  const Step step = op->next_step(random, 5);
  job.put(step, 0, op->fill(random, step));
  job.run(step);
  job.job().free();
  loaded.free();
  session.end();
  const ProcessState after;
  fflush(stdout);
  require(lseek(fileno(capture), 0, SEEK_END) == 0, "the plugin writes to stdout");
  dup2(saved_stdout, STDOUT_FILENO);
  require(after.environment == before.environment, "the plugin changes the environment");
  require(after.locale == before.locale, "the plugin changes the locale to ", after.locale);
  require(after.folder == before.folder, "the plugin changes the working folder");
  require(CPU_EQUAL(&after.affinity, &before.affinity),
          "the plugin changes the affinity of a thread that is not its own");
  require(after.float_mode == before.float_mode, "the plugin changes the caller's floating-point mode");
  for (size_t s = 1; s < before.handlers.size(); ++s)
    require(after.handlers[s].sa_handler == before.handlers[s].sa_handler, "the plugin installs a handler of signal ",
            s);
}

}  // namespace

std::vector<Case> abi_cases() {
  return {
      {"abi", "exports", exports},
      {"abi", "manifest", manifest},
      {"abi", "versions", versions},
      {"abi", "tables", tables},
      {"abi", "newer_host", newer_host},
      {"abi", "device_info", device_info},
      {"abi", "open_spec", open_spec},
      {"abi", "op_sizes", op_sizes},
      {"abi", "params_sizes", params_sizes},
      {"abi", "weight_sizes", weight_sizes},
      {"abi", "unknown_names", unknown_names},
      {"abi", "kv_descriptions", kv_descriptions},
      {"abi", "short_error", short_error},
      {"abi", "program_descriptions", program_descriptions},
      {"abi", "load_refused", load_refused},
      {"abi", "supports_something", supports_something},
      {"abi", "process_state", process_state},
  };
}

}  // namespace conform

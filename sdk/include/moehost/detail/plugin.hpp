// plugin.hpp - the tables of a plugin, made from a Backend class. Part of device.hpp.
#pragma once
#include <unistd.h>

#include "queue.hpp"

#pragma GCC visibility push(hidden)
namespace mh {

inline Op::Op(const mh_op_desc& desc) : desc_(desc) {
  desc_.size = sizeof desc_, desc_.weights = nullptr, desc_.params = &params_;
  if (!desc.params) return;
  std::memcpy(&params_, desc.params, std::min<size_t>(sizeof params_, *static_cast<const uint32_t*>(desc.params)));
  if (desc_.kind == MH_OP_ATTENTION) {
    kv_desc_ = *params_.attention.kv_desc;
    kv_ = params_.attention.kv->kv.get();
    params_.attention.kv_desc = &kv_desc_;
  } else if (desc_.kind == MH_OP_EXPERTS) {
    expert_ids_.assign(params_.experts.expert_ids, params_.experts.expert_ids + params_.experts.slot_count);
    params_.experts.expert_ids = expert_ids_.data();
  }
}

namespace detail {

// Fills a caller's result up to the size that the caller set.
template <class T>
void give(T* out, T value) {
  value.size = out->size;
  std::memcpy(out, &value, std::min<size_t>(out->size, sizeof value));
}

template <class B>
struct Plugin {
  static int32_t init(const mh_host* host, mh_error* e) {
    return guard(e, [&] {
      if (host->size < sizeof(mh_host))
        fail(MH_ABI, "mh_host has ", host->size, " bytes, ", sizeof(mh_host), " are needed");
      g_host = host;
    });
  }
  static void shutdown() { g_host = nullptr; }

  static int32_t count(uint32_t* out, mh_error* e) {
    return guard(e, [&] { *out = B::count(); });
  }
  static mh_device_info device_info(uint32_t index) {
    if (index >= B::count()) fail(MH_INVALID, "no device ", index, ": ", B::count(), " are there");
    mh_device_info i{};
    i.features = MH_DEVICE_WAITS | MH_DEVICE_SIGNALS | MH_DEVICE_ZERO_COPY | MH_DEVICE_HOST_MEMORY;
    std::snprintf(i.name, sizeof i.name, "%s", B::kId);
    std::snprintf(i.uuid, sizeof i.uuid, "host");
    i.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    i.import_align = 64, i.max_queues = 64, i.numa_node = -1;
    B::info(index, i);
    return i;
  }
  static int32_t info(uint32_t index, mh_device_info* out, mh_error* e) {
    return guard(e, [&] { give(out, device_info(index)); });
  }
  static void check_option(const mh_option& option) {
    const auto is = [&](const char* key) { return !std::strcmp(option.key, key); };
    if (is("threads") || is("cpus") || is("memory_limit")) return;
    if (is("import")) {
      if (std::strcmp(option.value, "map") && std::strcmp(option.value, "copy"))
        fail(MH_INVALID, "option import is '", option.value, "': map or copy");
      return;
    }
    std::string known = "threads, cpus, memory_limit, import";
    for (const char* const* key = B::kOptions; *key; ++key) {
      if (is(*key)) return;
      known += std::string(", ") + *key;
    }
    fail(MH_INVALID, "unknown option '", option.key, "': known are ", known);
  }
  static int32_t open(const mh_device_spec* spec, mh_device** out, mh_error* e) {
    return guard(e, [&] {
      check_size(*spec, "mh_device_spec");
      const mh_device_info i = device_info(spec->index);
      if (spec->member_count) fail(MH_INVALID, B::kId, " is no composite, but has ", spec->member_count, " members");
      for (uint32_t k = 0; k < spec->option_count; ++k) check_option(spec->options[k]);
      const char* import_option = find_option(*spec, "import");
      const bool staged = !(i.features & MH_DEVICE_ZERO_COPY) || (import_option && !std::strcmp(import_option, "copy"));
      *out = new mh_device{std::make_unique<B>(*spec), staged};
    });
  }
  static void close(mh_device* d) { delete d; }
  static int32_t memory(mh_device* d, mh_device_memory* out, mh_error* e) {
    return guard(e, [&] {
      mh_device_memory m{};
      const MemoryAccount& account = d->backend->memory();
      m.used_bytes = account.used_bytes();
      m.free_bytes =
          std::min(d->backend->free_bytes(), account.limit_bytes() - std::min(account.limit_bytes(), m.used_bytes));
      give(out, m);
    });
  }

  static int32_t import(mh_device* d, void* host, uint64_t bytes, mh_buffer** out, mh_error* e) {
    return guard(e, [&] {
      (void)d;
      if (!host || !bytes || reinterpret_cast<uintptr_t>(host) % 64)
        fail(MH_INVALID, "buffer: NULL, empty or not 64-aligned");
      *out = new mh_buffer{static_cast<std::byte*>(host), bytes};
    });
  }
  static void buffer_free(mh_buffer* b) { delete b; }

  static int32_t op_cost(mh_device* d, const mh_op_desc* desc, mh_op_cost* out, mh_error* e) {
    return guard(e, [&] {
      check_op(*desc, false);
      give(out, d->backend->cost(*desc));
    });
  }
  static int32_t op_load(mh_device* d, const mh_op_desc* desc, mh_op** out, mh_error* e) {
    return guard(e, [&] {
      check_op(*desc, true);
      d->backend->cost(*desc);  // refuses what it cannot run
      auto op = std::make_unique<mh_op>();
      op->op = d->backend->load(*desc);
      *out = op.release();
    });
  }
  static void op_free(mh_op* op) { delete op; }

  static int32_t kv_cost(mh_device* d, const mh_kv_desc* desc, uint64_t* bytes, mh_error* e) {
    return guard(e, [&] {
      check_kv(*desc);
      *bytes = d->backend->kv_bytes(*desc);
    });
  }
  static int32_t kv_create(mh_device* d, const mh_kv_desc* desc, mh_kv** out, mh_error* e) {
    return guard(e, [&] {
      check_kv(*desc);
      auto kv = std::make_unique<mh_kv>();
      kv->kv = d->backend->create_kv(*desc);
      *out = kv.release();
    });
  }
  static void kv_free(mh_kv* kv) { delete kv; }

  static int32_t queue_create(mh_device* d, mh_queue** out, mh_error* e) {
    return guard(e, [&] { *out = new mh_queue(*d); });
  }
  static void queue_free(mh_queue* q) { delete q; }
  static int32_t program_cost(mh_device* d, const mh_program_desc* desc, mh_program_cost* out, mh_error* e) {
    return guard(e, [&] {
      mh_program_cost c{};
      c.workspace_bytes = Layout(*desc, *d->backend, d->staged).workspace_bytes();
      give(out, c);
    });
  }
  static void check_objects(const mh_program_desc& d) {
    if (!d.step_buffer) fail(MH_INVALID, "program: step_buffer is NULL");
    if (d.step_offset % alignof(mh_step) || checked_add(d.step_offset, sizeof(mh_step)) > d.step_buffer->bytes)
      fail(MH_INVALID, "program: the step block at ", d.step_offset, " of ", d.step_buffer->bytes, " bytes");
    for (uint32_t i = 0; i < d.fence_count; ++i)
      if (!d.fences[i].counter) fail(MH_INVALID, "fence ", i, ": counter is NULL");
    for (uint32_t i = 0; i < d.binding_count; ++i)
      if (!d.bindings[i].buffer) fail(MH_INVALID, "binding ", i, ": buffer is NULL");
    for (uint32_t i = 0; i < d.item_count; ++i)
      if (d.items[i].what == MH_ITEM_OP && !d.items[i].op) fail(MH_INVALID, "item ", i, ": op is NULL");
  }
  static int32_t program_create(mh_queue* q, const mh_program_desc* desc, mh_program** out, mh_error* e) {
    return guard(e, [&] {
      check_size(*desc, "mh_program_desc");
      check_objects(*desc);
      const Layout layout(*desc, *q->device().backend, q->device().staged);
      auto p = std::make_unique<mh_program>();
      p->queue = q, p->items = layout.items(), p->workspace_bytes = layout.workspace_bytes();
      p->step = reinterpret_cast<const mh_step*>(desc->step_buffer->host + desc->step_offset);
      p->max_tokens = desc->max_tokens, p->max_outputs = desc->max_outputs, p->max_sequences = desc->max_sequences;
      size_t ports = 0;
      for (const Item& item : p->items) ports = std::max(ports, item.ports.size());
      p->views.resize(ports);
      q->reserve(p->workspace_bytes);
      *out = p.release();
    });
  }
  static void program_free(mh_program* p) {
    p->queue->finish(p->last_run);
    delete p;
  }
  static int32_t submit(mh_program* p, mh_error* e) { return p->queue->submit(*p, e); }
  static int32_t wait(mh_queue* q, uint64_t timeout_ns, mh_error* e) { return q->wait(timeout_ns, e); }
  static int32_t abort(mh_queue* q) { return q->abort(), MH_OK; }
  static int32_t reset(mh_queue* q, mh_error* e) {
    return guard(e, [&] { q->reset(); });
  }

  static constexpr mh_device_table kDevice{sizeof(mh_device_table), 0, count, info, open, close, memory};
  static constexpr mh_buffer_table kBuffer{sizeof(mh_buffer_table), 0, import, buffer_free};
  static constexpr mh_op_table kOp{sizeof(mh_op_table), 0, op_cost, op_load, op_free};
  static constexpr mh_kv_table kKv{sizeof(mh_kv_table), 0, kv_cost, kv_create, kv_free};
  static constexpr mh_queue_table kQueue{
      sizeof(mh_queue_table), 0,      queue_create, queue_free, program_cost, program_create,
      program_free,           submit, wait,         abort,      reset};
  static constexpr mh_plugin kPlugin{sizeof(mh_plugin),
                                     MH_ABI_MINOR,
                                     B::kId,
                                     B::kVersion,
                                     init,
                                     shutdown,
                                     &B::extension,
                                     &kDevice,
                                     &kBuffer,
                                     &kOp,
                                     B::kHasKv ? &kKv : nullptr,
                                     &kQueue};
};

}  // namespace detail
}  // namespace mh
#pragma GCC visibility pop

// The one exported symbol, for a class derived from mh::Backend.
#define MH_PLUGIN(Class)                                                                \
  extern "C" const mh_plugin* moehost_plugin_v1(uint32_t minor_lo, uint32_t minor_hi) { \
    (void)minor_hi;                                                                     \
    return minor_lo <= MH_ABI_MINOR ? &mh::detail::Plugin<Class>::kPlugin : nullptr;    \
  }

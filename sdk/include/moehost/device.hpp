// device.hpp - derive a class, write one blocking function, get a plugin. Header-only C++17 over device.h.
//
//   class MyBackend : public mh::Backend { ... cost, load, run ... };
//   MH_PLUGIN(MyBackend)
//
// The helper checks every description before the class sees it, plans the values of a program in one workspace a queue
// (values that never live at once share bytes), binds boundaries, runs one worker thread a queue, waits on and signals
// fences, passes poison on, and turns exceptions into codes. See docs/writing-a-backend.md.
#pragma once
#include <memory>
#include <vector>

#include "support.hpp"

#pragma GCC visibility push(hidden)
namespace mh {

// A value in memory while the work runs: element (r, g, c) is row<T>(r, g)[c]. rows is this step's count.
struct View {
  std::byte* base = nullptr;
  uint64_t row_bytes = 0;
  uint32_t rows = 0, groups = 0, cols = 0, group_stride = 0;  // group_stride in elements
  template <class T = float>
  T* row(uint32_t r, uint32_t g = 0) const {
    return reinterpret_cast<T*>(base + r * row_bytes) + uint64_t{g} * group_stride;
  }
};

// The step block, read in place. [any]
class Step {
 public:
  explicit Step(const mh_step& raw) : raw_(&raw) {}
  const mh_step& raw() const { return *raw_; }
  const int32_t* token_ids() const { return array(raw_->token_ids); }      // [tokens]
  const int32_t* positions() const { return array(raw_->positions); }      // [tokens]
  const int32_t* output_rows() const { return array(raw_->output_rows); }  // [outputs]
  // Rows of sequence s: [sequence_rows()[s], sequence_rows()[s + 1]).
  const int32_t* sequence_rows() const { return array(raw_->sequence_rows); }
  // Tokens of sequence s in the cache after this step.
  const int32_t* sequence_lengths() const { return array(raw_->sequence_lengths); }
  const mh_step_group& group(uint32_t index) const {
    return reinterpret_cast<const mh_step_group*>(array(raw_->groups))[index];
  }
  // Block ids of a sequence in a kv group; -1: moved out of the window.
  const int32_t* block_table(uint32_t group_index, uint32_t sequence) const {
    const mh_step_group& g = group(group_index);
    return array(g.table) + uint64_t{sequence} * g.table_stride;
  }
  const int32_t* copies(uint32_t group_index) const { return array(group(group_index).copies); }  // pairs (from, to)

 private:
  const int32_t* array(uint32_t offset) const {
    return reinterpret_cast<const int32_t*>(reinterpret_cast<const std::byte*>(raw_) + offset);
  }
  const mh_step* raw_;
};

// A cache. PagedKv (paged_kv.hpp) is one in host memory; derive for another.
class Kv {
 public:
  explicit Kv(const mh_kv_desc& desc) : desc_(desc) {}
  virtual ~Kv() = default;
  const mh_kv_desc& desc() const { return desc_; }
  // Copy on write of one layer's block. The helper applies the step's pairs of a layer right before the op that writes
  // the layer: nothing of the step has touched it until then, also when core relays and a step is several programs.
  virtual void copy_block(uint32_t layer, uint32_t from, uint32_t to) = 0;

 private:
  const mh_kv_desc desc_;
};

// A loaded op with its own copies of description and params (expert ids and kv description included). Derive to hold
// weights. desc().weights is null: sources are gone after load.
class Op {
 public:
  explicit Op(const mh_op_desc& desc);
  virtual ~Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  const mh_op_desc& desc() const { return desc_; }
  uint32_t kind() const { return desc_.kind; }
  // The kind's params struct, in full: what a shorter one lacked is zero.
  template <class P>
  const P& params() const {
    return *reinterpret_cast<const P*>(&params_);
  }
  Kv* kv() const { return kv_; }  // of attention

 private:
  union Params {
    mh_embed_params embed;
    mh_rms_norm_params rms_norm;
    mh_rope_params rope;
    mh_attention_params attention;
    mh_route_params route;
    mh_experts_params experts;
    mh_activation activation;
  };
  mh_op_desc desc_;
  Params params_{};
  mh_kv_desc kv_desc_{};
  std::vector<int32_t> expert_ids_;
  Kv* kv_ = nullptr;
};

// One run of one op. Inputs and outputs as the kind's line in ops.h lists them; an absent trailing input is not
// counted.
struct Call {
  const View* in;
  const View* out;
  uint32_t in_count, out_count;
  Step step;
  std::byte* scratch;  // scratch_bytes(desc) bytes of the queue's workspace, 64-aligned, undefined contents
  const std::atomic<bool>&
      aborted;  // the watchdog wants the queue back: an op that takes long looks and throws MH_ABORTED
};

// One open device. cost, load and the sizes may be called from several threads at once, run from one thread a queue.
// Descriptions are checked when they arrive here: sizes, tails, known kinds, formats, flags and enumerations, shapes
// that agree with each other, slabs present in load. What is left to refuse is what this backend cannot do: throw
// Error(MH_UNSUPPORTED, text that names it and the nearest thing supported).
class Backend {
 public:
  // Static facts; a derived class defines kId, and hides the others where it differs.
  //   static constexpr const char* kId = "backend_mine";
  static constexpr const char* kVersion = "1";
  static constexpr bool kHasKv = false;  // true: kv_bytes and create_kv are there
  // Options beyond threads, cpus, memory_limit and import: "<id>.name". Ends with a null.
  static constexpr const char* kOptions[] = {nullptr};
  static uint32_t count() { return 1; }
  // out is zeroed but for the defaults of a host device (helper: plugin.hpp). No context is made.
  static void info(uint32_t index, mh_device_info& out) { (void)index, (void)out; }
  static const void* extension(const char* id) { return (void)id, nullptr; }

  // Takes memory_limit (bytes). The helper looks at import: "copy" stages boundaries even where they could be mapped.
  explicit Backend(const mh_device_spec& spec)
      : memory_(number_option(spec, "memory_limit", std::numeric_limits<uint64_t>::max())) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // What every HostMemory of this device is charged to.
  MemoryAccount& memory() { return memory_; }
  // What device.memory answers as free, before the limit of the account.
  virtual uint64_t free_bytes() { return available_memory_bytes(); }

  // Judges and prices. resident_bytes is exactly what load leaves charged to memory(). size is filled by the helper.
  virtual mh_op_cost cost(const mh_op_desc& desc) = 0;
  virtual std::unique_ptr<Op> load(const mh_op_desc& desc) = 0;
  // Bytes of Call::scratch for up to desc.max_rows rows. Counted in program_cost.
  virtual uint64_t scratch_bytes(const mh_op_desc& desc) { return (void)desc, 0; }
  // Does the work; returns when the outputs are written.
  virtual void run(const Op& op, const Call& call) = 0;

  // Exactly what create_kv leaves charged to memory().
  virtual uint64_t kv_bytes(const mh_kv_desc& desc) { fail(MH_UNSUPPORTED, "no caches here; kv kind ", desc.kind); }
  virtual std::unique_ptr<Kv> create_kv(const mh_kv_desc& desc) {
    fail(MH_UNSUPPORTED, "no caches; kv kind ", desc.kind);
  }

  // After an error or abort, with the queue idle. Throws MH_DEVICE_LOST if the device cannot go on.
  virtual void reset() {}

 private:
  MemoryAccount memory_;
};

}  // namespace mh
#pragma GCC visibility pop

#include "detail/plugin.hpp"

// The reference as a backend: the table of ops, and what they cost.
#include "backend.h"

namespace reference {
namespace {

uint64_t no_scratch(const mh_op_desc&) { return 0; }
uint64_t row_scratch(const mh_op_desc& desc) { return desc.in_cols[0] * sizeof(float); }

struct Kernel {
  void (*run)(const StoredOp& op, const Call& call);
  uint64_t (*scratch)(const mh_op_desc& desc);
};
constexpr Kernel kKernels[] = {
    {},                              // no kind 0
    {embed, no_scratch},             // MH_OP_EMBED
    {rms_norm, no_scratch},          // MH_OP_RMS_NORM
    {linear, row_scratch},           // MH_OP_LINEAR
    {head_linear, row_scratch},      // MH_OP_HEAD_LINEAR
    {rope, no_scratch},              // MH_OP_ROPE
    {attention, attention_scratch},  // MH_OP_ATTENTION
    {route, route_scratch},          // MH_OP_ROUTE
    {experts, network_scratch},      // MH_OP_EXPERTS
    {ffn, network_scratch},          // MH_OP_FFN
    {activate, no_scratch},          // MH_OP_ACTIVATE
    {gate, no_scratch},              // MH_OP_GATE
    {add, no_scratch},               // MH_OP_ADD
    {scale, no_scratch},             // MH_OP_SCALE
    {take_rows, no_scratch},         // MH_OP_TAKE_ROWS
};
static_assert(std::size(kKernels) == MH_OP_TAKE_ROWS + 1);

// Slots that hold a matrix; all others hold vectors, which are read in place as f32.
bool is_matrix(uint32_t kind, uint32_t slot) {
  if (kind == MH_OP_EXPERTS || kind == MH_OP_FFN) return slot <= MH_DOWN;
  return slot == 0 && (kind == MH_OP_EMBED || kind == MH_OP_LINEAR || kind == MH_OP_HEAD_LINEAR);
}

}  // namespace

void Backend::info(uint32_t, mh_device_info& out) {
  std::snprintf(out.name, sizeof out.name, "reference (scalar, f64 sums, one thread)");
}

mh_op_cost Backend::cost(const mh_op_desc& desc) {
  for (uint32_t s = 0; s < desc.weight_count; ++s) {
    if (!desc.weights[s]) continue;
    const mh_weight& w = *desc.weights[s];
    const char* name = mh::find_format(w.format)->name;
    if (w.scales || w.zeros || !mh::can_decode(w.format))
      mh::fail(MH_UNSUPPORTED, "weight ", s, " of op kind ", desc.kind, " is ", name, ": known here are ",
               mh::kDecodedFormats);
    if (!is_matrix(desc.kind, s) && w.format != MH_FORMAT_F32)
      mh::fail(MH_UNSUPPORTED, "weight ", s, " of op kind ", desc.kind, " is a vector in ", name, ": F32 is needed");
  }
  mh_op_cost cost{};
  cost.verdict = MH_SLOW;
  cost.resident_bytes = StoredOp::resident_bytes(desc);
  if (desc.kind == MH_OP_LINEAR) cost.slice_align = 1;
  if (desc.kind == MH_OP_EXPERTS || desc.kind == MH_OP_FFN)  // a cut of F is a cut of down's columns
    cost.slice_align = mh::find_format(desc.weights[MH_DOWN]->format)->block_elements;
  return cost;
}

std::unique_ptr<mh::Op> Backend::load(const mh_op_desc& desc) { return std::make_unique<StoredOp>(desc, memory()); }

uint64_t Backend::scratch_bytes(const mh_op_desc& desc) { return kKernels[desc.kind].scratch(desc); }

void Backend::run(const mh::Op& op, const mh::Call& call) {
  kKernels[op.kind()].run(static_cast<const StoredOp&>(op), call);
}

uint64_t Backend::kv_bytes(const mh_kv_desc& desc) { return mh::PagedKv::bytes(desc); }

std::unique_ptr<mh::Kv> Backend::create_kv(const mh_kv_desc& desc) {
  return std::make_unique<mh::PagedKv>(desc, memory());
}

}  // namespace reference

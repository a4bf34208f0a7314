// A model as a Program: a flat list of ops over values, with its weights described but not read. Floor 3.
//
// Op kinds, parameter structs and the meaning of values are those of the device ABI (moehost/ops.h): what an
// architecture builds here is what a backend sees. Pointers in the parameter structs (kv, expert ids) stay NULL until
// placement.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "moehost/ops.h"

namespace moehost {

using ValueId = uint32_t;  // index in Program::values

struct Value {
  std::string name;
  mh_value view;  // root and window, see mh_value
};

// One weight of an op: a matrix [rows, cols], or one for each head or expert ("slab"). Rows of a slab are
// row_stride_bytes apart. Slabs point into the mapped model file, or into `owned`.
struct Weight {
  std::string name;  // tensor, for messages
  uint32_t format = 0;
  uint64_t rows = 0, cols = 0, row_stride_bytes = 0;
  uint32_t slab_count = 1;
  std::vector<const std::byte*> slabs;  // [slab_count]; empty while `make` has not run
  std::shared_ptr<const std::vector<std::byte>> owned;
  // For the few weights that no file holds in the needed form: makes all slabs, one after another, tightly packed.
  std::function<Result<std::vector<std::byte>>()> make;
  uint64_t bytes() const { return rows * row_stride_bytes * slab_count; }
};

using Params = std::variant<std::monostate, mh_embed_params, mh_rms_norm_params, mh_rope_params, mh_attention_params,
                            mh_route_params, mh_experts_params, mh_activation>;

// Which entry of the device map an op follows.
enum class Part { kDense, kExperts };

struct ProgramOp {
  std::string name;   // "blk.3.attn_q", "blk.3.experts"
  uint32_t kind = 0;  // MH_OP_*
  int32_t layer = 0;  // -1: before the first layer; layers: after the last
  Part part = Part::kDense;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::optional<Weight>> weights;  // by slot
  Params params;
  uint32_t kv_group = 0, kv_layer = 0;  // attention: index in Program::kv_groups, position in the group
};

// A cache that some layers share in shape and block table.
struct KvGroup {
  uint32_t layers = 0, kv_heads = 0, k_cols = 0, v_cols = 0;
  bool v_is_prefix_of_k = false;
};

struct Program {
  std::string architecture, name;
  uint32_t layers = 0, model_dim = 0, vocab_size = 0, context_length = 0, experts = 0, experts_per_token = 0;
  std::vector<Value> values;
  std::vector<ProgramOp> ops;  // in an order in which they can run
  std::vector<KvGroup> kv_groups;
  ValueId logits = 0;                  // [R, vocab]
  std::vector<ValueId> layer_outputs;  // [T, model_dim]: the embedding, then each layer's output
};

}  // namespace moehost

// What an architecture file writes a forward pass with. Floor 3.
//
// Each call appends one op (or makes a view) and returns its value. Shapes are checked against the file's tensors; the
// first error is kept and reported by finish(), so that a forward pass reads without error handling. Tensor names are
// those of GGUF without "blk.N." and ".weight".
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/hyper.h"
#include "core/model/program.h"

namespace moehost {

class ProgramBuilder {
 public:
  // file outlives the builder; its mapping outlives the program.
  ProgramBuilder(const GgufFile& file, const HyperParameters& hyper);

  // Ops from here on belong to this layer.
  void begin_layer(uint32_t layer);
  // True when the current layer (or the model, before the first) has the tensor "name.weight".
  bool has(const std::string& name) const;

  // ---- values
  // x [T, W] seen as [T, groups, W / groups].
  ValueId heads(ValueId x, uint32_t groups);
  // x [T, G, C] seen as [T, G * C]; only where the groups lie side by side.
  ValueId flat(ValueId x);
  // Of every group of x the columns [first, first + cols).
  ValueId window(ValueId x, uint32_t first, uint32_t cols);
  // A fresh value [T, groups, cols], to be written through windows.
  ValueId make(const std::string& name, uint32_t groups, uint32_t cols);

  // ---- ops. `into`: an existing value or window to write; default: a fresh one.
  static constexpr ValueId kFresh = UINT32_MAX;
  ValueId embed(float factor = 1);  // token_embd -> [T, D]
  ValueId rms_norm(ValueId x, const std::string& weight, float eps, ValueId into = kFresh);
  ValueId linear(ValueId x, const std::string& weight, uint32_t out_cols);  // + "weight.bias" if present
  ValueId head_linear(ValueId x, Weight weight, ValueId into = kFresh);     // [T, H, I] -> [T, H, O]
  ValueId rope(ValueId x, const RopeTable& table, bool interleaved, ValueId into = kFresh);  // the first 2 * table dims
  // q [T, H, Ck]; k [T, KV, Ck]; v [T, KV, Cv], or kFresh when V is the first value_cols columns of K.
  ValueId attention(ValueId q, ValueId k, ValueId v, uint32_t value_cols, float scale);
  // logits = ffn_gate_inp x; returns {ids, weights}.
  std::pair<ValueId, ValueId> route(ValueId x, const mh_route_params& params);
  // Routed experts: gate, up, down from merged, fused or separate tensors.
  ValueId experts(ValueId x, std::pair<ValueId, ValueId> chosen, uint32_t activation = MH_ACT_SILU);
  // Dense network from PREFIX_gate/up/down + suffix ("ffn", "" or "ffn", "_shexp").
  ValueId ffn(ValueId x, const std::string& suffix, uint32_t ffn_dim, uint32_t activation = MH_ACT_SILU);
  ValueId add(std::vector<ValueId> terms);
  // The end of a layer: x is its output.
  void end_layer(ValueId x);
  // Final norm, the rows that are asked for, the head (output.weight, or the embedding where it is tied).
  Result<Program> finish(ValueId x);

  // ---- weights
  // "blk.N.name.weight" (outside layers: "name.weight") as slabs of [rows, cols].
  Weight weight(const std::string& name, uint64_t rows, uint64_t cols, uint32_t slabs = 1);
  // Its tensor, or null.
  const GgufTensor* tensor(const std::string& name, const char* ending = ".weight") const;
  // Rotary table of the model, with the divisors that the file may hold (rope_freqs.weight).
  RopeTable rope_table();
  template <class... Parts>
  void refuse(const Parts&... parts) {
    if (status_.ok()) status_ = fail(Code::kBadModel, parts...);
  }

 private:
  std::string full_name(const std::string& name) const;
  std::string op_name(const std::string& name) const;
  ValueId add_value(std::string name, uint32_t rows, uint32_t format, uint32_t groups, uint32_t cols);
  ValueId add_view(ValueId x, uint32_t groups, uint32_t cols, uint32_t stride, uint32_t offset);
  ProgramOp& add_op(const std::string& name, uint32_t kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  Weight vector_weight(const GgufTensor& tensor, uint64_t elements);
  std::optional<Weight> bias(const std::string& name, uint64_t elements, uint32_t slabs);
  Weight expert_weight(const std::string& name, const std::string& fused, uint64_t fused_row, uint64_t rows,
                       uint64_t cols);
  const mh_value& view(ValueId id) const { return program_.values[id].view; }

  const GgufFile& file_;
  const HyperParameters& hyper_;
  Program program_;
  int32_t layer_ = -1;
  Status status_;
};

}  // namespace moehost

// Qwen3-MoE (GGUF `qwen3moe`): grouped-query attention with a norm on every head of Q and K before the rotation (pairs
// half a head apart); softmax over all experts, the best K, renormalised. Layers without a router are dense.
#include <cmath>

#include "core/model/architecture.h"

namespace moehost {

Result<Program> build_qwen3moe(ProgramBuilder& b, const HyperParameters& h) {
  const mh_route_params router = softmax_router(h);
  const float scale = 1 / std::sqrt(static_cast<float>(h.head_dim));
  const RopeTable rotary = b.rope_table();

  ValueId x = b.embed();
  for (uint32_t layer = 0; layer < h.layers; ++layer) {
    b.begin_layer(layer);
    ValueId n = b.rms_norm(x, "attn_norm", h.rms_eps);
    ValueId q = b.heads(b.linear(n, "attn_q", h.heads * h.head_dim), h.heads);
    ValueId k = b.heads(b.linear(n, "attn_k", h.kv_heads * h.head_dim), h.kv_heads);
    q = b.rope(b.rms_norm(q, "attn_q_norm", h.rms_eps), rotary, false);
    k = b.rope(b.rms_norm(k, "attn_k_norm", h.rms_eps), rotary, false);
    const ValueId v = b.heads(b.linear(n, "attn_v", h.kv_heads * h.value_dim), h.kv_heads);
    const ValueId a = b.attention(q, k, v, h.value_dim, scale);
    x = b.add({x, b.linear(b.flat(a), "attn_output", h.model_dim)});

    n = b.rms_norm(x, "ffn_norm", h.rms_eps);
    x = b.add({x, b.has("ffn_gate_inp") ? b.experts(n, b.route(n, router)) : b.ffn(n, "", h.ffn_dim)});
    b.end_layer(x);
  }
  return b.finish(x);
}

}  // namespace moehost

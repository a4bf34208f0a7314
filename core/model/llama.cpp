// Llama and Mixtral (GGUF `llama`): grouped-query attention, SwiGLU; with experts: softmax over all, the best K,
// renormalised. Q and K rows of the files are permuted, so rotary pairs are adjacent.
#include <cmath>

#include "core/model/architecture.h"

namespace moehost {

Result<Program> build_llama(ProgramBuilder& b, const HyperParameters& h) {
  const mh_route_params router = softmax_router(h);
  const float scale = 1 / std::sqrt(static_cast<float>(h.head_dim));
  const RopeTable rotary = b.rope_table();

  ValueId x = b.embed();
  for (uint32_t layer = 0; layer < h.layers; ++layer) {
    b.begin_layer(layer);
    ValueId n = b.rms_norm(x, "attn_norm", h.rms_eps);
    const ValueId q = b.rope(b.heads(b.linear(n, "attn_q", h.heads * h.head_dim), h.heads), rotary, true);
    const ValueId k = b.rope(b.heads(b.linear(n, "attn_k", h.kv_heads * h.head_dim), h.kv_heads), rotary, true);
    const ValueId v = b.heads(b.linear(n, "attn_v", h.kv_heads * h.value_dim), h.kv_heads);
    const ValueId a = b.attention(q, k, v, h.value_dim, scale);
    x = b.add({x, b.linear(b.flat(a), "attn_output", h.model_dim)});

    n = b.rms_norm(x, "ffn_norm", h.rms_eps);
    x = b.add({x, h.experts ? b.experts(n, b.route(n, router)) : b.ffn(n, "", h.ffn_dim)});
    b.end_layer(x);
  }
  return b.finish(x);
}

}  // namespace moehost

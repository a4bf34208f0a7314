// DeepSeek V2, V3, R1 and their like (GGUF `deepseek2`): latent attention in absorbed form, experts in groups with
// shared experts beside them, leading dense layers. DeepSeek-V2 paper (arXiv 2405.04434) sections 2.1 and 2.2; V3 paper
// (arXiv 2412.19437) section 2.1.2 for the router with a correction bias.
#include <cmath>

#include "core/format/codec.h"
#include "core/model/architecture.h"

namespace moehost {
namespace {

// The original builds the norms of the two latents with this epsilon, whatever the config says.
constexpr float kLatentEps = 1e-6f;

mh_route_params make_router(const HyperParameters& h) {
  mh_route_params p{};
  p.size = sizeof p;
  const bool sigmoid = h.gating == 2;
  p.score = sigmoid ? MH_SCORE_SIGMOID : MH_SCORE_SOFTMAX;
  p.experts_per_token = h.experts_per_token;
  p.groups = h.expert_groups, p.groups_kept = h.expert_groups_kept;
  p.group_top = sigmoid ? 2 : 1;  // V3 ranks a group by its two best, V2 by its best
  p.renormalise = h.renormalise;
  p.scale = h.expert_scale;
  return p;
}

Status check_latent(const HyperParameters& h) {
  if (h.kv_lora_rank == 0) return fail(Code::kBadModel, "the key deepseek2.attention.kv_lora_rank is missing");
  if (h.rope.dims >= h.latent_key_dim)
    return fail(Code::kBadModel, "deepseek2.rope.dimension_count is ", h.rope.dims, ", must be below key_length_mla ",
                h.latent_key_dim);
  if (h.gating > 2) return fail(Code::kBadModel, "deepseek2.expert_gating_func is ", h.gating, ", known: 1, 2");
  return {};
}

// The up-projections of the latent for every head: key [R, nope] (transposed, as queries are multiplied by it) and
// value [value_dim, R].
struct LatentWeights {
  Weight key, value;
};
LatentWeights latent_weights(ProgramBuilder& b, const HyperParameters& h) {
  const uint32_t H = h.heads, R = h.kv_lora_rank, V = h.latent_value_dim, nope = h.latent_key_dim - h.rope.dims;
  if (!b.has("attn_kv_b")) return {b.weight("attn_k_b", R, nope, H), b.weight("attn_v_b", V, R, H)};
  // Older files hold both in one tensor [H * (nope + V), R]: V is a part of it, the keys must be transposed.
  const Weight both = b.weight("attn_kv_b", uint64_t{H} * (nope + V), R);
  LatentWeights out;
  out.value = both;
  out.value.rows = V, out.value.slab_count = H, out.value.slabs.clear();
  out.key.name = both.name;
  out.key.format = MH_FORMAT_F32;
  out.key.rows = R, out.key.cols = nope, out.key.slab_count = H, out.key.row_stride_bytes = nope * sizeof(float);
  if (both.slabs.empty()) return out;  // refused already
  for (uint32_t i = 0; i < H; ++i)
    out.value.slabs.push_back(both.slabs[0] + (uint64_t{i} * (nope + V) + nope) * both.row_stride_bytes);
  out.key.make = [both, H, R, V, nope]() -> Result<std::vector<std::byte>> {
    std::vector<float> row(R), transposed(uint64_t{H} * R * nope);
    for (uint32_t i = 0; i < H; ++i) {
      for (uint32_t c = 0; c < nope; ++c) {
        const std::byte* from = both.slabs[0] + (uint64_t{i} * (nope + V) + c) * both.row_stride_bytes;
        MOEHOST_RETURN_IF_ERROR(decode_blocks(both.format, {from, both.row_stride_bytes}, row));
        for (uint32_t r = 0; r < R; ++r) transposed[(uint64_t{i} * R + r) * nope + c] = row[r];
      }
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(transposed.data());
    return std::vector<std::byte>(bytes, bytes + transposed.size() * sizeof(float));
  };
  return out;
}

// Latent attention: the cache holds [latent | rotated key] a token, and the up-projections of keys and values are
// applied to queries and outputs instead.
ValueId latent_attention(ProgramBuilder& b, const HyperParameters& h, ValueId n, const RopeTable& rotary, float scale) {
  const uint32_t H = h.heads, R = h.kv_lora_rank, rope_dim = h.rope.dims, nope_dim = h.latent_key_dim - rope_dim;
  ValueId q = n;
  if (h.q_lora_rank) q = b.rms_norm(b.linear(n, "attn_q_a", h.q_lora_rank), "attn_q_a_norm", kLatentEps);
  q = b.heads(b.linear(q, h.q_lora_rank ? "attn_q_b" : "attn_q", H * h.latent_key_dim), H);
  const ValueId kv = b.linear(n, "attn_kv_a_mqa", R + rope_dim);

  const ValueId keys = b.make("latent_keys", 1, R + rope_dim);
  b.rms_norm(b.window(kv, 0, R), "attn_kv_a_norm", kLatentEps, b.window(keys, 0, R));
  b.rope(b.window(kv, R, rope_dim), rotary, true, b.window(keys, R, rope_dim));

  const ValueId queries = b.make("latent_queries", H, R + rope_dim);
  const LatentWeights up = latent_weights(b, h);
  b.head_linear(b.window(q, 0, nope_dim), up.key, b.window(queries, 0, R));
  b.rope(b.window(q, nope_dim, rope_dim), rotary, true, b.window(queries, R, rope_dim));

  const ValueId latent = b.attention(queries, keys, ProgramBuilder::kFresh, R, scale);
  return b.linear(b.flat(b.head_linear(latent, up.value)), "attn_output", h.model_dim);
}

}  // namespace

Result<Program> build_deepseek2(ProgramBuilder& b, const HyperParameters& h) {
  MOEHOST_RETURN_IF_ERROR(check_latent(h));
  const mh_route_params router = make_router(h);
  const RopeTable rotary = b.rope_table();
  const double m = h.rope.scaling == RopeScaling::kYarn ? yarn_magnitude(h.rope.factor, 10 * h.rope.log_multiplier) : 1;
  const auto scale = static_cast<float>(m * m / std::sqrt(static_cast<double>(h.latent_key_dim)));

  ValueId x = b.embed();
  for (uint32_t layer = 0; layer < h.layers; ++layer) {
    b.begin_layer(layer);
    ValueId n = b.rms_norm(x, "attn_norm", h.rms_eps);
    x = b.add({x, latent_attention(b, h, n, rotary, scale)});

    n = b.rms_norm(x, "ffn_norm", h.rms_eps);
    if (layer < h.leading_dense_layers || h.experts == 0) {
      x = b.add({x, b.ffn(n, "", h.ffn_dim)});
    } else {
      std::vector<ValueId> terms = {x, b.experts(n, b.route(n, router))};
      if (h.shared_experts) terms.push_back(b.ffn(n, "_shexp", h.expert_dim * h.shared_experts));
      x = b.add(std::move(terms));
    }
    b.end_layer(x);
  }
  return b.finish(x);
}

}  // namespace moehost

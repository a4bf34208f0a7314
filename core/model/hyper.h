// Hyper-parameters of a model file, read once and checked. Floor 3.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/format/gguf.h"

namespace moehost {

// How the angles are stretched for contexts beyond the original one.
enum class RopeScaling { kNone, kLinear, kYarn };
// Rotary embedding, as a file describes it.
struct RopeParameters {
  uint32_t dims = 0;
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1, beta_fast = 32, beta_slow = 1;
  uint32_t original_context = 0;
  double attention_factor = 0;  // 0: not given
  double log_multiplier = 0;    // yarn: 0.1 * mscale_all_dim; 0: not given
};

// Absent counts are 0. Names follow docs/glossary.md.
struct HyperParameters {
  std::string architecture, name;
  uint32_t layers = 0, model_dim = 0, heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0, ffn_dim = 0;
  uint32_t vocab_size = 0, context_length = 0;
  float rms_eps = 0;
  RopeParameters rope;

  uint32_t experts = 0, experts_per_token = 0, expert_dim = 0, shared_experts = 0, leading_dense_layers = 0;
  uint32_t expert_groups = 1, expert_groups_kept = 1;
  uint32_t gating = 0;  // 0: not given, 1 softmax, 2 sigmoid, 3 and 4 as GGUF numbers them
  bool renormalise = false;
  float expert_scale = 1;

  uint32_t q_lora_rank = 0, kv_lora_rank = 0, latent_key_dim = 0, latent_value_dim = 0;  // latent attention
};

// kBadModel naming the key, the value and what is allowed: a key missing, of another kind, out of range, not dividing.
Result<HyperParameters> read_hyper_parameters(const GgufFile& file);

// Inverse frequencies [dims / 2] under the scaling, and the factor that cos and sin are multiplied by.
struct RopeTable {
  std::vector<float> inverse_frequencies;
  float magnitude = 1;
};
// divisors: `rope_freqs.weight` (llama3 scaling) or empty. Formulas: YaRN, arXiv 2309.00071, section 3.2 and 3.4.
RopeTable make_rope_table(const RopeParameters& rope, std::span<const float> divisors);
// YaRN's m(factor, mscale) = 0.1 mscale ln(factor) + 1, 1 up to factor 1.
double yarn_magnitude(double factor, double mscale);

}  // namespace moehost

// Reads and checks hyper-parameters from GGUF keys; rotary tables.
#include "core/model/hyper.h"

#include <cmath>

namespace moehost {
namespace {

// Fixed limits: beyond them a file is wrong, and sizes below stay far from overflow.
constexpr uint64_t kMaxLayers = 4096, kMaxDim = 1 << 20, kMaxExperts = 1 << 14, kMaxVocab = 1 << 24;
constexpr uint64_t kMaxContext = UINT64_C(1) << 31;

// Reads keys under the architecture's prefix and keeps the first error.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  // The value, or `absent` when the key is not there; required when absent is not given.
  uint32_t count(const std::string& key, uint64_t lo, uint64_t hi, std::optional<uint32_t> absent = {}) {
    return read(key, absent, [&](const std::string& full) -> Result<std::optional<uint32_t>> {
      MOEHOST_ASSIGN(const auto value, file_.get_uint(full));
      if (!value) return std::optional<uint32_t>();
      if (*value < lo || *value > hi) return fail(Code::kBadModel, full, " is ", *value, ", allowed: ", lo, " to ", hi);
      return std::optional<uint32_t>(static_cast<uint32_t>(*value));
    });
  }
  double number(const std::string& key, double lo, double hi, std::optional<double> absent = {}) {
    return read(key, absent, [&](const std::string& full) -> Result<std::optional<double>> {
      MOEHOST_ASSIGN(const auto value, file_.get_float(full));
      if (value && !(*value >= lo && *value <= hi))
        return fail(Code::kBadModel, full, " is ", *value, ", allowed: ", lo, " to ", hi);
      return value;
    });
  }
  bool flag(const std::string& key, bool absent) {
    return read(key, std::optional<bool>(absent), [&](const std::string& full) { return file_.get_bool(full); });
  }
  std::string text(const std::string& key) {
    return read(key, std::optional<std::string>(std::string()),
                [&](const std::string& full) { return file_.get_string(full); });
  }
  template <class... Parts>
  void refuse(const Parts&... parts) {
    if (status_.ok()) status_ = fail(Code::kBadModel, parts...);
  }
  const std::string& prefix() const { return prefix_; }
  const Status& status() const { return status_; }

 private:
  template <class T, class F>
  T read(const std::string& key, const std::optional<T>& absent, F get) {
    const std::string full = prefix_ + key;
    auto value = get(full);
    if (!value.ok()) {
      refuse(value.status().message());
    } else if (*value) {
      return **value;
    } else if (!absent) {
      refuse("the key ", full, " is missing");
    }
    return absent.value_or(T{});
  }
  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

void read_rope(KeyReader& keys, const HyperParameters& h, RopeParameters& rope) {
  const uint32_t dims = h.latent_key_dim ? 0 : h.head_dim;
  rope.dims = keys.count("rope.dimension_count", 2, kMaxDim, dims ? std::optional<uint32_t>(dims) : std::nullopt);
  rope.base = keys.number("rope.freq_base", 1, 1e12, 10000.0);
  const std::string scaling = keys.text("rope.scaling.type");
  if (scaling == "linear")
    rope.scaling = RopeScaling::kLinear;
  else if (scaling == "yarn")
    rope.scaling = RopeScaling::kYarn;
  else if (!scaling.empty() && scaling != "none")
    keys.refuse(keys.prefix(), "rope.scaling.type is '", scaling, "', known: none, linear, yarn");
  if (rope.dims % 2) keys.refuse(keys.prefix(), "rope.dimension_count is ", rope.dims, ", must be even");
  if (rope.scaling == RopeScaling::kNone) return;
  rope.factor = keys.number("rope.scaling.factor", 1e-3, 1e6);
  rope.attention_factor = keys.number("rope.scaling.attn_factor", 1e-3, 1e3, 0.0);
  if (rope.scaling != RopeScaling::kYarn) return;
  rope.original_context = keys.count("rope.scaling.original_context_length", 1, kMaxContext);
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0);
  rope.log_multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 10, 0.0);
}

void read_experts(KeyReader& keys, HyperParameters& h) {
  h.experts = keys.count("expert_count", 0, kMaxExperts, 0);
  if (h.experts == 0) return;
  h.experts_per_token = keys.count("expert_used_count", 1, h.experts);
  h.expert_dim = keys.count("expert_feed_forward_length", 1, kMaxDim, h.ffn_dim);
  h.shared_experts = keys.count("expert_shared_count", 0, kMaxExperts, 0);
  h.leading_dense_layers = keys.count("leading_dense_block_count", 0, h.layers, 0);
  h.expert_groups = keys.count("expert_group_count", 1, h.experts, 1);
  h.expert_groups_kept = keys.count("expert_group_used_count", 1, h.expert_groups, h.expert_groups);
  h.gating = keys.count("expert_gating_func", 0, 4, 0);
  h.renormalise = keys.flag("expert_weights_norm", false);
  h.expert_scale = static_cast<float>(keys.number("expert_weights_scale", 0, 1e4, 1.0));
  if (h.expert_scale == 0) h.expert_scale = 1;  // writers put 0 for "not scaled"
  if (h.experts % h.expert_groups)
    keys.refuse(keys.prefix(), "expert_count is ", h.experts, ", not a multiple of expert_group_count ",
                h.expert_groups);
  else if (h.experts_per_token > h.experts / h.expert_groups * h.expert_groups_kept)
    keys.refuse(keys.prefix(), "expert_used_count is ", h.experts_per_token, ", more than the kept groups hold");
}

void read_attention(KeyReader& keys, HyperParameters& h) {
  h.heads = keys.count("attention.head_count", 1, kMaxDim);
  h.kv_heads = keys.count("attention.head_count_kv", 1, kMaxDim, h.heads);
  if (h.heads % std::max(h.kv_heads, 1u))
    keys.refuse(keys.prefix(), "attention.head_count is ", h.heads, ", not a multiple of head_count_kv ", h.kv_heads);
  const uint32_t head_dim = h.heads ? h.model_dim / h.heads : 0;
  h.head_dim = keys.count("attention.key_length", 1, kMaxDim, head_dim);
  h.value_dim = keys.count("attention.value_length", 1, kMaxDim, head_dim);
  h.rms_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1));
  h.q_lora_rank = keys.count("attention.q_lora_rank", 0, kMaxDim, 0);
  h.kv_lora_rank = keys.count("attention.kv_lora_rank", 0, kMaxDim, 0);
  if (h.kv_lora_rank == 0) return;
  h.latent_key_dim = keys.count("attention.key_length_mla", 1, kMaxDim, h.head_dim);
  h.latent_value_dim = keys.count("attention.value_length_mla", 1, kMaxDim, h.value_dim);
}

}  // namespace

Result<HyperParameters> read_hyper_parameters(const GgufFile& file) {
  HyperParameters h;
  KeyReader general(file, "general.");
  h.architecture = general.text("architecture");
  h.name = general.text("name");
  MOEHOST_RETURN_IF_ERROR(general.status());

  KeyReader keys(file, h.architecture + ".");
  h.layers = keys.count("block_count", 1, kMaxLayers);
  const uint32_t next_token_layers = keys.count("nextn_predict_layers", 0, kMaxLayers, 0);
  if (next_token_layers >= h.layers && h.layers > 0)
    keys.refuse(keys.prefix(), "nextn_predict_layers is ", next_token_layers, " of ", h.layers, " layers");
  h.layers -= std::min(next_token_layers, h.layers);
  h.model_dim = keys.count("embedding_length", 1, kMaxDim);
  h.context_length = keys.count("context_length", 1, kMaxContext);
  h.ffn_dim = keys.count("feed_forward_length", 0, kMaxDim, 0);
  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (!embedding)
    keys.refuse("the tensor token_embd.weight is missing");
  else if (embedding->shape[1] > kMaxVocab)
    keys.refuse("token_embd.weight has ", embedding->shape[1], " rows");
  else
    h.vocab_size = static_cast<uint32_t>(embedding->shape[1]);
  read_attention(keys, h);
  read_rope(keys, h, h.rope);
  read_experts(keys, h);
  MOEHOST_RETURN_IF_ERROR(keys.status());
  return h;
}

double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

RopeTable make_rope_table(const RopeParameters& rope, std::span<const float> divisors) {
  const double d = rope.dims;
  // The dimension at which a frequency makes n turns over the original context.
  const auto correction = [&](double turns) {
    return d * std::log(rope.original_context / (turns * 2 * M_PI)) / (2 * std::log(rope.base));
  };
  double low = 0, high = 0;
  RopeTable table;
  if (rope.scaling == RopeScaling::kYarn) {
    low = std::max(0.0, std::floor(correction(rope.beta_fast)));
    high = std::min(d - 1, std::ceil(correction(rope.beta_slow)));
    if (low == high) high += 0.001;
    // With mscale_all_dim given, files mean mscale = mscale_all_dim: the quotient of the two magnitudes is 1.
    table.magnitude = static_cast<float>(rope.attention_factor ? rope.attention_factor
                                         : rope.log_multiplier ? 1.0
                                                               : yarn_magnitude(rope.factor, 1));
  } else if (rope.attention_factor) {
    table.magnitude = static_cast<float>(rope.attention_factor);
  }
  for (uint32_t i = 0; i < rope.dims / 2; ++i) {
    double f = std::pow(rope.base, -2.0 * i / d);
    if (rope.scaling == RopeScaling::kLinear) f /= rope.factor;
    if (rope.scaling == RopeScaling::kYarn) {
      const double ramp = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
      f = f / rope.factor * ramp + f * (1 - ramp);
    }
    if (!divisors.empty()) f /= divisors[i];
    table.inverse_frequencies.push_back(static_cast<float>(f));
  }
  return table;
}

}  // namespace moehost

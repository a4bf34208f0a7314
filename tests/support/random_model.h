// Small models with random weights, written as GGUF, for tests that need a file of a certain shape.
#pragma once
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/format/codec.h"
#include "core/format/dtype.h"
#include "core/format/gguf.h"

namespace moehost::testing_support {

// The parts of a GGUF file, free to be changed before they are written.
struct ModelParts {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<GgufOut> tensors;

  void set(const std::string& key, uint64_t value) { put(key, {value, 4, 0}); }
  void set_float(const std::string& key, double value) { put(key, {value, 6, 0}); }
  void set_text(const std::string& key, const std::string& value) { put(key, {value, 8, 0}); }
  void remove(const std::string& key) {
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
  }
  void remove_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const GgufOut& t) { return t.name == name; });
  }
  GgufOut& tensor(const std::string& name) {
    for (GgufOut& t : tensors)
      if (t.name == name) return t;
    std::abort();
  }
  Status write(const std::string& path) const { return write_gguf(path, metadata, tensors); }

 private:
  void put(const std::string& key, GgufValue value) {
    for (auto& entry : metadata)
      if (entry.first == key) return void(entry.second = std::move(value));
    metadata.emplace_back(key, std::move(value));
  }
};

struct ModelShape {
  std::string architecture = "llama";
  uint32_t layers = 2, model_dim = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn_dim = 96, vocab = 64, context = 256;
  uint32_t experts = 0, experts_per_token = 2;
  uint32_t format = 0;  // of the matrices: one that encode_blocks knows
  uint64_t seed = 1;
};

// A tensor of normal random values with deviation 1/sqrt(fan-in), norms 1 + a little.
inline GgufOut random_tensor(const std::string& name, uint32_t format, std::vector<uint64_t> shape,
                             std::mt19937_64& random) {
  uint64_t count = 1;
  for (const uint64_t n : shape) count *= n;
  std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(shape[0])));
  std::vector<float> values(count);
  for (float& v : values) v = shape.size() == 1 ? 1 + 0.1f * normal(random) : 1.5f * normal(random);
  auto bytes = std::make_shared<std::vector<std::byte>>(*row_bytes(format, count));
  if (!encode_blocks(format, values, *bytes).ok()) std::abort();
  return {name, format, std::move(shape), [bytes](const auto& sink) { return sink(*bytes); }};
}

inline ModelParts random_model(const ModelShape& s) {
  std::mt19937_64 random(s.seed);
  ModelParts m;
  const std::string p = s.architecture + ".";
  m.set_text("general.architecture", s.architecture);
  m.set_text("general.name", "random");
  m.set(p + "block_count", s.layers), m.set(p + "context_length", s.context),
      m.set(p + "embedding_length", s.model_dim);
  m.set(p + "feed_forward_length", s.ffn_dim), m.set(p + "attention.head_count", s.heads);
  m.set(p + "attention.head_count_kv", s.kv_heads), m.set(p + "attention.key_length", s.head_dim);
  m.set(p + "attention.value_length", s.head_dim), m.set(p + "rope.dimension_count", s.head_dim);
  m.set_float(p + "attention.layer_norm_rms_epsilon", 1e-5), m.set_float(p + "rope.freq_base", 10000);
  if (s.experts) m.set(p + "expert_count", s.experts), m.set(p + "expert_used_count", s.experts_per_token);
  const auto add = [&](const std::string& name, uint32_t format, std::vector<uint64_t> shape) {
    m.tensors.push_back(random_tensor(name + ".weight", format, std::move(shape), random));
  };
  const uint64_t D = s.model_dim, Q = uint64_t{s.heads} * s.head_dim, KV = uint64_t{s.kv_heads} * s.head_dim,
                 F = s.ffn_dim;
  add("token_embd", s.format, {D, s.vocab});
  for (uint32_t l = 0; l < s.layers; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    add(blk + "attn_norm", 0, {D}), add(blk + "ffn_norm", 0, {D});
    add(blk + "attn_q", s.format, {D, Q}), add(blk + "attn_k", s.format, {D, KV}),
        add(blk + "attn_v", s.format, {D, KV});
    add(blk + "attn_output", s.format, {Q, D});
    if (s.experts) {
      add(blk + "ffn_gate_inp", 0, {D, s.experts});
      add(blk + "ffn_gate_exps", s.format, {D, F, s.experts}), add(blk + "ffn_up_exps", s.format, {D, F, s.experts});
      add(blk + "ffn_down_exps", s.format, {F, D, s.experts});
    } else {
      add(blk + "ffn_gate", s.format, {D, F}), add(blk + "ffn_up", s.format, {D, F}),
          add(blk + "ffn_down", s.format, {F, D});
    }
  }
  add("output_norm", 0, {D});
  add("output", s.format, {D, s.vocab});
  return m;
}

}  // namespace moehost::testing_support

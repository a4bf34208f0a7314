// Older DeepSeek files keep both up-projections of the latent in one tensor: they answer as the new ones.
#include <cmath>
#include <filesystem>

#include "core/format/gguf.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/random_model.h"

namespace moehost {
namespace {

using namespace testing_support;

// attn_k_b {nope, R, H} and attn_v_b {R, V, H} of every layer as attn_kv_b {R, H (nope + V)}, in F32.
void join_projections(const GgufFile& file, ModelParts& parts) {
  for (const GgufTensor& key : file.tensors()) {
    const size_t at = key.name.find("attn_k_b.weight");
    if (at == std::string::npos) continue;
    const std::string block = key.name.substr(0, at);
    const GgufTensor& value = *file.tensor(block + "attn_v_b.weight");
    const auto [nope, R, H, unused] = key.shape;
    const uint64_t V = value.shape[1];
    const auto decode = [](const GgufTensor& t) {
      std::vector<float> out(t.shape[0] * t.shape[1] * t.shape[2]);
      EXPECT_TRUE(decode_blocks(t.format, {t.data, t.bytes}, out).ok());
      return out;
    };
    const std::vector<float> k = decode(key), v = decode(value);
    std::vector<float> both;
    for (uint64_t h = 0; h < H; ++h) {
      for (uint64_t n = 0; n < nope; ++n)
        for (uint64_t r = 0; r < R; ++r) both.push_back(k[(h * R + r) * nope + n]);
      both.insert(both.end(), v.begin() + static_cast<ptrdiff_t>(h * V * R),
                  v.begin() + static_cast<ptrdiff_t>((h + 1) * V * R));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(both.data());
    auto held = std::make_shared<std::vector<std::byte>>(bytes, bytes + both.size() * sizeof(float));
    parts.remove_tensor(block + "attn_k_b.weight");
    parts.remove_tensor(block + "attn_v_b.weight");
    parts.tensors.push_back({block + "attn_kv_b.weight",
                             MH_FORMAT_F32,
                             {R, H * (nope + V)},
                             [held](const auto& sink) { return sink(*held); }});
  }
}

TEST(OldLatentFile, GivesTheLogitsOfTheNewOne) {
  const std::string path = MOEHOST_SHARED_DIR "/data/models/deepseek_v3/model.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data";
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ModelParts parts;
  parts.metadata = file->metadata();
  for (const GgufTensor& t : file->tensors())
    parts.tensors.push_back({t.name,
                             t.format,
                             {t.shape.begin(), t.shape.begin() + t.dimensions},
                             [&t](const auto& sink) { return sink({t.data, t.bytes}); }});
  join_projections(*file, parts);
  const std::string old_path = testing::TempDir() + "/old_latent.gguf";
  ASSERT_TRUE(parts.write(old_path).ok());
  std::vector<TokenId> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 7 % 320);
  std::vector<std::vector<float>> logits;
  for (const std::string& model : {path, old_path}) {
    Config config = tiny_config("reference", "reference");
    config.model = model;
    config.context.max_tokens = 64;
    const auto engine = load_or_fail(config);
    ASSERT_NE(engine, nullptr);
    const auto result = engine->logits(ids);
    ASSERT_TRUE(result.ok()) << result.status().message();
    logits.push_back(*result);
  }
  for (size_t i = 0; i < logits[0].size(); ++i) ASSERT_NEAR(logits[0][i], logits[1][i], 1e-5) << i;
}

}  // namespace
}  // namespace moehost

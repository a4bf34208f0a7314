// Architectures: what a header becomes, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "core/model/architecture.h"
#include "tests/support/random_model.h"

namespace moehost {
namespace {

using testing_support::ModelParts;
using testing_support::ModelShape;
using testing_support::random_model;

class ProgramTest : public testing::Test {
 protected:
  // Writes the parts and builds the program. The file stays open for the test.
  Result<Program> build(const ModelParts& parts) {
    const std::string path = testing::TempDir() + "/program_test.gguf";
    EXPECT_TRUE(parts.write(path).ok());
    auto file = GgufFile::open(path);
    if (!file.ok()) return file.status();
    file_.emplace(*std::move(file));
    return build_program(*file_);
  }
  std::optional<GgufFile> file_;
};

std::multiset<uint32_t> kinds(const Program& p) {
  std::multiset<uint32_t> out;
  for (const ProgramOp& op : p.ops) out.insert(op.kind);
  return out;
}

// Every input was written before it is read, every root element belongs to a value that is wide enough.
void expect_well_formed(const Program& p) {
  std::set<ValueId> written;
  for (const ProgramOp& op : p.ops) {
    for (const ValueId id : op.inputs)
      EXPECT_TRUE(written.count(p.values[id].view.root)) << op.name << " reads too early";
    for (const ValueId id : op.outputs) written.insert(p.values[id].view.root);
    for (const auto& w : op.weights) {
      if (!w) continue;
      EXPECT_TRUE(w->make || w->slabs.size() == w->slab_count) << w->name;
      EXPECT_GT(w->row_stride_bytes, 0u) << w->name;
    }
  }
  for (const Value& v : p.values) {
    const mh_value &window = v.view, &root = p.values[v.view.root].view;
    EXPECT_EQ(root.root, v.view.root) << "a window of a window: " << v.name;
    const uint32_t end = window.offset + (window.groups - 1) * window.group_stride + window.cols;
    EXPECT_LE(end, (root.groups - 1) * root.group_stride + root.cols) << v.name;
  }
}

TEST_F(ProgramTest, ADenseLlamaHasOneAttentionAndOneNetworkALayer) {
  const auto p = build(random_model({}));
  ASSERT_TRUE(p.ok()) << p.status().message();
  expect_well_formed(*p);
  EXPECT_EQ(kinds(*p).count(MH_OP_FFN), 2u);
  EXPECT_EQ(kinds(*p).count(MH_OP_EXPERTS), 0u);
  EXPECT_EQ(kinds(*p).count(MH_OP_ATTENTION), 2u);
  EXPECT_EQ(p->kv_groups.size(), 1u);
  EXPECT_EQ(p->kv_groups[0].layers, 2u);
  EXPECT_EQ(p->layer_outputs.size(), 3u);
}

TEST_F(ProgramTest, ExpertsFollowTheRouterAndBelongToTheExpertPart) {
  ModelShape shape;
  shape.experts = 4;
  const auto p = build(random_model(shape));
  ASSERT_TRUE(p.ok()) << p.status().message();
  expect_well_formed(*p);
  for (const ProgramOp& op : p->ops) EXPECT_EQ(op.part == Part::kExperts, op.kind == MH_OP_EXPERTS) << op.name;
}

TEST_F(ProgramTest, SeparateAndMergedExpertTensorsGiveTheSameProgram) {
  ModelShape shape;
  shape.experts = 2, shape.layers = 1;
  ModelParts merged = random_model(shape), separate = merged;
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    const std::string full = std::string("blk.0.") + name;
    const GgufOut all = merged.tensor(full + "_exps.weight");
    std::vector<std::byte> bytes;
    ASSERT_TRUE(all.produce([&](std::span<const std::byte> piece) {
                     bytes.insert(bytes.end(), piece.begin(), piece.end());
                     return Status();
                   })
                    .ok());
    separate.remove_tensor(full + "_exps.weight");
    for (size_t e = 0; e < 2; ++e) {
      auto half =
          std::make_shared<std::vector<std::byte>>(bytes.begin() + static_cast<ptrdiff_t>(e * bytes.size() / 2),
                                                   bytes.begin() + static_cast<ptrdiff_t>((e + 1) * bytes.size() / 2));
      separate.tensors.push_back(
          {cat(full, ".", e, ".weight"), all.format, {all.shape[0], all.shape[1]}, [half](const auto& sink) {
             return sink(*half);
           }});
    }
  }
  const auto first = build(merged);
  ASSERT_TRUE(first.ok()) << first.status().message();
  std::vector<std::vector<std::byte>> expected;
  const auto slabs = [](const Program& p) {
    std::vector<std::vector<std::byte>> out;
    for (const ProgramOp& op : p.ops)
      if (op.kind == MH_OP_EXPERTS)
        for (const auto& w : op.weights)
          if (w)
            for (const std::byte* s : w->slabs) out.emplace_back(s, s + w->rows * w->row_stride_bytes);
    return out;
  };
  expected = slabs(*first);
  const auto second = build(separate);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(slabs(*second), expected);
  EXPECT_EQ(expected.size(), 6u);
}

struct Fault {
  const char* name;
  std::function<void(ModelParts&)> plant;
  const char* says;  // what the message must name
};
TEST_F(ProgramTest, AFaultyHeaderIsRefusedAndNamed) {
  const Fault faults[] = {
      {"no architecture", [](ModelParts& m) { m.remove("general.architecture"); }, "general.architecture"},
      {"unknown architecture", [](ModelParts& m) { m.set_text("general.architecture", "mamba"); },
       "unknown architecture 'mamba'"},
      {"no layers", [](ModelParts& m) { m.set("llama.block_count", 0); }, "llama.block_count is 0"},
      {"too many layers", [](ModelParts& m) { m.set("llama.block_count", 1 << 20); }, "llama.block_count"},
      {"key missing", [](ModelParts& m) { m.remove("llama.embedding_length"); }, "llama.embedding_length is missing"},
      {"key of another kind", [](ModelParts& m) { m.set_text("llama.embedding_length", "64"); },
       "llama.embedding_length"},
      {"heads that do not divide", [](ModelParts& m) { m.set("llama.attention.head_count", 5); }, "head_count"},
      {"odd rotary dimensions", [](ModelParts& m) { m.set("llama.rope.dimension_count", 15); }, "must be even"},
      {"epsilon of zero", [](ModelParts& m) { m.set_float("llama.attention.layer_norm_rms_epsilon", 0); },
       "epsilon is 0"},
      {"unknown rope scaling", [](ModelParts& m) { m.set_text("llama.rope.scaling.type", "longrope"); }, "'longrope'"},
      {"more experts a token than experts", [](ModelParts& m) { m.set("llama.expert_used_count", 9); },
       "expert_used_count is 9"},
      {"groups that do not divide", [](ModelParts& m) { m.set("llama.expert_group_count", 3); },
       "expert_group_count 3"},
      {"tensor missing", [](ModelParts& m) { m.remove_tensor("blk.1.attn_k.weight"); },
       "blk.1.attn_k.weight is missing"},
      {"embedding missing", [](ModelParts& m) { m.remove_tensor("token_embd.weight"); }, "token_embd.weight"},
      {"expert tensor missing", [](ModelParts& m) { m.remove_tensor("blk.0.ffn_up_exps.weight"); },
       "blk.0.ffn_up_exps.weight"},
      {"wrong shape", [](ModelParts& m) { m.set("llama.feed_forward_length", 64); }, "expected {64, 64"},
      {"rotary dimensions above the head", [](ModelParts& m) { m.set("llama.rope.dimension_count", 32); },
       "rotary dimensions"},
  };
  ModelShape shape;
  shape.experts = 4;
  for (const Fault& fault : faults) {
    ModelParts parts = random_model(shape);
    fault.plant(parts);
    const auto p = build(parts);
    ASSERT_FALSE(p.ok()) << fault.name;
    EXPECT_EQ(p.status().code(), Code::kBadModel) << fault.name;
    EXPECT_NE(p.status().message().find(fault.says), std::string::npos) << fault.name << ": " << p.status().message();
    EXPECT_NE(p.status().message().find("program_test.gguf"), std::string::npos) << "the file is not named";
  }
}

TEST(RopeTable, YarnMatchesTheCheckValuesOfPublishedModels) {
  RopeParameters v3;
  v3.dims = 64, v3.scaling = RopeScaling::kYarn, v3.factor = 40, v3.original_context = 4096, v3.log_multiplier = 0.1;
  const RopeTable table = make_rope_table(v3, {});
  EXPECT_FLOAT_EQ(table.magnitude, 1);
  EXPECT_FLOAT_EQ(table.inverse_frequencies[0], 1);  // fast dimensions stay, slow ones are divided by the factor
  EXPECT_NEAR(table.inverse_frequencies[31], std::pow(10000.0, -62.0 / 64) / 40, 1e-9);
  const double m = yarn_magnitude(40, 1);
  EXPECT_NEAR(m * m / std::sqrt(192.0), 0.135234, 1e-6);  // DeepSeek-V3
  const double lite = yarn_magnitude(40, 0.707);
  EXPECT_NEAR(lite * lite / std::sqrt(192.0), 0.114721, 1e-6);  // DeepSeek-V2-Lite
}

TEST(RopeTable, LinearScalingAndDivisorsSlowTheRotation) {
  RopeParameters rope;
  rope.dims = 4, rope.base = 100;
  EXPECT_FLOAT_EQ(make_rope_table(rope, {}).inverse_frequencies[1], 0.1f);
  rope.scaling = RopeScaling::kLinear, rope.factor = 2;
  EXPECT_FLOAT_EQ(make_rope_table(rope, {}).inverse_frequencies[1], 0.05f);
  const float divisors[] = {1, 4};
  EXPECT_FLOAT_EQ(make_rope_table(rope, divisors).inverse_frequencies[1], 0.0125f);
}

}  // namespace
}  // namespace moehost

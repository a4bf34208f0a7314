// Upcycling: the tensors of the dense model in their order, FFN matrices repeated, a router before the first of a
// layer. Floor 2.
#include "core/format/upcycle.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text_format.h"
#include "core/format/gguf.h"
#include "moehost/ops.h"

namespace moehost {
namespace {

constexpr const char* kExpertCount = "llama.expert_count";
constexpr const char* kExpertUsedCount = "llama.expert_used_count";
constexpr uint32_t kMaxExperts = 1024;
constexpr uint64_t kMaxColumns = 1 << 20;  // what the router's hash has room for

uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The router's weight: noise times a fixed number from -1 to 1.
float router_weight(uint64_t layer, uint64_t row, uint64_t column, double noise) {
  const double unit = static_cast<double>(splitmix64((layer << 40) + (row << 20) + column) >> 40) / (1 << 24);
  return static_cast<float>(noise * (2 * unit - 1));
}

// "blk.LAYER.PART.weight", taken apart.
struct LayerWeight {
  uint32_t layer;
  std::string_view part;
};
std::optional<LayerWeight> parse_layer_weight(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.", kSuffix = ".weight";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  LayerWeight out{};
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), out.layer);
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (error != std::errc() || name.size() <= 1 + kSuffix.size() || name[0] != '.') return std::nullopt;
  out.part = name.substr(1, name.size() - 1 - kSuffix.size());
  return out;
}

GgufOut copies_of(const GgufFile& file, const GgufTensor& tensor, std::string name, std::vector<uint64_t> shape,
                  uint32_t copies) {
  return {std::move(name), tensor.format, std::move(shape), [&file, &tensor, copies](const auto& sink) -> Status {
            for (uint32_t i = 0; i < copies; ++i) MOEHOST_RETURN_IF_ERROR(sink(std::span(tensor.data, tensor.bytes)));
            file.files()[tensor.shard].drop(tensor.offset, tensor.bytes);
            return {};
          }};
}

GgufOut router_of(uint32_t layer, uint64_t columns, uint32_t group, const UpcycleOptions& options) {
  return {cat("blk.", layer, ".ffn_gate_inp.weight"),
          MH_FORMAT_F32,
          {columns, options.num_experts},
          [=](const auto& sink) -> Status {
            std::vector<float> row(columns);
            for (uint32_t expert = 0; expert < options.num_experts; ++expert) {
              for (uint64_t c = 0; c < columns; ++c) row[c] = router_weight(layer, expert / group, c, options.noise);
              MOEHOST_RETURN_IF_ERROR(sink(std::as_bytes(std::span(row))));
            }
            return {};
          }};
}

// Experts that share one router row: all that a token takes where that makes the weights exact, else one.
Result<uint32_t> group_size(const UpcycleOptions& options) {
  const uint32_t experts = options.num_experts, used = options.experts_per_token;
  if (experts < 1 || experts > kMaxExperts || used < 1 || used > experts) {
    return fail(Code::kUsage, used, " of ", experts, " experts a token; allowed are 1 to ", kMaxExperts,
                " experts, and no more a token than there are");
  }
  if (!std::isfinite(options.noise)) return fail(Code::kUsage, "router noise ", options.noise, " is not finite");
  const bool is_exact = experts % used == 0 && std::has_single_bit(used);
  if (options.router == UpcycleRouter::kGrouped && !is_exact) {
    return fail(Code::kUsage, "a grouped router needs experts a token (", used,
                ") to be a power of two that divides the number of experts (", experts, ")");
  }
  return is_exact && options.router != UpcycleRouter::kNoise ? used : 1;
}

Status check_dense_llama(const GgufFile& file) {
  MOEHOST_ASSIGN(const auto architecture, file.get_string("general.architecture"));
  if (architecture != "llama") {
    return fail(Code::kBadModel, file.path(), ": a dense model of architecture llama is needed, this is ",
                printable(architecture.value_or("without an architecture")));
  }
  if (file.find(kExpertCount))
    return fail(Code::kBadModel, file.path(), ": this model has experts already (", kExpertCount, ")");
  return {};
}

Result<std::vector<GgufOut>> plan_tensors(const GgufFile& file, uint32_t group, const UpcycleOptions& options) {
  MOEHOST_ASSIGN(const auto columns, file.get_uint("llama.embedding_length"));
  if (!columns || *columns > kMaxColumns) {
    return fail(Code::kBadModel, file.path(), ": llama.embedding_length ", columns ? cat("is ", *columns) : "is absent",
                "; at most ", kMaxColumns, " is supported");
  }
  std::vector<GgufOut> out;
  bool has_ffn = false;
  for (const GgufTensor& tensor : file.tensors()) {
    const auto parsed = parse_layer_weight(tensor.name);
    if (!parsed || (parsed->part != "ffn_gate" && parsed->part != "ffn_up" && parsed->part != "ffn_down")) {
      const auto shape = std::span(tensor.shape).first(tensor.dimensions);
      out.push_back(copies_of(file, tensor, tensor.name, {shape.begin(), shape.end()}, 1));
      continue;
    }
    const uint64_t inputs = tensor.shape[0];
    if (tensor.dimensions != 2 || (parsed->part == "ffn_gate" && inputs != *columns)) {
      return fail(Code::kBadModel, file.path(), ": ", tensor.name, " has ", tensor.dimensions,
                  " dimensions and rows of ", inputs,
                  "; an FFN matrix has 2, and the gate's rows are of llama.embedding_length, ", *columns);
    }
    has_ffn = true;
    if (parsed->part == "ffn_gate") out.push_back(router_of(parsed->layer, *columns, group, options));
    out.push_back(copies_of(file, tensor, cat("blk.", parsed->layer, ".", parsed->part, "_exps.weight"),
                            {inputs, tensor.shape[1], options.num_experts}, options.num_experts));
  }
  if (!has_ffn) return fail(Code::kBadModel, file.path(), ": no FFN matrix blk.N.ffn_gate.weight to make experts of");
  return out;
}

}  // namespace

Status upcycle_gguf(const std::string& input, const std::string& output, const UpcycleOptions& options) {
  MOEHOST_ASSIGN(const uint32_t group, group_size(options));
  MOEHOST_ASSIGN(const GgufFile file, GgufFile::open(input));
  MOEHOST_RETURN_IF_ERROR(check_dense_llama(file));
  MOEHOST_ASSIGN(const std::vector<GgufOut> tensors, plan_tensors(file, group, options));
  auto metadata = file.metadata();
  std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("split."); });  // one file comes out
  metadata.emplace_back(kExpertCount, GgufValue{uint64_t{options.num_experts}, kGgufU32});
  metadata.emplace_back(kExpertUsedCount, GgufValue{uint64_t{options.experts_per_token}, kGgufU32});
  return write_gguf(output, metadata, tensors);
}

}  // namespace moehost

// The table of architectures.
#include "core/model/architecture.h"

namespace moehost {
namespace {

struct Architecture {
  const char* name;
  Result<Program> (*build)(ProgramBuilder&, const HyperParameters&);
};
constexpr Architecture kArchitectures[] = {
    {"llama", build_llama}, {"qwen3moe", build_qwen3moe}, {"deepseek2", build_deepseek2}};

}  // namespace

mh_route_params softmax_router(const HyperParameters& h) {
  mh_route_params p{};
  p.size = sizeof p;
  p.score = MH_SCORE_SOFTMAX, p.experts_per_token = h.experts_per_token;
  p.groups = p.groups_kept = p.group_top = 1;
  p.renormalise = 1, p.scale = h.expert_scale;
  return p;
}

Result<Program> build_program(const GgufFile& file) {
  const auto built = [&]() -> Result<Program> {
    MOEHOST_ASSIGN(const auto name, file.get_string("general.architecture"));
    if (!name) return fail(Code::kBadModel, "the key general.architecture is missing");
    std::string known;
    for (const Architecture& a : kArchitectures) {
      known += cat(known.empty() ? "" : ", ", a.name);
      if (*name != a.name) continue;
      MOEHOST_ASSIGN(const HyperParameters hyper, read_hyper_parameters(file));
      ProgramBuilder builder(file, hyper);
      return a.build(builder, hyper);
    }
    return fail(Code::kBadModel, "unknown architecture '", *name, "', known: ", known);
  }();
  if (!built.ok()) return built.status().in(file.path());
  return built;
}

}  // namespace moehost

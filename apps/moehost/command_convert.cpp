// moehost convert: a dense model file into one with experts.
#include <iostream>

#include "apps/moehost/commands.h"
#include "core/format/upcycle.h"

namespace moehost {
namespace {

const std::vector<std::string> kRouters = {"auto", "grouped", "noise"};
constexpr uint64_t kMostExperts = 65535;

Status convert(const CommandLine& line) {
  if (!line.has("to-moe")) return fail(Code::kUsage, "--to-moe upcycle is expected: it is the only conversion so far");
  MOEHOST_RETURN_IF_ERROR(line.word("to-moe", {"upcycle"}, "upcycle").status());
  UpcycleOptions options;
  MOEHOST_ASSIGN(const auto experts, line.integer("num-experts", 1, kMostExperts));
  MOEHOST_ASSIGN(const auto per_token, line.integer("experts-per-token", 1, kMostExperts));
  MOEHOST_ASSIGN(const auto noise, line.number("noise"));
  MOEHOST_ASSIGN(const std::string router, line.word("router", kRouters, "auto"));
  if (experts) options.num_experts = static_cast<uint32_t>(*experts);
  if (per_token) options.experts_per_token = static_cast<uint32_t>(*per_token);
  if (noise) options.noise = *noise;
  options.router = router == "grouped" ? UpcycleRouter::kGrouped
                   : router == "noise" ? UpcycleRouter::kNoise
                                       : UpcycleRouter::kAuto;
  const std::string& input = line.positional()[0];
  const std::string& output = line.positional()[1];
  MOEHOST_RETURN_IF_ERROR(upcycle_gguf(input, output, options));
  std::cerr << "wrote " << output << ": " << options.num_experts << " experts, " << options.experts_per_token
            << " a token\n";
  return {};
}

}  // namespace

Command convert_command() {
  return {"convert",
          "IN.gguf OUT.gguf --to-moe upcycle",
          "Turns a dense model into experts that give the same answers.",
          2,
          2,
          {{"to-moe", 0, "HOW", "upcycle: every expert is a copy of the dense FFN"},
           {"num-experts", 0, "COUNT", "experts a layer (4)"},
           {"experts-per-token", 0, "COUNT", "experts that a token takes (2)"},
           {"router", 0, "KIND", "grouped (weights exactly equal), noise, or auto: grouped where it is exact"},
           {"noise", 0, "X", "size of the router's values (0.01)"}},
          &convert};
}

}  // namespace moehost

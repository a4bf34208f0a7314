// moehost check: configuration and model header, all errors at once.
#include <iostream>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "core/model/architecture.h"

namespace moehost {
namespace {

void print_origins(const ConfigResult& result) {
  for (const auto& origin : result.origins)
    std::cout << origin.path << " = " << origin.value << "    # " << origin.origin << "\n";
}

// Header, hyper-parameters and tensor shapes; no weight is read.
Status check_model(const std::string& path) {
  if (path.empty()) return fail(Code::kUsage, "no model is named: --no-model checks the configuration alone");
  MOEHOST_ASSIGN(const GgufFile file, GgufFile::open(path));
  MOEHOST_ASSIGN(const Program program, build_program(file));
  std::cout << "model: ok: " << path << ", " << program.architecture << ", " << program.layers << " layers, "
            << file.tensors().size() << " tensors\n";
  return {};
}

Status check(const CommandLine& line) {
  if (line.has("docs")) {
    std::cout << config_markdown();
    return {};
  }
  if (line.has("schema")) {
    std::cout << config_json_schema();
    return {};
  }
  MOEHOST_ASSIGN(const ConfigResult result, read_config(line));
  if (line.has("origin")) print_origins(result);
  const Status config = report_errors(result);
  if (config.ok()) std::cout << "configuration: ok\n";
  if (line.has("no-model")) return config;
  const Status model = check_model(result.config.model);
  if (config.ok()) return model;
  if (!model.ok()) std::cerr << "moehost: error: " << model.message() << "\n";
  return config;
}

}  // namespace

Command check_command() {
  const std::vector<OptionSpec> own = {{"origin", 0, "", "print every effective value and where it came from"},
                                       {"no-model", 0, "", "the configuration alone: the model file need not exist"},
                                       {"docs", 0, "", "print docs/configuration.md"},
                                       {"schema", 0, "", "print the JSON Schema of configuration files"}};
  return {"check", "[MODEL]", "Validates configuration and model header: all errors at once.",
          0,       1,         own + config_options() + address_options(),
          &check};
}

}  // namespace moehost

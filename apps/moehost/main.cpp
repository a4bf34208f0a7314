// The program: finds the command, reads its arguments, runs it and turns its Status into the exit code.
#include <cstdio>
#include <exception>
#include <iostream>

#include "apps/moehost/commands.h"
#include "apps/moehost/version.h"
#include "core/base/text_format.h"

namespace moehost {
namespace {

std::vector<Command> all_commands() {
  return {serve_command(),   run_command(),    plan_command(),     check_command(),  devices_command(),
          inspect_command(), logits_command(), tokenize_command(), convert_command()};
}

std::string overview(const std::vector<Command>& commands) {
  std::string out =
      "moehost: serves Mixture-of-Experts language models from plugin devices\n\n"
      "  moehost --config FILE          the same as: moehost serve --config FILE\n"
      "  moehost serve MODEL.gguf       experts in RAM, the rest on the best other device\n\ncommands:\n";
  for (const Command& command : commands)
    out += cat("  ", command.name, std::string(10 - command.name.size(), ' '), command.summary, "\n");
  return out + "\n'moehost COMMAND --help' lists its options, 'moehost --version' the version\n";
}

int report(const Status& status) {
  if (!status.ok()) std::cerr << "moehost: error: " << status.message() << "\n";
  return status.exit_code();
}

Status run_named(const std::vector<Command>& commands, const std::string& name, std::vector<std::string> arguments) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.push_back(command.name);
    if (command.name != name) continue;
    MOEHOST_ASSIGN(const CommandLine line, parse_command_line(command, arguments));
    if (!line.has("help")) return command.run(line);
    std::cout << command_help(command);
    return {};
  }
  const std::string near = nearest(name, names);
  return fail(Code::kUsage, "unknown command '", printable(name),
              "': ", near.empty() ? std::string("'moehost --help' lists them") : cat("did you mean '", near, "'?"));
}

int run(std::vector<std::string> arguments) {
  const auto commands = all_commands();
  if (arguments.empty()) {
    std::cerr << overview(commands);
    return static_cast<int>(Code::kUsage);
  }
  const std::string first = arguments.front();
  if (first == "--help" || first == "-h") {
    std::cout << overview(commands);
    return 0;
  }
  if (first == "--version") {
    std::cout << version_line() << "\n";
    return 0;
  }
  // Options without a command mean serve.
  if (first.starts_with("-")) return report(run_named(commands, "serve", std::move(arguments)));
  arguments.erase(arguments.begin());
  return report(run_named(commands, first, std::move(arguments)));
}

}  // namespace
}  // namespace moehost

int main(int count, char** values) {
  try {
    return moehost::run(std::vector<std::string>(values + (count > 0 ? 1 : 0), values + count));
  } catch (const std::bad_alloc&) {
    std::fputs("moehost: error: out of memory\n", stderr);
    return static_cast<int>(moehost::Code::kNoResource);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moehost: error: %s (a bug: please report it)\n", error.what());
    return static_cast<int>(moehost::Code::kInternal);
  }
}

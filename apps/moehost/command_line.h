// What a command accepts, declared once: parser, --help and "did you mean" come from it. Floor 6.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace moehost {

struct OptionSpec {
  std::string name;   // "max-tokens"; on the command line max_tokens is the same
  char letter = 0;    // 'n' for -n; 0: none
  std::string value;  // what --help calls the value; empty: a switch
  std::string help;
  bool repeatable = false;  // else given twice is an error
};

// The arguments of one call, as text. Numbers are read where they are used.
class CommandLine {
 public:
  CommandLine() = default;
  CommandLine(std::vector<std::string> positional, std::map<std::string, std::vector<std::string>> values)
      : positional_(std::move(positional)), values_(std::move(values)) {}

  const std::vector<std::string>& positional() const { return positional_; }
  bool has(const std::string& option) const { return values_.count(option) > 0; }
  // The value given, or nothing. Of a repeatable one: all().
  std::optional<std::string> text(const std::string& option) const;
  std::vector<std::string> all(const std::string& option) const;
  // kUsage naming the option and the range; nothing when the option is absent.
  Result<std::optional<uint64_t>> integer(const std::string& option, uint64_t least, uint64_t most) const;
  Result<std::optional<double>> number(const std::string& option) const;
  // One of the words, or `otherwise` when absent. kUsage lists the words.
  Result<std::string> word(const std::string& option, const std::vector<std::string>& words,
                           std::string_view otherwise) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::vector<std::string>> values_;
};

struct Command {
  std::string name, arguments, summary;  // "plan", "[MODEL]", one line
  size_t positional_least = 0, positional_most = 1;
  std::vector<OptionSpec> options;  // --help is added to all
  Status (*run)(const CommandLine& line) = nullptr;
};

// kUsage: an unknown option (with the nearest known one), a value missing, too many arguments.
Result<CommandLine> parse_command_line(const Command& command, const std::vector<std::string>& arguments);
// What `moehost NAME --help` prints.
std::string command_help(const Command& command);

}  // namespace moehost

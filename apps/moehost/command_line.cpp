// The parser behind command_line.h: Boost.Program_options for the syntax, our own words for the errors.
#include "apps/moehost/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>

#include "core/base/text_format.h"

namespace po = boost::program_options;

namespace moehost {
namespace {

constexpr const char* kPositional = "argument";  // the hidden option that collects what is not an option

std::vector<OptionSpec> with_help(const Command& command) {
  auto options = command.options;
  options.push_back({"help", 'h', "", "print this"});
  return options;
}

po::options_description describe(const std::vector<OptionSpec>& options) {
  po::options_description description("options");
  for (const OptionSpec& option : options) {
    const std::string names = option.letter ? cat(option.name, ",", option.letter) : option.name;
    if (option.value.empty()) {
      description.add_options()(names.c_str(), option.help.c_str());
    } else {
      const auto value = po::value<std::vector<std::string>>()->value_name(option.value);
      description.add_options()(names.c_str(), value, option.help.c_str());
    }
  }
  return description;
}

// --moe_device=x is --moe-device=x; text after "=" and after "--" stays as it is.
std::vector<std::string> with_dashes(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    const auto end = argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end, '_', '-');
  }
  return arguments;
}

Status unknown_option(const Command& command, const std::string& given) {
  std::vector<std::string> known;
  for (const OptionSpec& option : with_help(command)) known.push_back(cat("--", option.name));
  const std::string near = nearest(given, known);
  return fail(
      Code::kUsage, "unknown option '", printable(given), "' of 'moehost ", command.name, "'",
      near.empty() ? cat(": 'moehost ", command.name, " --help' lists them") : cat(": did you mean '", near, "'?"));
}

}  // namespace

std::optional<std::string> CommandLine::text(const std::string& option) const {
  const auto found = values_.find(option);
  return found == values_.end() || found->second.empty() ? std::nullopt : std::optional(found->second.back());
}

std::vector<std::string> CommandLine::all(const std::string& option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

Result<std::optional<uint64_t>> CommandLine::integer(const std::string& option, uint64_t least, uint64_t most) const {
  const auto given = text(option);
  if (!given) return std::optional<uint64_t>();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (error != std::errc() || end != given->data() + given->size() || value < least || value > most)
    return fail(Code::kUsage, "--", option, " is '", printable(*given), "': a whole number from ", least, " to ", most,
                " is expected");
  return std::optional(value);
}

Result<std::optional<double>> CommandLine::number(const std::string& option) const {
  const auto given = text(option);
  if (!given) return std::optional<double>();
  double value = 0;
  const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (error != std::errc() || end != given->data() + given->size())
    return fail(Code::kUsage, "--", option, " is '", printable(*given), "': a number is expected");
  return std::optional(value);
}

Result<std::string> CommandLine::word(const std::string& option, const std::vector<std::string>& words,
                                      std::string_view otherwise) const {
  const std::string given = text(option).value_or(std::string(otherwise));
  if (std::find(words.begin(), words.end(), given) != words.end()) return given;
  std::string list;
  for (const std::string& word : words) list += list.empty() ? word : cat(", ", word);
  return fail(Code::kUsage, "--", option, " is '", printable(given), "': one of ", list, " is expected");
}

Result<CommandLine> parse_command_line(const Command& command, const std::vector<std::string>& arguments) {
  const auto options = with_help(command);
  auto description = describe(options);
  description.add_options()(kPositional, po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add(kPositional, -1);
  std::vector<std::string> rest;
  std::map<std::string, std::vector<std::string>> values;
  try {
    namespace style = po::command_line_style;
    const auto parsed = po::command_line_parser(with_dashes(arguments))
                            .options(description)
                            .positional(positional)
                            .style(style::unix_style & ~style::allow_guessing)
                            .run();
    for (const auto& option : parsed.options) {
      auto& into = option.string_key == kPositional ? rest : values[option.string_key];
      into.insert(into.end(), option.value.begin(), option.value.end());
    }
  } catch (const po::unknown_option& error) {
    return unknown_option(command, error.get_option_name());
  } catch (const po::error& error) {
    return fail(Code::kUsage, error.what());
  }
  for (const OptionSpec& option : options)
    if (!option.repeatable && values.count(option.name) && values[option.name].size() > 1)
      return fail(Code::kUsage, "--", option.name, " is given ", values[option.name].size(), " times: once is allowed");
  if (values.count("help")) return CommandLine(rest, values);
  if (rest.size() < command.positional_least || rest.size() > command.positional_most)
    return fail(Code::kUsage, rest.size(), " arguments given: 'moehost ", command.name, " ", command.arguments,
                "' is expected");
  return CommandLine(rest, values);
}

std::string command_help(const Command& command) {
  return cat("moehost ", command.name, " ", command.arguments, "\n\n", command.summary, "\n\n",
             describe(with_help(command)));
}

}  // namespace moehost

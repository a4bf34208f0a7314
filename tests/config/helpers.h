// Configuration from text, and what tests look for in errors.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/config/load.h"

namespace moehost::test {

// Files by name, read from memory.
inline ConfigResult load(const std::vector<std::pair<std::string, std::string>>& files, ConfigSources sources = {}) {
  for (const auto& file : files) sources.files.push_back(file.first);
  return load_config(sources, [&](const std::string& path) -> Result<std::string> {
    for (const auto& [name, text] : files) {
      if (name == path) return text;
    }
    return fail(Code::kBadModel, path, ": not there");
  });
}

// One file, "t.yaml".
inline ConfigResult load(const std::string& text) { return load({{"t.yaml", text}}); }

inline std::string joined(const std::vector<std::string>& errors) {
  std::string out;
  for (const std::string& error : errors) out += error + "\n";
  return out;
}

// Exactly one error, at "line:column", whose message, line or hint holds `reason`.
inline void expect_error(const std::string& text, const std::string& place, const std::string& reason) {
  const ConfigResult result = load(text);
  ASSERT_EQ(result.errors.size(), 1u) << text << "\n" << joined(result.errors);
  EXPECT_TRUE(result.errors[0].starts_with(cat("t.yaml:", place, ": error: "))) << text << "\n" << result.errors[0];
  EXPECT_NE(result.errors[0].find(reason), std::string::npos) << text << "\n" << result.errors[0];
}

}  // namespace moehost::test

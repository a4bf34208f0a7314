// Any bytes as a file, and as a --set: read, or refused with a place. Crashes and errors without a caret are findings.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  moehost::ConfigSources sources;
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals < 64) {
    sources.sets = {{text.substr(0, equals), text.substr(equals + 1)}};
  } else {
    sources.files = {"f.yaml"};
  }
  const auto read_file = [&](const std::string&) { return moehost::Result<std::string>(text); };
  for (const std::string& error : moehost::load_config(sources, read_file).errors) {
    const bool placed = error.starts_with("f.yaml:") || error.starts_with("--set: ");
    const bool has_caret = error.find('^', error.rfind('\n')) != std::string::npos;
    if (!placed || (!has_caret && !error.ends_with(" more errors"))) std::abort();
  }
  return 0;
}

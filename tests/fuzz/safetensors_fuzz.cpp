// libFuzzer target: any bytes as a safetensors file. What opens has its tensors one after another up to the end.
#include "core/format/safetensors.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moehost;
  const MemoryFile memory(data, size);
  const auto file = SafetensorsFile::open(memory.path());
  if (!file.ok()) {
    if (file.status().message().find(":byte ") == std::string::npos) __builtin_trap();
    return 0;
  }
  for (size_t i = 1; i < file->tensors().size(); ++i) {
    const auto &before = file->tensors()[i - 1].data, &after = file->tensors()[i].data;
    if (before.data() + before.size() != after.data()) __builtin_trap();
  }
  return 0;
}

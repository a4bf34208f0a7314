// libFuzzer target: any bytes as a GGUF file. What opens must be consistent: every tensor lies in the mapping.
#include "core/format/gguf.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moehost;
  const MemoryFile memory(data, size);
  const auto file = GgufFile::open(memory.path());
  if (!file.ok()) {
    if (file.status().message().find(":byte ") == std::string::npos) __builtin_trap();
    return 0;
  }
  for (const auto& [key, value] : file->metadata()) {
    if (file->find(key) != &value) __builtin_trap();
    const bool converts[] = {file->get_uint(key).ok(),   file->get_float(key).ok(),   file->get_bool(key).ok(),
                             file->get_string(key).ok(), file->get_strings(key).ok(), file->get_floats(key).ok(),
                             file->get_ints(key).ok()};
    if (value.type == kGgufString && !converts[3]) __builtin_trap();
  }
  unsigned sum = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (file->tensor(tensor.name) != &tensor) __builtin_trap();
    const auto bytes = file->files()[tensor.shard].bytes();
    if (tensor.data < bytes.data() || tensor.data + tensor.bytes > bytes.data() + bytes.size()) __builtin_trap();
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
  }
  volatile unsigned keep = sum;  // the reads above must happen
  (void)keep;
  return 0;
}

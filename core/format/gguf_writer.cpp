// Writes GGUF v3 files: the directory first, from shapes alone, then every tensor as it is produced. Floor 2.
#include <bit>
#include <optional>
#include <utility>

#include "core/base/checked.h"
#include "core/format/dtype.h"
#include "core/format/gguf.h"
#include "core/format/gguf_types.h"
#include "core/format/output_file.h"

namespace moehost {
namespace {

using gguf::visit_number;

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_text(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out.append(text);
}

template <class Stored, class Kept>
bool append_number(std::string& out, Kept value) {
  if constexpr (std::is_integral_v<Stored> && !std::is_same_v<Kept, bool>) {
    if (!std::in_range<Stored>(value)) return false;
  }
  append(out, static_cast<Stored>(value));
  return true;
}

bool append_array(std::string& out, const GgufValue& value) {
  append(out, value.element_type);
  if (const auto* strings = std::get_if<GgufValue::Strings>(&value.data)) {
    append<uint64_t>(out, strings->size());
    for (const std::string& text : *strings) append_text(out, text);
    return value.element_type == kGgufString;
  }
  return visit_number(value.element_type, false,
                      [&]<class Stored, class Element, class Scalar>(Stored, Element, Scalar) {
                        const auto* elements = std::get_if<std::vector<Element>>(&value.data);
                        if (!elements) return false;
                        append<uint64_t>(out, elements->size());
                        for (const Element element : *elements) {
                          if (!append_number<Stored, Element>(out, element)) return false;
                        }
                        return true;
                      });
}

// False when the data is not what the type says.
bool append_value(std::string& out, const GgufValue& value) {
  append(out, value.type);
  if (value.type == kGgufArray) return append_array(out, value);
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    append_text(out, *text);
    return value.type == kGgufString;
  }
  return visit_number(value.type, false, [&]<class Stored, class Element, class Scalar>(Stored, Element, Scalar) {
    const auto* number = std::get_if<Scalar>(&value.data);
    return number && append_number<Stored, Scalar>(out, *number);
  });
}

Result<uint64_t> tensor_bytes(const GgufOut& tensor) {
  std::optional<uint64_t> bytes;
  if (!tensor.shape.empty() && tensor.shape.size() <= 4) bytes = row_bytes(tensor.format, tensor.shape[0]);
  for (size_t i = 1; i < tensor.shape.size() && bytes; ++i) bytes = checked_mul(*bytes, tensor.shape[i]);
  if (!bytes || *bytes == 0) {
    return fail(Code::kUsage, tensor.name, ": a tensor has 1 to 4 dimensions, none of them 0, and whole blocks of ",
                format_name(tensor.format));
  }
  return *bytes;
}

}  // namespace

Status write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                  const std::vector<GgufOut>& tensors) {
  uint64_t alignment = gguf::kDefaultAlignment;
  std::string header;
  append(header, gguf::kMagic);
  append<uint32_t>(header, 3);
  append<uint64_t>(header, tensors.size());
  append<uint64_t>(header, metadata.size());
  for (const auto& [key, value] : metadata) {
    append_text(header, key);
    if (!append_value(header, value)) {
      return fail(Code::kUsage, path, ": the value of ", key, " is not a ", gguf::type_name(value.type));
    }
    if (key != gguf::kAlignmentKey) continue;
    const auto* wanted = std::get_if<uint64_t>(&value.data);
    if (!wanted || !std::has_single_bit(*wanted)) {
      return fail(Code::kUsage, path, ": ", key, " must be a u32 that is a power of two");
    }
    alignment = *wanted;
  }
  std::vector<uint64_t> sizes;
  uint64_t offset = 0;
  for (const GgufOut& tensor : tensors) {
    MOEHOST_ASSIGN(const uint64_t bytes, tensor_bytes(tensor));
    append_text(header, tensor.name);
    append(header, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dimension : tensor.shape) append(header, dimension);
    append(header, tensor.format);
    append(header, offset);
    sizes.push_back(bytes);
    const auto end = checked_add(offset, bytes);
    const auto next = end ? checked_align(*end, alignment) : end;
    if (!next) return fail(Code::kUsage, path, ": the tensors are larger than 64 bits can say");
    offset = *next;
  }

  OutputFile file(path);
  MOEHOST_RETURN_IF_ERROR(file.open());
  MOEHOST_RETURN_IF_ERROR(file.write(header));
  MOEHOST_RETURN_IF_ERROR(file.pad_to(alignment));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t begin = file.size();
    MOEHOST_RETURN_IF_ERROR(tensors[i].produce([&](std::span<const std::byte> bytes) { return file.write(bytes); }));
    if (file.size() - begin != sizes[i]) {
      return fail(Code::kInternal, path, ": ", tensors[i].name, " was produced as ", file.size() - begin,
                  " bytes, its shape takes ", sizes[i]);
    }
    MOEHOST_RETURN_IF_ERROR(file.pad_to(alignment));
  }
  return file.commit();
}

}  // namespace moehost

// Parses the header of one GGUF file. Everything in it is untrusted: memory grows with bytes read, not with counts
// promised, and no step is worse than n log n. Floor 2.
#include "core/format/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>

#include "core/base/checked.h"
#include "core/base/text_format.h"
#include "core/format/dtype.h"
#include "core/format/gguf_types.h"

namespace moehost::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Our limits, far above real files (300 keys, 1.3 M elements, 70,000 tensors), so that a hostile header costs less
// than 64 MiB plus twice its size.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxElements = 1 << 22;  // of all arrays together
constexpr uint64_t kMaxTensors = 1 << 18;
// Limits of the format.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 63;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMinAlignment = 8, kMaxAlignment = 65536;
// The least a record can take: a key of one byte with its length, type and a one-byte value; a tensor likewise.
constexpr uint64_t kMinKeyRecordBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorRecordBytes = 8 + 1 + 4 + 8 + 4 + 8;

bool is_printable_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Numbers from 1000 on are our registry's own.
bool is_gguf_format(uint32_t number) { return number < 1000; }
std::string supported_formats() {
  std::string out;
  for (const FormatInfo& format : formats()) {
    if (!is_gguf_format(format.number)) continue;
    out += cat(out.empty() ? "" : ", ", format.number, " ", format.name);
  }
  return out;
}

class Parser {
 public:
  explicit Parser(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  Result<Header> parse() {
    MOEHOST_RETURN_IF_ERROR(check_magic_and_version());
    const uint64_t counts_at = offset_;
    MOEHOST_ASSIGN(const uint64_t tensor_count, number<uint64_t>("the number of tensors"));
    MOEHOST_ASSIGN(const uint64_t key_count, number<uint64_t>("the number of metadata keys"));
    MOEHOST_RETURN_IF_ERROR(check_count(counts_at, "tensors", tensor_count, kMaxTensors, kMinTensorRecordBytes));
    MOEHOST_RETURN_IF_ERROR(check_count(counts_at + 8, "metadata keys", key_count, kMaxKeys, kMinKeyRecordBytes));
    for (uint64_t i = 0; i < key_count; ++i) MOEHOST_RETURN_IF_ERROR(parse_key_value());
    MOEHOST_RETURN_IF_ERROR(find_alignment());
    for (uint64_t i = 0; i < tensor_count; ++i) MOEHOST_RETURN_IF_ERROR(parse_tensor());
    MOEHOST_RETURN_IF_ERROR(locate_tensors());
    MOEHOST_RETURN_IF_ERROR(check_overlap());
    return std::move(header_);
  }

 private:
  template <class... Parts>
  Status refuse(uint64_t offset, const Parts&... parts) const {
    return fail_at(file_.path(), offset, parts...);
  }
  uint64_t left() const { return bytes_.size() - offset_; }

  template <class T>
  Result<T> number(const char* what) {
    if (left() < sizeof(T)) return refuse(offset_, what, " takes ", sizeof(T), " bytes, the file ends after ", left());
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

  // A length and that many bytes, as a view of the mapping.
  Result<std::string_view> text(const char* what) {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const uint64_t length, number<uint64_t>(what));
    if (length > left()) return refuse(begin, what, " is ", length, " bytes long, the file ends after ", left());
    const std::string_view view(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
    offset_ += length;
    return view;
  }

  // A key or tensor name: text of 1 to max_bytes printable ASCII characters.
  Result<std::string_view> name(const char* what, uint64_t max_bytes) {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const std::string_view view, text(what));
    if (view.empty() || view.size() > max_bytes) {
      return refuse(begin, what, " is ", view.size(), " bytes long; 1 to ", max_bytes, " are allowed");
    }
    if (!is_printable_ascii(view)) {
      return refuse(begin, what, " \"", printable(view), "\" holds more than printable ASCII characters");
    }
    return view;
  }

  // A promised count must fit the limit and the bytes that are left.
  Status check_count(uint64_t at, const char* what, uint64_t count, uint64_t max_count, uint64_t record_bytes) const {
    const uint64_t allowed = std::min(max_count, left() / record_bytes);
    if (count <= allowed) return {};
    return refuse(at, count, " ", what, "; at most ", max_count, " are supported, and the ", left(),
                  " bytes that follow hold at most ", left() / record_bytes);
  }

  Status check_magic_and_version() {
    MOEHOST_ASSIGN(const uint32_t magic, number<uint32_t>("the magic number"));
    if (magic != kMagic) return refuse(0, "the magic number is not \"GGUF\": no GGUF file");
    MOEHOST_ASSIGN(header_.version, number<uint32_t>("the version"));
    if (header_.version == 2 || header_.version == 3) return {};
    const uint32_t reversed = __builtin_bswap32(header_.version);
    return refuse(
        4, "version ", header_.version, "; versions 2 and 3 are supported",
        reversed == 2 || reversed == 3 ? " (this looks like a big-endian file: convert it to little-endian)" : "");
  }

  Status parse_key_value() {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const std::string_view key, name("a metadata key", kMaxKeyBytes));
    const auto [first, is_new] = header_.keys.try_emplace(key, header_.metadata.size());
    if (!is_new) return refuse(begin, "the key ", key, " occurs twice");
    const uint64_t type_at = offset_;
    MOEHOST_ASSIGN(const uint32_t type, number<uint32_t>("a value's type"));
    const uint64_t value_at = offset_;
    Result<GgufValue> value = type == kGgufArray ? parse_array() : parse_single(type_at, type);
    if (!value.ok()) return Status(value.status().code(), cat(value.status().message(), " (key ", key, ")"));
    header_.metadata.emplace_back(key, *std::move(value));
    header_.value_offsets.push_back(value_at);
    return {};
  }

  Result<GgufValue> parse_single(uint64_t type_at, uint32_t type) {
    if (type == kGgufString) {
      MOEHOST_ASSIGN(const std::string_view view, text("a string"));
      return GgufValue{std::string(view), type};
    }
    return visit_number(type, Result<GgufValue>(refuse(type_at, "value type ", type, "; 0 to 12 are known")),
                        [&]<class Stored, class Element, class Scalar>(Stored, Element, Scalar) -> Result<GgufValue> {
                          MOEHOST_ASSIGN(const Scalar value, (element<Stored, Scalar>()));
                          return GgufValue{value, type};
                        });
  }

  template <class Stored, class Kept>
  Result<Kept> element() {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const Stored stored, number<Stored>("a value"));
    if (std::is_same_v<Kept, bool> && stored != 0 && stored != 1) {
      return refuse(begin, "a bool is ", +stored, "; 0 and 1 are allowed");
    }
    return static_cast<Kept>(stored);
  }

  Result<GgufValue> parse_array() {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const uint32_t type, number<uint32_t>("an array's element type"));
    const uint64_t count_at = offset_;
    MOEHOST_ASSIGN(const uint64_t count, number<uint64_t>("an array's length"));
    if (type == kGgufArray) return refuse(begin, "an array of arrays; arrays hold numbers, bools or strings");
    if (type == kGgufString) {
      MOEHOST_RETURN_IF_ERROR(take_elements(count_at, count, sizeof(uint64_t)));
      GgufValue::Strings strings;
      strings.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        MOEHOST_ASSIGN(const std::string_view view, text("a string"));
        strings.emplace_back(view);
      }
      return GgufValue{std::move(strings), kGgufArray, type};
    }
    return visit_number(type, Result<GgufValue>(refuse(begin, "element type ", type, "; 0 to 12 are known")),
                        [&]<class Stored, class Element, class Scalar>(Stored, Element, Scalar) -> Result<GgufValue> {
                          MOEHOST_RETURN_IF_ERROR(take_elements(count_at, count, sizeof(Stored)));
                          std::vector<Element> elements;
                          elements.reserve(count);
                          for (uint64_t i = 0; i < count; ++i) {
                            MOEHOST_ASSIGN(const Element value, (element<Stored, Element>()));
                            elements.push_back(value);
                          }
                          return GgufValue{std::move(elements), kGgufArray, type};
                        });
  }

  Status take_elements(uint64_t at, uint64_t count, uint64_t element_bytes) {
    MOEHOST_RETURN_IF_ERROR(check_count(at, "array elements", count, kMaxElements - elements_, element_bytes));
    elements_ += count;
    return {};
  }

  Status find_alignment() {
    const auto found = header_.keys.find(kAlignmentKey);
    if (found == header_.keys.end()) return {};
    const auto& [key, value] = header_.metadata[found->second];
    const uint64_t at = header_.value_offsets[found->second];
    if (value.type != kGgufU32) return refuse(at, key, " is of type ", type_name(value.type), ", not u32");
    alignment_ = std::get<uint64_t>(value.data);
    if (std::has_single_bit(alignment_) && alignment_ >= kMinAlignment && alignment_ <= kMaxAlignment) return {};
    return refuse(at, key, " is ", alignment_, "; allowed are powers of two from ", kMinAlignment, " to ",
                  kMaxAlignment);
  }

  Status parse_tensor() {
    const uint64_t begin = offset_;
    MOEHOST_ASSIGN(const std::string_view tensor_name, name("a tensor name", kMaxNameBytes));
    const auto [first, is_new] = header_.names.try_emplace(tensor_name, header_.tensors.size());
    if (!is_new) return refuse(begin, "the tensor ", tensor_name, " occurs twice");
    GgufTensor tensor;
    tensor.name = tensor_name;
    const uint64_t dimensions_at = offset_;
    MOEHOST_ASSIGN(tensor.dimensions, number<uint32_t>("a tensor's number of dimensions"));
    if (tensor.dimensions < 1 || tensor.dimensions > kMaxDimensions) {
      return refuse(dimensions_at, tensor.name, " has ", tensor.dimensions, " dimensions; 1 to ", kMaxDimensions,
                    " are allowed");
    }
    for (uint32_t i = 0; i < tensor.dimensions; ++i) {
      MOEHOST_ASSIGN(tensor.shape[i], number<uint64_t>("a tensor's dimension"));
      if (tensor.shape[i] == 0) return refuse(offset_ - 8, tensor.name, ": dimension ", i, " is 0");
    }
    const uint64_t format_at = offset_;
    MOEHOST_ASSIGN(tensor.format, number<uint32_t>("a tensor's type"));
    MOEHOST_ASSIGN(tensor.offset, number<uint64_t>("a tensor's offset"));
    MOEHOST_ASSIGN(tensor.bytes, tensor_bytes(format_at, tensor));
    header_.tensors.push_back(std::move(tensor));
    header_.tensor_offsets.push_back(begin);
    return {};
  }

  Result<uint64_t> tensor_bytes(uint64_t at, const GgufTensor& tensor) const {
    const FormatInfo* format = is_gguf_format(tensor.format) ? find_format(tensor.format) : nullptr;
    if (!format) {
      return refuse(at, tensor.name, " is of type ", tensor.format, "; supported are ", supported_formats());
    }
    if (tensor.shape[0] % format->elements != 0) {
      return refuse(at, tensor.name, " has rows of ", tensor.shape[0], " values; ", format->name,
                    " needs a multiple of ", format->elements);
    }
    std::optional<uint64_t> bytes = row_bytes(tensor.format, tensor.shape[0]);
    for (uint32_t i = 1; i < kMaxDimensions && bytes; ++i) bytes = checked_mul(*bytes, tensor.shape[i]);
    if (!bytes) return refuse(at, tensor.name, ": the product of its dimensions does not fit 64 bits");
    return *bytes;
  }

  // Turns offsets within the data section into offsets within the file, and checks that the data is there.
  Status locate_tensors() {
    if (header_.tensors.empty()) return {};
    const std::optional<uint64_t> data_begin = checked_align(offset_, alignment_);
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      GgufTensor& tensor = header_.tensors[i];
      const uint64_t at = header_.tensor_offsets[i];
      if (tensor.offset % alignment_ != 0) {
        return refuse(at, tensor.name, ": offset ", tensor.offset, " is no multiple of the alignment ", alignment_);
      }
      const std::optional<uint64_t> begin = data_begin ? checked_add(*data_begin, tensor.offset) : std::nullopt;
      const std::optional<uint64_t> end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
      if (!end || *end > bytes_.size()) {
        return refuse(at, tensor.name, ": ", tensor.bytes, " bytes at offset ", tensor.offset,
                      " of the tensor data pass the end of the file (", bytes_.size(), " bytes)");
      }
      tensor.offset = *begin;
      tensor.data = bytes_.data() + *begin;
    }
    return {};
  }

  Status check_overlap() const {
    std::vector<size_t> order(header_.tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return header_.tensors[i].offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &before = header_.tensors[order[i - 1]], &after = header_.tensors[order[i]];
      if (before.offset + before.bytes > after.offset) {
        return refuse(header_.tensor_offsets[order[i]], after.name, " at byte ", after.offset, " overlaps ",
                      before.name, ", which ends at byte ", before.offset + before.bytes);
      }
    }
    return {};
  }

  const MappedFile& file_;
  const std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
  uint64_t elements_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  Header header_;
};

}  // namespace

Result<Header> parse_header(const MappedFile& file) { return Parser(file).parse(); }

std::string type_name(uint32_t type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return type < std::size(kNames) ? kNames[type] : "type " + std::to_string(type);
}

}  // namespace moehost::gguf

// Status, mapped files, logging and text for messages. Floor 1.
#include <fcntl.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/text_format.h"

namespace moehost {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: moehost has a bug: %s does not hold\n", file, line, condition);
  std::abort();
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto refuse = [&](const char* what) { return fail(Code::kBadModel, path, ": ", what); };
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return refuse("not a regular file");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse(std::strerror(errno));
  MappedFile out;
  out.path_ = path;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return refuse("not a regular file");
  }
  out.size_ = static_cast<uint64_t>(info.st_size);
  if (out.size_ > 0) {
    void* memory = ::mmap(nullptr, out.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) {
      const int reason = errno;
      ::close(fd);
      return refuse(std::strerror(reason));
    }
    out.data_ = static_cast<const std::byte*>(memory);
  }
  ::close(fd);
  return out;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {
// Applies advice to the pages of [offset, offset + size) within the mapping: whole pages inside it, or all it touches.
void advise(const std::byte* data, uint64_t file_size, uint64_t offset, uint64_t size, int advice, bool inside) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (!data || offset >= file_size) return;
  uint64_t end = size < file_size - offset ? offset + size : file_size;
  const uint64_t begin = inside ? (offset + page - 1) / page * page : offset / page * page;
  if (inside && end != file_size) end = end / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}
}  // namespace

void MappedFile::drop(uint64_t offset, uint64_t size) const { advise(data_, size_, offset, size, MADV_DONTNEED, true); }
void MappedFile::will_need(uint64_t offset, uint64_t size) const {
  advise(data_, size_, offset, size, MADV_WILLNEED, false);
}

namespace log {
namespace {
spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("moehost", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%L%$ %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}
constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn, spdlog::level::info,
                                                 spdlog::level::debug};
}  // namespace

void set_level(Level level) { logger().set_level(kLevels[static_cast<int>(level)]); }
void write(Level level, std::string_view component, std::string_view text) {
  const int index = static_cast<int>(level);
  logger().log(kLevels[index < 0 ? 0 : index > 3 ? 3 : index], "{}: {}", component, printable(text));
}
}  // namespace log

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    char escaped[5];
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : escaped;
    }
  }
  return out;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : value < 10 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : known) {
    if (name.size() > 2 * candidate.size()) continue;  // cannot be near; a long name costs nothing
    const size_t distance = edit_distance(name, candidate);
    if (2 * distance > std::max(name.size(), candidate.size()) || (!best.empty() && distance >= best_distance)) continue;
    best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace moehost

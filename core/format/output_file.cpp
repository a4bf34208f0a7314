// Temporary, buffer, fsync, rename. Floor 2.
#include "core/format/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace moehost {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::refuse(const char* what) const {
  return fail(Code::kNoResource, path_, ": cannot ", what, ": ", std::strerror(errno));
}

Status OutputFile::open() {
  static std::atomic<unsigned> counter = 0;
  do {
    temporary_ = path_ + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);  // left over from a process that was killed
  if (fd_ < 0) {
    temporary_.clear();
    return refuse("create a temporary file beside it");
  }
  buffer_.reserve(kBufferBytes);
  return {};
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    const size_t now = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(now));
    bytes = bytes.subspan(now);
    if (buffer_.size() == kBufferBytes) MOEHOST_RETURN_IF_ERROR(flush());
  }
  return {};
}

Status OutputFile::pad_to(uint64_t alignment) {
  const std::vector<std::byte> zeros((alignment - size_ % alignment) % alignment);
  return write(zeros);
}

Status OutputFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t written = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refuse("write");
    done += static_cast<size_t>(written);
  }
  buffer_.clear();
  return {};
}

Status OutputFile::commit() {
  MOEHOST_RETURN_IF_ERROR(flush());
  if (::fsync(fd_) != 0) return refuse("write");
  if (::close(std::exchange(fd_, -1)) != 0) return refuse("close");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return refuse("rename the finished file");
  temporary_.clear();
  return {};
}

}  // namespace moehost

// Temporary, buffer, fsync, rename. Floor 2.
#include "core/format/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
  std::string name = path_ + ".XXXXXX";
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) return refuse("create a temporary file beside it");
  temporary_ = std::move(name);
  // mkostemp makes files for the owner alone; a model is an ordinary file. The mask can only be read by setting it.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd_, 0666 & ~mask) != 0) return refuse("set its permissions");
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

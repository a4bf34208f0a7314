// Where configuration text comes from, and the errors found in it: place, source line, caret, hint. Floor 2.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moehost {

// Bytes [begin, end) of Source::text.
struct Span {
  size_t begin = 0, end = 0;
};

// A file, one --set or one environment variable. Its text may be anything until read_document has accepted it.
struct Source {
  std::string name;      // "tiny.yaml", "--set", "MOEHOST_MODEL"
  std::string text;      // of a file its content without BOM, otherwise "path=value"
  bool is_file = false;  // places then have line and column
  std::string folder;    // of a file: relative paths start here; empty: the working folder
};

// "tiny.yaml:3:5" (both from 1, columns in characters), or the name of what is not a file.
std::string place_of(const Source& source, Span span);

// 'text' in quotes for a message: one line, cut when long.
std::string quote(std::string_view text);

// "did you mean 'x'?" with the known name that at least half the letters of name agree with, or empty.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

// The length of the UTF-8 character that text (not empty) begins with, or 0 when it is not valid UTF-8.
size_t utf8_length(std::string_view text);

// The errors of one source, which must outlive this.
class Diagnostics {
 public:
  explicit Diagnostics(const Source& source) : source_(source) {}
  const Source& source() const { return source_; }
  // hint: what to do, shown behind the caret; may be empty.
  void add(Span span, const std::string& message, const std::string& hint = "");
  size_t count() const { return count_; }
  // Every error complete, as the operator reads it, in the order of the text. Of more than 100 the first 100 that were
  // added, and how many are left out.
  std::vector<std::string> texts() const;

 private:
  struct Error {
    size_t offset;
    std::string text;
  };
  const Source& source_;
  std::vector<Error> errors_;
  size_t count_ = 0;
};

}  // namespace moehost

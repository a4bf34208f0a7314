// Builds the tree from yaml-cpp's events, each checked as it comes.
#include "core/config/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "core/base/status.h"

namespace moehost {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;  // a thousand times what a large configuration needs
constexpr size_t kMaxDepth = 16;               // the schema needs 5; yaml-cpp recurses once a level
constexpr size_t kMaxEntries = 1024;           // of one map or list: shares and rules of any machine

// Bytes of the scalar at `begin` on its first line, quotes included.
Span scalar_span(const std::string& text, size_t begin, const std::string& value, bool quoted) {
  if (begin >= text.size()) return {begin, begin};
  size_t end = begin + 1;
  if (!quoted) {
    end = begin + value.size();
  } else if (text[begin] == '"' || text[begin] == '\'') {
    while (end < text.size() && text[end] != text[begin] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
    ++end;
  }
  return {begin, std::min(end, text.size())};
}

// Valid YAML that is not read; ends the parser's work.
struct Refusal {
  Span span;
  std::string message;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(size_t offset, Diagnostics& errors) : offset_(offset), errors_(errors) {}
  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      throw Refusal{span_at(mark), "a second document or text behind the end: one source holds one document"};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Node::Kind::kNull, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Node::Kind::kRefused, mark, "", anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = make(Node::Kind::kScalar, mark, tag, anchor);
    node.text = value;
    node.quoted = tag == "!";
    node.span = scalar_span(errors_.source().text, node.span.begin, value, node.quoted);
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(Node::Kind::kList, mark, tag, anchor));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(Node::Kind::kMap, mark, tag, anchor));
  }
  void OnMapEnd() override {
    drop_bad_entries(open_.back());
    close();
  }

 private:
  // The character that yaml-cpp's mark, which counts bytes from 0, stands at.
  Span span_at(const YAML::Mark& mark) const {
    const size_t begin = offset_ + static_cast<size_t>(std::max(mark.pos, 0));
    return {begin, begin + 1};
  }

  Node make(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Node node;
    node.kind = kind;
    node.span = span_at(mark);
    if (anchor != YAML::NullAnchor)
      errors_.add(node.span, "anchors (&) and aliases (*) are not read", "write the value out");
    if (!tag.empty() && tag != "?" && tag != "!")  // what yaml-cpp says of plain and of quoted values
      errors_.add(node.span, cat("tags are not read, found ", quote(tag)), "leave it out");
    return node;
  }

  void open(Node node) {
    if (open_.size() == kMaxDepth) throw Refusal{node.span, cat("nested deeper than ", kMaxDepth, " levels")};
    open_.push_back(std::move(node));
  }

  void close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Node& parent = open_.back();
    if (parent.items.size() == kMaxEntries) throw Refusal{node.span, cat("more than ", kMaxEntries, " entries")};
    if (parent.kind == Node::Kind::kMap && parent.keys.size() == parent.items.size()) {
      parent.keys.push_back(std::move(node));
      return;
    }
    // yaml-cpp places an absent value at the token that follows.
    if (node.kind == Node::Kind::kNull && parent.kind == Node::Kind::kMap) node.span = parent.keys.back().span;
    parent.items.push_back(std::move(node));
  }

  // yaml-cpp keeps duplicate keys, of which its own nodes show the first, and any node as a key.
  void drop_bad_entries(Node& map) {
    std::set<std::string> seen;
    size_t kept = 0;
    for (size_t i = 0; i < map.items.size(); ++i) {
      Node& key = map.keys[i];
      if (key.kind != Node::Kind::kScalar) {
        if (key.kind != Node::Kind::kRefused) errors_.add(key.span, "a key must be text", "quote it if it is meant");
        continue;
      }
      if (!seen.insert(key.text).second) {
        errors_.add(key.span, cat("the key ", quote(key.text), " is given twice"), "keep one of them");
        continue;
      }
      if (kept != i) {
        map.keys[kept] = std::move(key);
        map.items[kept] = std::move(map.items[i]);
      }
      ++kept;
    }
    map.keys.resize(kept);
    map.items.resize(kept);
  }

  const size_t offset_;
  Diagnostics& errors_;
  size_t documents_ = 0;
  std::vector<Node> open_;  // maps and lists not closed yet, outermost first
  Node root_;
};

// UTF-8 without control characters: with a NUL yaml-cpp guesses UTF-16, and it replaces what is invalid.
bool check_characters(size_t offset, Diagnostics& errors) {
  const std::string& text = errors.source().text;
  for (size_t i = offset; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(std::string_view(text).substr(i));
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7f;
    if (length == 0 || control) {
      errors.add({i, i + 1}, length == 0 ? "not valid UTF-8" : cat("control character ", static_cast<int>(byte)),
                 "save the file as UTF-8 text");
      return false;
    }
    i += length;
  }
  return true;
}

// Whether a tab in the indentation explains the message: outside of braces yaml-cpp finds no key behind it.
bool blames_indentation(const std::string& message) {
  using namespace YAML::ErrorMsg;
  return message == TAB_IN_INDENTATION || message == MAP_VALUE || message == MAP_KEY || message == BLOCK_ENTRY;
}

// Where yaml-cpp gave up, and why.
void add_syntax_error(const YAML::Exception& exception, size_t offset, Diagnostics& errors) {
  const std::string& text = errors.source().text;
  size_t at = text.size();
  if (!exception.mark.is_null()) at = std::min(at, offset + static_cast<size_t>(std::max(exception.mark.pos, 0)));
  if (at == text.size()) at = text.find_last_not_of(" \t\r\n") + 1;  // not the empty line behind the last one
  const size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  const size_t indented = text.find_first_not_of(" \t", line);
  const size_t tab = text.find('\t', line);
  if (blames_indentation(exception.msg) && tab < indented) {
    errors.add({tab, tab + 1}, "not valid YAML: this line is indented with a tab", "use spaces");
  } else {
    errors.add({at, at + 1}, cat("not valid YAML: ", exception.msg));
  }
}

}  // namespace

std::optional<Node> read_document(size_t offset, Diagnostics& errors) {
  const std::string& text = errors.source().text;
  if (text.size() - offset > kMaxBytes) {
    errors.add({offset, offset}, cat("longer than the ", kMaxBytes, " bytes a configuration may have"));
    return std::nullopt;
  }
  if (!check_characters(offset, errors)) return std::nullopt;
  std::istringstream stream(text.substr(offset));
  TreeBuilder builder(offset, errors);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refusal& refusal) {
    errors.add(refusal.span, refusal.message);
    return std::nullopt;
  } catch (const YAML::Exception& exception) {
    add_syntax_error(exception, offset, errors);
    return std::nullopt;
  }
  return builder.take();
}

std::string text_of(const Node& node) {
  if (node.kind == Node::Kind::kScalar) {
    return node.text.find_first_of(",{}[]") == std::string::npos ? node.text : cat("'", node.text, "'");
  }
  if (node.kind != Node::Kind::kMap && node.kind != Node::Kind::kList) return "null";
  const bool map = node.kind == Node::Kind::kMap;
  std::string out = map ? "{" : "[";
  for (size_t i = 0; i < node.items.size(); ++i)
    out += cat(i ? ", " : "", map ? cat(text_of(node.keys[i]), ": ") : "", text_of(node.items[i]));
  return out + (map ? "}" : "]");
}

}  // namespace moehost

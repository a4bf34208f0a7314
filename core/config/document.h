// Configuration text as a tree: YAML (and JSON, which is YAML) without the surprises. Floor 2.
//
// yaml-cpp is used for its events only. Refused here, with a place: duplicate keys, a second document, anchors and
// aliases (so no cycles), tags, keys that are not text, invalid UTF-8, control characters, nesting deeper than 16, maps
// and lists of more than 1024 entries, more than 1 MiB. What a scalar means is not decided here: `010`, `no` and `.nan`
// stay text until an entry reads them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/config/source.h"

namespace moehost {

struct Node {
  enum class Kind { kNull, kScalar, kMap, kList, kRefused };  // kRefused: its error is already recorded
  Kind kind = Kind::kNull;
  std::string text;         // of a scalar, quotes and escapes resolved
  bool quoted = false;      // or a block scalar
  Span span;                // of a map or list: its first character; of an absent value: its key
  std::vector<Node> keys;   // of a map: scalars, all different; keys[i] names items[i]
  std::vector<Node> items;  // of a map or list
};

// The tree of source.text from byte `offset` on; kNull when it holds nothing. Errors go to `errors`; nothing is
// returned when the text cannot be read at all.
std::optional<Node> read_document(size_t offset, Diagnostics& errors);

// The node on one line: "{cuda:0: 1, cpu: 19}".
std::string text_of(const Node& node);

}  // namespace moehost

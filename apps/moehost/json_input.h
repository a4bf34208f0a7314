// Small JSON and file reading for commands: token ids, whole files, standard input. Floor 6.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace moehost {

constexpr size_t kMaxJsonDepth = 64;

// The text is valid UTF-8 (no surrogates, nothing overlong).
bool is_utf8(std::string_view text);
// Arrays and objects nest at most `limit` deep. Looked at before a tree is built: building, copying and freeing
// recurse.
bool json_depth_within(std::string_view text, size_t limit);

// All bytes of a file, or of standard input for "-". kUsage with path and reason.
Result<std::string> read_text(const std::string& path);
// Token ids: [1,2,3], {"input_ids":[...]} or {"ids":[...]}. kUsage naming `what` and the place.
Result<std::vector<TokenId>> parse_ids(std::string_view json, std::string_view what);

}  // namespace moehost

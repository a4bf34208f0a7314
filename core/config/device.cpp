// Device names: kind[:index], and composites "multicuda:0:3,1:3,cpu:2".
#include <algorithm>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/number.h"
#include "core/config/source.h"

namespace moehost {
namespace {

constexpr std::string_view kComposite = "multi";  // in front of the kind of its numbered members
constexpr std::string_view kAutomatic = "auto";   // reserved for the planner
constexpr uint64_t kMaxIndex = 65535;
constexpr size_t kMaxMembers = 64;

bool is_kind(std::string_view text) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' && std::all_of(text.begin(), text.end(), allowed);
}

bool is_composite(std::string_view kind) { return kind.size() > kComposite.size() && kind.starts_with(kComposite); }

Result<uint32_t> parse_index(std::string_view text) {
  const std::optional<uint64_t> index = parse_whole(text);
  if (!index || *index > kMaxIndex)
    return fail(Code::kBadConfig, "the index must be a whole number from 0 to ", kMaxIndex, ", not ", quote(text));
  return static_cast<uint32_t>(*index);
}

// "0", "0:3", "cpu", "cpu:2": a member of a composite over `kind`.
Result<DeviceName::Member> parse_member(std::string_view text, std::string_view kind) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  DeviceName::Member member;
  if (is_kind(name)) {
    if (is_composite(name) || name == kAutomatic)
      return fail(Code::kBadConfig, "a member is one device, not ", quote(name));
    member.kind = name;
  } else {
    member.kind = kind;
    MOEHOST_ASSIGN(member.index, parse_index(name));
  }
  if (colon == std::string_view::npos) return member;
  MOEHOST_ASSIGN(member.weight, parse_weight(text.substr(colon + 1)));
  return member;
}

Result<DeviceName> parse_composite(std::string_view kind, std::string_view list) {
  DeviceName out{std::string(kind)};
  for (bool more = true; more;) {
    const size_t comma = list.find(',');
    more = comma != std::string_view::npos;
    MOEHOST_ASSIGN(DeviceName::Member member, parse_member(list.substr(0, comma), kind.substr(kComposite.size())));
    for (const DeviceName::Member& other : out.members) {
      if (other.kind == member.kind && other.index == member.index)
        return fail(Code::kBadConfig, "the member ", quote(list.substr(0, comma)), " is named twice");
    }
    out.members.push_back(std::move(member));
    if (out.members.size() > kMaxMembers) return fail(Code::kBadConfig, "more than ", kMaxMembers, " members");
    if (more) list.remove_prefix(comma + 1);
  }
  return out;
}

Result<DeviceName> parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const bool indexed = colon != std::string_view::npos;
  if (!is_kind(kind))
    return fail(Code::kBadConfig, "the kind must be lower-case letters, digits, '_' or '-', not ", quote(kind));
  if (kind == kAutomatic) return fail(Code::kBadConfig, "placing automatically is not supported by this version");
  if (is_composite(kind)) {
    if (!indexed) return fail(Code::kBadConfig, "a composite names its members, as in 'multicuda:0,1'");
    return parse_composite(kind, text.substr(colon + 1));
  }
  DeviceName out{std::string(kind)};
  if (indexed) {
    MOEHOST_ASSIGN(out.index, parse_index(text.substr(colon + 1)));
  }
  return out;
}

}  // namespace

Result<DeviceName> parse_device(std::string_view text) {
  Result<DeviceName> out = parse(text);
  if (!out.ok()) return out.status().in(cat("device ", quote(text)));
  return out;
}

std::string DeviceName::text() const {
  if (members.empty()) return cat(kind, ":", index);
  std::string out = kind;
  for (const Member& member : members) {
    const bool numbered = member.kind == std::string_view(kind).substr(kComposite.size());
    out += cat(&member == &members.front() ? ":" : ",", numbered ? std::to_string(member.index) : member.kind);
    if (member.weight != 1) out += cat(":", format_real(member.weight));
  }
  return out;
}

}  // namespace moehost

// Merging of neighbouring symbols with a heap of candidates. A symbol is a range of start symbols; its length stands at
// both its ends, so that the neighbours on either side are found without links.
#include "core/text/merge.h"

#include <algorithm>

namespace moehost {
namespace {

constexpr TokenId kInner = -2;

}  // namespace

void Merger::consider(size_t left) {
  const size_t right = left + lengths_[left];
  if (right == ids_.size()) return;
  if (const MergeTable::Merge* merge = table_.find(ids_[left], ids_[right])) {
    heap_.push_back({merge->rank, merge->result, left, size_t{lengths_[left]} + lengths_[right]});
  }
}

void Merger::apply(const Candidate& best) {
  ids_[best.left + lengths_[best.left]] = kInner;
  ids_[best.left] = best.result;
  lengths_[best.left] = lengths_[best.left + best.length - 1] = static_cast<uint32_t>(best.length);
}

std::span<const Merger::Symbol> Merger::merge(std::span<const TokenId> start) {
  ids_.assign(start.begin(), start.end());
  lengths_.assign(start.size(), 1);
  heap_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) consider(i);
  std::make_heap(heap_.begin(), heap_.end(), worse);

  const auto consider_and_sift = [&](size_t left) {
    const size_t before = heap_.size();
    consider(left);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), worse);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (ids_[best.left] == kInner) continue;
    const size_t right = best.left + lengths_[best.left];
    if (right == ids_.size() || lengths_[best.left] + size_t{lengths_[right]} != best.length) continue;
    apply(best);
    consider_and_sift(best.left);
    if (best.left > 0) consider_and_sift(best.left - lengths_[best.left - 1]);
  }

  result_.clear();
  for (size_t i = 0; i < ids_.size(); i += lengths_[i]) result_.push_back({ids_[i], i});
  return result_;
}

}  // namespace moehost

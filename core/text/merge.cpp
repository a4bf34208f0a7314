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
  if (const Merge* merge = table_.find(ids_[left], ids_[right])) {
    heap_.push_back({merge->rank, lengths_[left] + lengths_[right], left});
  }
}

bool Merger::apply(const Candidate& best) {
  const size_t left = best.left, right = left + lengths_[left];
  if (ids_[left] == kInner || right == ids_.size() || lengths_[left] + lengths_[right] != best.length) return false;
  ids_[left] = table_.find(ids_[left], ids_[right])->result;
  ids_[right] = kInner;
  lengths_[left] = lengths_[left + best.length - 1] = best.length;
  return true;
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
    if (!apply(best)) continue;
    consider_and_sift(best.left);
    if (best.left > 0) consider_and_sift(best.left - lengths_[best.left - 1]);
  }

  result_.clear();
  for (size_t i = 0; i < ids_.size(); i += lengths_[i]) result_.push_back({ids_[i], i});
  return result_;
}

}  // namespace moehost

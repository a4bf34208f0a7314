// Cutting by device: every hand-off has a fence, and no two boundaries share memory at the same time.
//
// The check does not trust the cutter: it works out from the programs alone which op is sure to run before which,
// taking a device to reorder whatever lies between two hand-offs.
#include "core/placement/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/placement/fake_device.h"
#include "tests/placement/toy_program.h"

namespace moehost {
namespace {

using testing_support::PaperDevice;
using testing_support::toy_program;

constexpr uint32_t kFences = MH_DEVICE_WAITS | MH_DEVICE_SIGNALS;

struct Cut {
  PlacedProgram program;
  CutResult result;
};

Cut cut(const DeviceMap& map, uint32_t layers, const std::set<std::string>& relayed = {}) {
  static std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(std::make_unique<Program>(toy_program(layers, 8, 1)));
  const auto resolved = resolve_device_map(map, *programs.back(), *parse_device("a"));
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  StepLimits limits{16, 4, 2, 128, 16};
  auto placed = place_program(
      *programs.back(), *resolved, limits, KvDtype::kF32,
      [&](const DeviceName& name) -> Result<std::shared_ptr<Device>> {
        return std::shared_ptr<Device>(
            std::make_shared<PaperDevice>(name.text(), relayed.count(name.text()) ? 0 : kFences));
      },
      nullptr);
  EXPECT_TRUE(placed.ok()) << placed.status().message();
  Cut out{*std::move(placed), {}};
  out.result = cut_program(out.program);
  return out;
}

// before[i][j]: op i is sure to have ended when op j begins.
std::vector<std::vector<bool>> order(const Cut& c) {
  const size_t n = c.program.ops.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  std::map<uint32_t, std::vector<uint32_t>> known_at_fence;  // ops that a fence vouches for, directly
  struct Position {
    std::vector<uint32_t> waits;
  };
  std::vector<Position> position(n);
  for (const CutProgram& p : c.result.programs) {
    std::vector<uint32_t> waits = p.waits, ops;
    for (const CutItem& item : p.items) {
      if (item.what == MH_ITEM_WAIT) waits.push_back(item.index);
      if (item.what == MH_ITEM_OP) position[item.index].waits = waits, ops.push_back(item.index);
      if (item.what == MH_ITEM_SIGNAL) known_at_fence[item.index] = ops;
    }
    for (const uint32_t f : p.signals) known_at_fence[f] = ops;
  }
  // Ops were numbered in an order in which they can run: one pass closes the relation.
  for (uint32_t j = 0; j < n; ++j) {
    for (const uint32_t f : position[j].waits) {
      for (const uint32_t i : known_at_fence[f]) {
        before[i][j] = true;
        for (uint32_t k = 0; k < n; ++k)
          if (before[k][i]) before[k][j] = true;
      }
    }
  }
  // Segments of a relayed device end before the next one begins.
  for (size_t a = 0; a < c.result.programs.size(); ++a)
    for (size_t b = a + 1; b < c.result.programs.size(); ++b)
      if (c.result.programs[a].device == c.result.programs[b].device)
        for (const CutItem& i : c.result.programs[a].items)
          for (const CutItem& j : c.result.programs[b].items)
            if (i.what == MH_ITEM_OP && j.what == MH_ITEM_OP) before[i.index][j.index] = true;
  for (uint32_t k = 0; k < n; ++k)
    for (uint32_t i = 0; i < n; ++i)
      if (before[i][k])
        for (uint32_t j = 0; j < n; ++j)
          if (before[k][j]) before[i][j] = true;
  return before;
}

void expect_sound(const Cut& c, const std::string& what) {
  const PlacedProgram& p = c.program;
  const auto before = order(c);
  std::map<ValueId, std::vector<uint32_t>> users, writers;
  for (uint32_t i = 0; i < p.ops.size(); ++i) {
    for (const ValueId id : p.ops[i].op.inputs) {
      users[p.values[id].view.root].push_back(i);
      for (const uint32_t w : writers[p.values[id].view.root])
        if (p.ops[w].device != p.ops[i].device)
          EXPECT_TRUE(before[w][i]) << what << ": op " << i << " reads what op " << w << " may not have written";
    }
    for (const ValueId id : p.ops[i].op.outputs) {
      users[p.values[id].view.root].push_back(i);
      writers[p.values[id].view.root].push_back(i);
    }
  }
  const auto& boundaries = c.result.boundaries;
  const auto bytes = [&](const Boundary& b) { return b.row_stride_bytes * p.max_rows(b.root); };
  for (size_t a = 0; a < boundaries.size(); ++a) {
    EXPECT_GE(boundaries[a].offset, c.result.step.offset + c.result.step.bytes);
    EXPECT_LE(boundaries[a].offset + bytes(boundaries[a]), c.result.arena_bytes);
    for (size_t b = 0; b < boundaries.size(); ++b) {
      const Boundary &one = boundaries[a], &two = boundaries[b];
      if (a == b || one.offset >= two.offset + bytes(two) || two.offset >= one.offset + bytes(one)) continue;
      bool one_first = true, two_first = true;
      for (const uint32_t i : users[one.root])
        for (const uint32_t j : users[two.root])
          one_first = one_first && before[i][j], two_first = two_first && before[j][i];
      EXPECT_TRUE(one_first || two_first)
          << what << ": values " << one.root << " and " << two.root << " share memory at once";
    }
  }
}

TEST(Cut, OneDeviceIsOneProgramWithOnlyItsLastFence) {
  DeviceMap map;
  map.expert_layers.shares = {{*parse_device("a"), 1}};
  const Cut c = cut(map, 4);
  ASSERT_EQ(c.result.programs.size(), 1u);
  EXPECT_EQ(c.result.fence_count, 1u);
  EXPECT_EQ(c.result.boundaries.size(), 1u) << "the logits";
  EXPECT_EQ(c.result.programs[0].items.back().what, uint32_t{MH_ITEM_SIGNAL});
}

TEST(Cut, ExpertsElsewhereCostTwoFencesALayer) {
  DeviceMap map;
  map.expert_layers.shares = {{*parse_device("b"), 1}};
  const Cut c = cut(map, 5);  // the first layer is dense
  EXPECT_EQ(c.result.programs.size(), 2u);
  EXPECT_EQ(c.result.fence_count, 2u * 4 + 2);
  expect_sound(c, "experts elsewhere");
}

TEST(Cut, ExchangeMemoryDoesNotGrowWithTheLayers) {
  DeviceMap map;
  map.expert_layers.shares = {{*parse_device("b"), 1}};
  const Cut few = cut(map, 6), many = cut(map, 60);
  const auto values = [](const Cut& c) { return c.result.arena_bytes - c.result.step.offset; };
  EXPECT_EQ(values(few), values(many));
}

TEST(Cut, ARelayedDeviceGetsOneProgramASegment) {
  DeviceMap map;
  map.expert_layers.shares = {{*parse_device("b"), 1}};
  const Cut c = cut(map, 5, {"b:0"});
  size_t segments = 0;
  for (const CutProgram& p : c.result.programs) {
    if (p.device != 1) continue;
    ++segments;
    EXPECT_FALSE(p.signals.empty());
    for (const CutItem& item : p.items) EXPECT_EQ(item.what, uint32_t{MH_ITEM_OP});
  }
  EXPECT_EQ(segments, 4u);
  expect_sound(c, "relayed");
}

TEST(Cut, RandomMapsNeverReadTooEarlyNorShareMemoryAtOnce) {
  std::mt19937 random(20261201);
  const char* devices[] = {"a", "b", "c", "d"};
  const auto pick = [&] { return *parse_device(devices[random() % 4]); };
  for (int round = 0; round < 60; ++round) {
    DeviceMap map;
    map.non_expert_layers = {{pick(), 1}};
    if (random() % 2) map.non_expert_layers.emplace_back(pick(), 2);
    map.expert_layers.split = static_cast<Split>(random() % 3);
    for (const char* name : devices)
      if (random() % 2) map.expert_layers.shares.emplace_back(*parse_device(name), 1 + random() % 2);
    if (map.expert_layers.shares.empty()) map.expert_layers.shares.emplace_back(pick(), 1);
    if (random() % 2) map.expert_layers.rules.push_back({IdRange{2, 3}, IdRange{0, 3}, pick(), ""});
    if (random() % 2) map.kv_cache = pick();
    std::set<std::string> relayed;
    for (const char* name : devices)
      if (random() % 4 == 0) relayed.insert(std::string(name) + ":0");
    expect_sound(cut(map, 6, relayed), cat("round ", round));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace moehost

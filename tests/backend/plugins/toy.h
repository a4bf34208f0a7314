// What the toy plugin counts, for the tests: static data behind mh_plugin.extension(kToyCounters).
#pragma once
#include <atomic>

constexpr const char* kToyCounters = "moehost.test.toy_counters/1";

struct ToyCounters {
  std::atomic<int> inits = 0, shutdowns = 0, opens = 0, closes = 0;
  std::atomic<int> objects = 0;   // buffers, ops, queues, programs alive
  std::atomic<int> overlaps = 0;  // control calls that met another one of the same device
  std::atomic<int> calls_after_loss = 0;
};

// What device.hpp promises to core: hand-offs over fences, poison and recovery, exact memory, out-of-memory at every
// allocation, refusal of what is not known.
#include "tests/sdk/program.h"

namespace sdk_test {
namespace {

StepData tokens(uint32_t count) {
  StepData step;
  for (uint32_t t = 0; t < count; ++t) step.positions.push_back(static_cast<int32_t>(t)), step.token_ids.push_back(0);
  return step;
}

// x -> [first device: a * x] -> fence -> [second device: b * that] -> fence.
class Chain {
 public:
  explicit Chain(Device& a, Device& b)
      : step_at(arena.place(StepData::kBytes)),
        x_at(arena.place(kCols * 8 * 4)),
        middle_at(arena.place(kCols * 8 * 4)),
        y_at(arena.place(kCols * 8 * 4)),
        handed(arena.place(64)),
        ended(arena.place(64)),
        first(a, arena, step_at),
        second(b, arena, step_at) {
    const uint32_t x = first.boundary(x_at, true, kCols), to = first.boundary(middle_at, false, kCols);
    EXPECT_EQ(first.op(MH_OP_SCALE, &two_, {}, {x}, {to}), MH_OK) << first.error.text;
    first.signal(handed);
    const uint32_t from = second.boundary(middle_at, true, kCols), y = second.boundary(y_at, false, kCols);
    const uint32_t inner = second.value(kCols);
    second.wait(handed);
    EXPECT_EQ(second.op(MH_OP_SCALE, &two_, {}, {from}, {inner}), MH_OK);
    EXPECT_EQ(second.op(MH_OP_SCALE, &two_, {}, {inner}, {y}), MH_OK);
    second.signal(ended);
    EXPECT_EQ(first.create(), MH_OK) << first.error.text;
    EXPECT_EQ(second.create(), MH_OK) << second.error.text;
  }
  // Submits both, or the second alone; returns what the last fence says.
  int32_t step(uint32_t count, bool with_first = true) {
    ++serial;
    tokens(count).write(arena.at(step_at), serial);
    for (uint32_t i = 0; i < count * kCols; ++i) arena.at<float>(x_at)[i] = static_cast<float>(serial + i);
    EXPECT_EQ(second.submit(), MH_OK) << second.error.text;
    if (!with_first) return MH_TIMEOUT;
    EXPECT_EQ(first.submit(), MH_OK) << first.error.text;
    return last_fence();
  }
  int32_t last_fence() {
    return Services::get().table.fence_wait(nullptr, arena.at<uint64_t>(ended), serial, UINT64_C(20000000000));
  }
  void expect_right(uint32_t count) {
    for (uint32_t i = 0; i < count * kCols; ++i)
      ASSERT_EQ(arena.at<float>(y_at)[i], 8 * static_cast<float>(serial + i))
          << "element " << i << " of step " << serial;
  }
  void recover() {
    first.finish(), second.finish();
    EXPECT_EQ(first.reset(), MH_OK);
    EXPECT_EQ(second.reset(), MH_OK);
    for (uint64_t fence : {handed, ended}) __atomic_store_n(arena.at<uint64_t>(fence), serial, __ATOMIC_RELEASE);
  }

  static constexpr uint32_t kCols = 3;
  uint64_t serial = 0;
  Arena arena;
  const uint64_t step_at, x_at, middle_at, y_at, handed, ended;

 private:
  mh_embed_params two_{sizeof(mh_embed_params), 2};

 public:
  Program first, second;
};

TEST(Helper, HandsValuesFromOneDeviceToAnotherWhateverTheNumberOfTokens) {
  Device a(fake()), b(reference());
  Chain chain(a, b);
  for (uint32_t count : {1U, 8U, 3U, 8U, 2U}) {
    ASSERT_EQ(chain.step(count), MH_OK);
    chain.expect_right(count);
  }
}

TEST(Helper, CopiesBoundariesOfAMappingDeviceWhenAskedTo) {
  Device mapped(reference()), copied(reference(), {{"import", "copy"}});
  Chain chain(mapped, copied);
  ASSERT_EQ(chain.step(5), MH_OK);
  chain.expect_right(5);
  EXPECT_GT(copied.used_bytes(), mapped.used_bytes());
}

TEST(Helper, SurvivesManyStepsWithChangingCounts) {
  Device a(reference()), b(reference());
  Chain chain(a, b);
  for (uint32_t i = 0; i < 2000; ++i) ASSERT_EQ(chain.step(1 + i % 8), MH_OK);
  chain.expect_right(8);
}

TEST(Helper, PassesAFailureOnAndGoesOnAfterReset) {
  Device a(fake(), {{"backend_fake.error_at", "2"}}), b(reference());
  Chain chain(a, b);
  ASSERT_EQ(chain.step(2), MH_OK);
  EXPECT_EQ(chain.step(2), MH_INTERNAL) << "the last fence carries the code of the origin";
  EXPECT_EQ(chain.second.finish(), MH_ABORTED);
  EXPECT_EQ(chain.second.error.item, 0) << "the wait on the poisoned fence";
  EXPECT_EQ(chain.first.finish(), MH_INTERNAL);
  EXPECT_EQ(chain.first.error.item, 0);
  EXPECT_STREQ(chain.first.error.text, "injected: op call 2 failed");
  EXPECT_EQ(chain.first.submit(), MH_ABORTED) << "refused until reset";
  chain.recover();
  ASSERT_EQ(chain.step(2), MH_OK);
  chain.expect_right(2);
}

TEST(Helper, TurnsAnyExceptionIntoACode) {
  Device a(fake(), {{"backend_fake.throw_at", "1"}}), b(reference());
  Chain chain(a, b);
  EXPECT_EQ(chain.step(1), MH_INTERNAL);
  chain.recover();
  EXPECT_EQ(chain.step(1), MH_OK);
}

TEST(Helper, EndsAWaitThatNobodyAnswersWhenAborted) {
  Device a(reference()), b(reference());
  Chain chain(a, b);
  chain.step(1, false);
  EXPECT_EQ(chain.second.finish(1000000), MH_TIMEOUT);
  EXPECT_EQ(chain.second.abort(), MH_OK);
  EXPECT_EQ(chain.second.finish(), MH_ABORTED);
  EXPECT_EQ(chain.last_fence(), MH_ABORTED);
  chain.recover();
  ASSERT_EQ(chain.step(4), MH_OK);
  chain.expect_right(4);
}

TEST(Helper, EndsAnOpThatHangsWhenAborted) {
  Device a(fake(), {{"backend_fake.hang_at", "1"}}), b(reference());
  Chain chain(a, b);
  chain.step(1, false);
  EXPECT_EQ(chain.first.submit(), MH_OK);
  EXPECT_EQ(chain.first.finish(1000000), MH_TIMEOUT);
  chain.first.abort();
  EXPECT_EQ(chain.last_fence(), MH_ABORTED);
  chain.recover();
  ASSERT_EQ(chain.step(1), MH_OK);
  chain.expect_right(1);
}

TEST(Helper, RefusesAStepBeyondTheProgramsMaxima) {
  Device a(reference()), b(reference());
  Chain chain(a, b);
  tokens(9).write(chain.arena.at(chain.step_at), ++chain.serial);
  ASSERT_EQ(chain.first.submit(), MH_OK);
  EXPECT_EQ(chain.first.finish(), MH_INVALID);
}

TEST(Memory, ValuesThatNeverLiveAtOnceShareTheWorkspace) {
  Device device(reference());
  Arena arena;
  Program program(device, arena, arena.place(StepData::kBytes));
  mh_embed_params two{sizeof two, 2};
  uint32_t x = program.boundary(arena.place(8 * 64 * 4), true, 64);
  for (int i = 0; i < 10; ++i) {
    const uint32_t y = program.value(64);
    ASSERT_EQ(program.op(MH_OP_SCALE, &two, {}, {x}, {y}), MH_OK);
    x = y;
  }
  ASSERT_EQ(program.create(), MH_OK);
  EXPECT_EQ(program.workspace_bytes, 2 * 8 * 64 * 4U) << "one value read, one written";
}

// Loads a weight and a cache, creates a queue with a small and a large program; the first failure's code.
int32_t build_much(Device& device, uint64_t* promised) {
  Arena arena;
  const uint64_t step_at = arena.place(StepData::kBytes);
  Weight matrix(256, 256, std::vector<float>(256 * 256, 1));
  mh_kv_desc kv{};
  kv.size = sizeof kv, kv.layers = 2, kv.kv_heads = 1, kv.k_cols = kv.v_cols = 64,
  kv.k_format = kv.v_format = MH_FORMAT_F16;
  kv.block_tokens = 16, kv.block_count = 4;
  Program small(device, arena, step_at, {4}), large(device, arena, step_at);
  if (const int32_t code = small.cache(kv)) return code;
  for (Program* p : {&small, &large}) {
    uint32_t x = p->boundary(arena.place(8 * 256 * 4), true, 256);
    for (int i = 0; i < (p == &large ? 3 : 1); ++i) {
      const uint32_t y = p->value(256);
      if (const int32_t code = p->op(MH_OP_LINEAR, nullptr, {matrix.get()}, {x}, {y})) return code;
      x = y;
    }
    if (const int32_t code = p->create(p == &large ? &small : nullptr)) return code;
  }
  EXPECT_GT(large.workspace_bytes, small.workspace_bytes);
  *promised = small.promised_bytes + large.promised_bytes + large.workspace_bytes;
  EXPECT_EQ(device.used_bytes(), *promised);
  EXPECT_EQ(small.run(tokens(4)), MH_OK) << "the small program goes on in the workspace that grew";
  large.release();
  return MH_OK;
}

TEST(Memory, WhatIsPromisedIsAllocatedAndFitsALimitOfJustThat) {
  uint64_t promised = 0;
  {
    Device device(reference());
    ASSERT_EQ(build_much(device, &promised), MH_OK);
    EXPECT_EQ(device.used_bytes(), 0U);
  }
  const std::string all = std::to_string(promised);
  Device exact(reference(), {{"memory_limit", all.c_str()}});
  EXPECT_EQ(build_much(exact, &promised), MH_OK);
  const std::string less = std::to_string(promised - 1);
  Device tight(reference(), {{"memory_limit", less.c_str()}});
  EXPECT_EQ(build_much(tight, &promised), MH_NO_MEMORY);
  EXPECT_EQ(tight.used_bytes(), 0U);
}

TEST(Memory, EveryAllocationMayFailAndNothingIsLost) {
  Services& host = Services::get();
  uint64_t promised = 0;
  for (const mh_plugin* api : {&reference(), &fake()})
    for (const bool keep_failing : {false, true}) {
      Device device(*api);
      const uint64_t before = host.bytes;
      host.keep_failing = keep_failing;
      int64_t failures = 0;
      for (;; ++failures) {
        host.until_failure = failures;
        const int32_t code = build_much(device, &promised);
        host.until_failure = std::numeric_limits<int64_t>::max();
        EXPECT_EQ(host.bytes, before);
        EXPECT_EQ(device.used_bytes(), 0U);
        if (code == MH_OK) break;
        ASSERT_EQ(code, MH_NO_MEMORY) << "allocation " << failures;
      }
      EXPECT_EQ(failures, 7) << "a cache, four weights, two workspaces";
    }
}

class Unknown : public ::testing::Test {
 protected:
  Unknown() : matrix_(4, 4, std::vector<float>(16, 1)) {
    d.size = sizeof(mh_op_desc), d.kind = MH_OP_LINEAR, d.max_rows = 1, d.in_groups = d.out_groups = 1;
    d.in_cols[0] = d.out_cols[0] = 4, d.weight_count = 1, d.weights = &list_;
  }
  // The code of op.cost; its text must name `named`.
  int32_t cost(const char* named) {
    mh_op_cost cost{};
    cost.size = sizeof cost;
    mh_error e = fresh_error();
    const int32_t code = device_.api.op->cost(device_.raw, &d, &cost, &e);
    EXPECT_NE(std::strstr(e.text, named), nullptr) << e.text;
    return code;
  }
  Device device_{reference()};
  Weight matrix_;
  const mh_weight* list_ = matrix_.get();
  struct {
    mh_op_desc d;
    uint64_t later[4];
  } longer{};
  mh_op_desc& d = longer.d;
};

TEST_F(Unknown, KindIsUnsupportedAndNamed) {
  d.kind = 99;
  EXPECT_EQ(cost("99"), MH_UNSUPPORTED);
}
TEST_F(Unknown, FlagIsUnsupportedAndNamed) {
  d.flags = 64;
  EXPECT_EQ(cost("64"), MH_UNSUPPORTED);
}
TEST_F(Unknown, FormatIsUnsupportedAndNamed) {
  matrix_.get()->format = 77;
  EXPECT_EQ(cost("77"), MH_UNSUPPORTED);
}
TEST_F(Unknown, FormatWithoutDecoderIsUnsupportedAndNamed) {
  matrix_.get()->format = MH_FORMAT_F8_E4M3;
  EXPECT_EQ(cost("F8_E4M3"), MH_UNSUPPORTED);
}
TEST_F(Unknown, TailIsIgnoredWhenZeroAndUnsupportedOtherwise) {
  d.size = sizeof longer;
  EXPECT_EQ(cost(""), MH_OK);
  longer.later[3] = 1;
  EXPECT_EQ(cost("mh_op_desc"), MH_UNSUPPORTED);
}
TEST_F(Unknown, ShapesThatDisagreeAreInvalid) {
  d.in_cols[0] = 5;
  EXPECT_EQ(cost("[4, 5] is expected"), MH_INVALID);
}
TEST_F(Unknown, ShortDescriptionIsInvalid) {
  d.size = 8;
  EXPECT_EQ(cost("8 bytes"), MH_INVALID);
}
TEST_F(Unknown, SizesThatOverflowAreInvalid) {
  matrix_.get()->rows = UINT64_MAX / 2;
  EXPECT_EQ(cost("2^64"), MH_INVALID);
}

TEST(Open, NamesTheOptionThatItDoesNotKnow) {
  const mh_option option{"backend_reference.colour", "red"};
  mh_device_spec spec{};
  spec.size = sizeof spec, spec.option_count = 1, spec.options = &option;
  mh_device* device = nullptr;
  mh_error e = fresh_error();
  EXPECT_EQ(reference().device->open(&spec, &device, &e), MH_INVALID);
  EXPECT_NE(std::strstr(e.text, "backend_reference.colour"), nullptr) << e.text;
  EXPECT_EQ(device, nullptr);
}

}  // namespace
}  // namespace sdk_test

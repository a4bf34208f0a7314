// backend_fake: a device for tests that misbehaves on demand. It computes with the ops of the reference, but in an
// address space of its own: nothing is zero copy, boundaries are staged inside its programs.
//
// Devices, fixed because core asks for the facts of a device before it opens it with options:
//   fake:0, fake:1  wait and signal inside programs
//   fake:2          signals, but cannot wait; fake:3 can do neither (core relays)
// Options (all numbers; op calls are counted from 1 over the life of the handle, 0 is never):
//   memory_limit              bytes; an allocation beyond is MH_NO_MEMORY with the numbers
//   backend_fake.latency_us   every op call takes this much longer
//   backend_fake.error_at     op call N returns an error instead of working
//   backend_fake.throw_at     op call N throws something that is no std::exception
//   backend_fake.nan_at       op call N works, then writes NaN to its first output
//   backend_fake.hang_at      op call N does not return until the queue is aborted
//   backend_fake.lie_memory   op.cost promises this many bytes less than load takes
#include <chrono>
#include <thread>

#include "backend.h"

namespace {

class Fake final : public reference::Backend {
 public:
  static constexpr const char* kId = "backend_fake";
  static constexpr const char* kOptions[] = {"backend_fake.latency_us",
                                             "backend_fake.error_at",
                                             "backend_fake.throw_at",
                                             "backend_fake.nan_at",
                                             "backend_fake.hang_at",
                                             "backend_fake.lie_memory",
                                             nullptr};
  static uint32_t count() { return 4; }
  static void info(uint32_t index, mh_device_info& out) {
    out.features = index < 2 ? MH_DEVICE_WAITS | MH_DEVICE_SIGNALS : index == 2 ? uint32_t{MH_DEVICE_SIGNALS} : 0;
    std::snprintf(out.name, sizeof out.name, "fake device %u", index);
    std::snprintf(out.uuid, sizeof out.uuid, "fake-%u", index);
  }

  explicit Fake(const mh_device_spec& spec)
      : reference::Backend(spec),
        latency_us_(mh::number_option(spec, "backend_fake.latency_us", 0)),
        error_at_(mh::number_option(spec, "backend_fake.error_at", 0)),
        throw_at_(mh::number_option(spec, "backend_fake.throw_at", 0)),
        nan_at_(mh::number_option(spec, "backend_fake.nan_at", 0)),
        hang_at_(mh::number_option(spec, "backend_fake.hang_at", 0)),
        lie_bytes_(mh::number_option(spec, "backend_fake.lie_memory", 0)) {}

  mh_op_cost cost(const mh_op_desc& desc) override {
    mh_op_cost cost = reference::Backend::cost(desc);
    cost.resident_bytes -= std::min(cost.resident_bytes, lie_bytes_);
    return cost;
  }

  void run(const mh::Op& op, const mh::Call& call) override {
    const uint64_t n = ++calls_;
    if (latency_us_) std::this_thread::sleep_for(std::chrono::microseconds(latency_us_));
    if (n == error_at_) mh::fail(MH_INTERNAL, "injected: op call ", n, " failed");
    if (n == throw_at_) throw n;
    if (n == hang_at_) {
      while (!call.aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      mh::fail(MH_ABORTED, "injected: op call ", n, " hung until the abort");
    }
    reference::Backend::run(op, call);
    if (n == nan_at_) fill_with_nan(call.out[0]);
  }

 private:
  static void fill_with_nan(const mh::View& y) {
    for (uint32_t r = 0; r < y.rows; ++r)
      for (uint32_t g = 0; g < y.groups; ++g) std::fill_n(y.row(r, g), y.cols, std::numeric_limits<float>::quiet_NaN());
  }

  const uint64_t latency_us_, error_at_, throw_at_, nan_at_, hang_at_, lie_bytes_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace

MH_PLUGIN(Fake)

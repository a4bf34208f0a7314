// The ops of the CPU backend, one function each, and what they share. Baseline code: what needs a newer CPU goes
// through the kernel table.
//
// Letters: T tokens, D model_dim, I input width, O output width, H heads, C columns of a head, E experts, K experts per
// token, F expert_dim.
#pragma once
#include "moehost/device.hpp"
#include "moehost/paged_kv.hpp"
#include "moehost/stored_op.hpp"
#include "plugins/cpu/kernels.h"
#include "plugins/cpu/thread_pool.h"
#include "plugins/cpu/weights.h"

namespace mh_cpu {

using mh::Call;
using mh::View;

// What an op runs on.
struct Cpu {
  const KernelTable& kernels;
  ThreadPool& pool;
  uint32_t batch_size;  // tokens that experts and ffn take at a time
};

// linear.cpp
void embed(const Cpu& cpu, const mh::StoredOp& op, const Call& call);
void linear(const Cpu& cpu, const PackedOp& op, const Call& call);
void head_linear(const Cpu& cpu, const PackedOp& op, const Call& call);
uint64_t linear_scratch(const Cpu& cpu, const mh_op_desc& desc);
// experts.cpp
void experts(const Cpu& cpu, const PackedOp& op, const Call& call);
void ffn(const Cpu& cpu, const PackedOp& op, const Call& call);
uint64_t network_scratch(const Cpu& cpu, const mh_op_desc& desc);
// attention.cpp
void attention(const Cpu& cpu, const PackedOp& op, const Call& call);
uint64_t attention_scratch(const Cpu& cpu, const mh_op_desc& desc);
// route.cpp
void route(const Cpu& cpu, const PackedOp& op, const Call& call);
uint64_t route_scratch(const Cpu& cpu, const mh_op_desc& desc);
// row_ops.cpp
void rms_norm(const Cpu& cpu, const PackedOp& op, const Call& call);
void rope(const Cpu& cpu, const PackedOp& op, const Call& call);
uint64_t rope_scratch(const Cpu& cpu, const mh_op_desc& desc);
void activate(const Cpu& cpu, const PackedOp& op, const Call& call);
void gate(const Cpu& cpu, const PackedOp& op, const Call& call);
void add(const Cpu& cpu, const PackedOp& op, const Call& call);
void scale(const Cpu& cpu, const PackedOp& op, const Call& call);
void take_rows(const Cpu& cpu, const PackedOp& op, const Call& call);

// Hands out arrays of an op's scratch memory. Without memory it only counts, so that the size and the use of scratch
// are one piece of code.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* array(uint64_t count) {
    T* const result = reinterpret_cast<T*>(memory_ ? memory_ + bytes_ : nullptr);
    bytes_ = mh::checked_add(bytes_, mh::align_up(mh::checked_mul(count, sizeof(T))));
    return result;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  uint64_t bytes_ = 0;
};

inline uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Calls f(row, thread) for rows [0, rows), on all threads where that is worth a hand-off. work: floats touched a row.
template <class F>
void for_rows(const Cpu& cpu, uint32_t rows, uint64_t work, const F& f) {
  constexpr uint64_t kWorthwhile = 16384;  // about 5 microseconds
  if (rows * work < kWorthwhile) {
    for (uint32_t r = 0; r < rows; ++r) f(r, 0);
    return;
  }
  const uint32_t step = static_cast<uint32_t>(std::max<uint64_t>(1, kWorthwhile / 2 / std::max<uint64_t>(work, 1)));
  cpu.pool.run(ceil_div(rows, step), [&](uint32_t piece, uint32_t thread) {
    for (uint32_t r = piece * step; r < std::min(rows, (piece + 1) * step); ++r) f(r, thread);
  });
}

}  // namespace mh_cpu

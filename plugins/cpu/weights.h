// Weights of an op as the CPU backend keeps them: matrices packed for the kernels, vectors as f32.
#pragma once
#include <array>

#include "moehost/device.hpp"
#include "plugins/cpu/pack.h"
#include "plugins/cpu/thread_pool.h"

namespace mh_cpu {

// A packed matrix [rows, cols] of every slab.
struct Matrix {
  const uint8_t* data = nullptr;  // null: absent
  uint32_t format = 0;            // index in MH_CPU_FORMATS
  uint32_t rows = 0, cols = 0, groups = 0, slabs = 0;
  uint64_t group_bytes = 0;
  explicit operator bool() const { return data != nullptr; }
  const uint8_t* group(uint32_t slab, uint32_t g) const { return data + (uint64_t{slab} * groups + g) * group_bytes; }
};

// A vector [cols] of every slab.
struct Vector {
  const float* data = nullptr;  // null: absent
  uint32_t cols = 0;
  explicit operator bool() const { return data != nullptr; }
  const float* slab(uint32_t index) const { return data + uint64_t{index} * cols; }
};

class PackedOp : public mh::Op {
 public:
  // Throws MH_UNSUPPORTED for a weight that cannot be kept: the format, or scales beside it.
  static void check(const mh_op_desc& desc);
  // What the constructor charges to the account.
  static uint64_t resident_bytes(const mh_op_desc& desc);
  // Packs on all threads of the pool.
  PackedOp(const mh_op_desc& desc, mh::MemoryAccount& account, ThreadPool& pool);

  // By slot; false where the description has none, or something of the other sort.
  const Matrix& matrix(uint32_t slot) const { return matrices_[slot]; }
  const Vector& vector(uint32_t slot) const { return vectors_[slot]; }
  // By global expert id: the slot that holds it, or -1. Of experts.
  int32_t slot_of(int32_t expert) const {
    return expert >= 0 && static_cast<size_t>(expert) < slots_.size() ? slots_[static_cast<size_t>(expert)] : -1;
  }

 private:
  static constexpr size_t kSlots = MH_DOWN_BIAS + 1;
  mh::HostMemory memory_;
  std::array<Matrix, kSlots> matrices_{};
  std::array<Vector, kSlots> vectors_{};
  std::vector<int32_t> slots_;
};

}  // namespace mh_cpu

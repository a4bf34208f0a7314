// An op under test: its description, its data, and its mathematics in f64, written here and nowhere else.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "random.h"
#include "step.h"
#include "weight.h"

namespace conform {

// Shape of an input or output. rows: MH_ROWS_*, format: F32 or I32.
struct Shape {
  uint32_t rows = MH_ROWS_TOKENS, groups = 1, cols = 0, format = MH_FORMAT_F32;
  uint32_t width() const { return groups * cols; }
};

// Contents of an input, [rows, width]: one of the two, by format.
struct Matrix {
  std::vector<float> reals;
  std::vector<int32_t> ids;
};

// A right answer with its error bars. bound: of f32 arithmetic, from reduction length and magnitude. noise: standard
// deviation of what rounding activations to 8 bit adds, where a device may do that (weights in block formats).
struct Number {
  double value = 0, bound = 0, noise = 0;
};
struct Answer {
  std::vector<Number> reals;
  std::vector<int32_t> ids;
};

class Op {
 public:
  virtual ~Op() = default;
  Op(const Op&) = delete;

  std::string name;  // "linear/Q4_K"
  uint32_t kind = 0, flags = 0;
  std::vector<Shape> inputs, outputs;

  // The description, without data (for costs) or with (for load). `this` owns what it points to.
  mh_op_desc describe(bool with_data, const Limits& limits);
  // The cache that the op needs, or nullptr.
  virtual const mh_kv_desc* kv_desc() const { return nullptr; }
  virtual void set_kv(mh_kv*) {}
  // False for an op with state: it runs once a step.
  virtual bool repeatable() const { return true; }

  // A step of exactly `rows` tokens. An op with state moves on with every call.
  virtual Step next_step(Random& random, uint32_t rows);
  // Input k of the step; by default normal numbers.
  virtual std::vector<Matrix> fill(Random& random, const Step& step);
  // One answer an output. Called once for a step, in order.
  virtual std::vector<Answer> expect(const Step& step, const std::vector<Matrix>& in) = 0;

  // Overwrites the weights: a device that still reads them gives wrong numbers.
  void scrub_weights();

 protected:
  explicit Op(uint32_t op_kind) : kind(op_kind) {}
  // Slot of the next weight is the order of calls.
  Weight* add_weight(std::unique_ptr<Weight> weight);
  virtual const void* params(bool with_data) const {
    static_cast<void>(with_data);
    return nullptr;
  }

  std::vector<std::unique_ptr<Weight>> weights_;  // by slot, null: absent
  double input_scale_ = 1;                        // keeps results near 1

 private:
  std::vector<const mh_weight*> weight_list_[2];  // without and with data
};

// A kind with a format or variant. make: sliced asks for weights that are slices of larger ones.
struct OpVariant {
  std::string name;
  bool has_weights = false;
  std::function<std::unique_ptr<Op>(Random& random, bool sliced)> make;
};
// The variants of a source file, and all of them.
std::vector<OpVariant> row_ops();
std::vector<OpVariant> matrix_ops();
std::vector<OpVariant> expert_ops();
std::vector<OpVariant> attention_ops();
std::vector<OpVariant> all_ops();

// Bound of a sum of n f32 products, whose magnitudes add up to `magnitude`, in any order.
double sum_bound(double n, double magnitude);
// y = W x + b, with error bars carried through. x: [cols of w]; bias may be null.
std::vector<Number> multiply(const Weight& w, uint32_t slab, const Number* x, const Weight* bias, uint32_t bias_slab);
// act(a) * b, or act(a) when b is null.
Number activate(const mh_activation& activation, const Number& a, const Number* b);
double sigmoid(double x);
std::vector<Number> exact(const float* values, size_t count);

constexpr uint32_t kVocabulary = 96;  // token ids in steps are below

}  // namespace conform

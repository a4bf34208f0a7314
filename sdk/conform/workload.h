// A small op that the device supports, in a program that runs: what cases about queues and time work with.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "job.h"

namespace conform {

// The op is the first of linear, experts and everything else in f32 that the device takes. Rows are independent of each
// other, and the right answer of every row is known, so that any number of tokens can be checked.
class Workload {
 public:
  static constexpr uint32_t kTokens = 8;
  Workload(const Context& context, const std::string& name);
  Session& session() { return session_; }
  Op& op() { return *op_; }
  LoadedOp& loaded() { return *loaded_; }
  Random& random() { return random_; }
  const Limits& limits() const { return limits_; }

  // The usual program, [wait go] op [signal done], with its inputs in place for kTokens rows.
  Job& job() { return op_job_->job(); }
  OpJob& op_job() { return *op_job_; }
  StepBlock& block() { return op_job_->step_block(); }
  const Fence& go() const { return op_job_->go(); }
  const Fence& done() const { return op_job_->done(); }

  // A step of the first `tokens` rows of the known data.
  Step step(uint32_t tokens) const;
  // Inputs for rows of a step, and the check of what came out.
  const std::vector<Matrix>& inputs() const { return inputs_; }
  void check_output(const std::vector<Matrix>& got, uint32_t tokens, const std::string& where) const;
  void end();

 private:
  Random random_;
  Limits limits_;
  Session session_;
  std::unique_ptr<Op> op_;
  std::unique_ptr<LoadedOp> loaded_;
  std::unique_ptr<OpJob> op_job_;
  Step whole_;
  std::vector<Matrix> inputs_;
  std::vector<Answer> right_;
};

}  // namespace conform

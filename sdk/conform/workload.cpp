// Choosing the op, and its known rows.
#include "workload.h"

#include <algorithm>

#include "compare.h"

namespace conform {
namespace {

std::unique_ptr<Op> choose(const Session& session, Random& random, const Limits& limits) {
  std::vector<OpVariant> variants = all_ops();
  std::stable_partition(variants.begin(), variants.end(),
                        [](const OpVariant& v) { return v.name == "linear/F32" || v.name == "experts/F32"; });
  for (const OpVariant& variant : variants) {
    auto op = variant.make(random, false);
    const bool fits = op->repeatable() && !op->inputs.empty() && op->outputs[0].rows == MH_ROWS_TOKENS;
    if (fits && supports(session, *op, limits)) return op;
  }
  skip("no op is supported that computes rows of tokens");
}

}  // namespace

Workload::Workload(const Context& context, const std::string& name)
    : random_(context.seed, name), limits_{kTokens, kTokens, 2}, session_(context) {
  op_ = choose(session_, random_, limits_);
  loaded_ = std::make_unique<LoadedOp>(session_, *op_, limits_);
  op_job_ = std::make_unique<OpJob>(session_, *loaded_, limits_, 1, 0);
  whole_ = op_->next_step(random_, kTokens);
  inputs_ = op_->fill(random_, whole_);
  op_job_->put(whole_, 0, inputs_);
  right_ = op_->expect(whole_, inputs_);
}

Step Workload::step(uint32_t tokens) const {
  Step step = plain_step(tokens);
  std::copy_n(whole_.token_ids.begin(), tokens, step.token_ids.begin());
  std::copy_n(whole_.positions.begin(), tokens, step.positions.begin());
  return step;
}

void Workload::check_output(const std::vector<Matrix>& got, uint32_t tokens, const std::string& where) const {
  Worst worst;
  compare(cat(where, " (", op_->name, ", ", tokens, " tokens)"), *op_, right_, got, worst);
}

void Workload::end() {
  op_job_->job().free();
  loaded_->free();
  session_.end();
}

}  // namespace conform

// Numbers: every op and format against the f64 mathematics of ops_*.cpp, with sentinels around all that is written.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "case.h"
#include "compare.h"
#include "job.h"

namespace conform {
namespace {

// How the op's values lie in memory.
enum class Layout { kPlain, kSliced, kWindows };
constexpr uint64_t kPaddingBytes = 80;
constexpr uint32_t kWindowSlots = 3;

std::vector<uint32_t> row_counts(const Context& context, Layout layout) {
  if (layout == Layout::kWindows) return {7, 64};
  if (context.quick) return {1, 7, 64, 3};
  return {1, 7, 64, 512, 3};
}

void check_slices(const LoadedOp& loaded, Op& op) {
  const uint32_t align = loaded.cost().slice_align;
  const bool columns = op.kind == MH_OP_EXPERTS || op.kind == MH_OP_FFN;
  if (!columns && op.kind != MH_OP_LINEAR) return;
  if (align == 0) skip("op.cost says slice_align 0: no cuts");
  const uint32_t cut = columns ? 256 : 64;
  if (cut % align) skip("slices here are multiples of ", cut, ", slice_align is ", align);
}

void run_variant(const Context& context, const OpVariant& variant, Layout layout) {
  Random random(context.seed, variant.name);
  const auto op = variant.make(random, layout == Layout::kSliced);
  const bool windows = layout == Layout::kWindows;
  const auto rows_of_steps = row_counts(context, layout);
  const uint32_t most = *std::max_element(rows_of_steps.begin(), rows_of_steps.end());
  const Limits limits{most, most};
  Session session(context);
  LoadedOp loaded(session, *op, limits);
  if (layout == Layout::kSliced) check_slices(loaded, *op);
  OpJob job(session, loaded, limits, windows ? kWindowSlots : 1, layout == Layout::kPlain ? 0 : kPaddingBytes);
  if (!loaded.cost().retains_source) op->scrub_weights();
  Worst worst;
  for (const uint32_t rows : rows_of_steps) {
    const Step step = op->next_step(random, rows);
    std::vector<std::vector<Answer>> right;
    for (uint32_t i = 0; i < job.instances(); ++i) {
      const auto in = op->fill(random, step);
      job.put(step, i, in);
      right.push_back(op->expect(step, in));
    }
    job.run(step);
    std::vector<std::vector<Matrix>> first;
    for (uint32_t i = 0; i < job.instances(); ++i) first.push_back(job.get(step, i));
    job.run(step);
    for (uint32_t i = 0; i < job.instances(); ++i) {
      const std::string where = cat(rows, " tokens", windows ? cat(", window ", i) : "");
      compare(where, *op, right[i], first[i], worst);
      require(same_bits(first[i], job.get(step, i)), where, ": the same step gave other bits the second time");
    }
  }
  note(worst.text());
  job.job().free();
  loaded.free();
  session.end();
}

// Rows of a step, in an order, as a step of their own.
Step select(const Step& step, const std::vector<uint32_t>& rows) {
  Step out = plain_step(static_cast<uint32_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    out.token_ids[i] = step.token_ids[rows[i]];
    out.positions[i] = step.positions[rows[i]];
  }
  return out;
}
std::vector<Matrix> select(const std::vector<Matrix>& in, const std::vector<Shape>& shapes,
                           const std::vector<uint32_t>& rows) {
  std::vector<Matrix> out(in.size());
  for (size_t k = 0; k < in.size(); ++k)
    for (const uint32_t r : rows) {
      const size_t from = size_t{r} * shapes[k].width(), to = from + shapes[k].width();
      if (!in[k].reals.empty())
        out[k].reals.insert(out[k].reals.end(), in[k].reals.begin() + from, in[k].reals.begin() + to);
      if (!in[k].ids.empty()) out[k].ids.insert(out[k].ids.end(), in[k].ids.begin() + from, in[k].ids.begin() + to);
    }
  return out;
}

// An op described as strict computes a row from that row alone: whole batch, parts of it, other order, same bits.
void run_strict(const Context& context, const OpVariant& variant) {
  Random random(context.seed, variant.name + "/strict");
  const auto op = variant.make(random, false);
  op->flags = MH_STRICT;
  constexpr uint32_t kRows = 70;
  const Limits limits{kRows, kRows};
  Session session(context);
  LoadedOp loaded(session, *op, limits);
  OpJob job(session, loaded, limits, 1, 0);
  const Step step = op->next_step(random, kRows);
  const auto in = op->fill(random, step);
  job.put(step, 0, in);
  job.run(step);
  const auto whole = job.get(step, 0);
  std::vector<uint32_t> order(kRows);
  for (uint32_t r = 0; r < kRows; ++r) order[r] = r;
  random.shuffle(order);
  uint32_t from = 0;
  for (const uint32_t count : {1U, 2U, 5U, 16U, 33U}) {
    const std::vector<uint32_t> rows(order.begin() + from, order.begin() + from + count);
    from += count;
    const Step part = select(step, rows);
    job.put(part, 0, select(in, op->inputs, rows));
    job.run(part);
    require(same_bits(select(whole, op->outputs, rows), job.get(part, 0)), op->name,
            " described as strict: rows in a batch of ", count, " differ from the same rows in a batch of ", kRows);
  }
  job.job().free();
  loaded.free();
  session.end();
}

// A strict prompt gives the same bits in one piece and in chunks.
void run_strict_chunks(const Context& context) {
  Random random(context.seed, "strict_chunks");
  const auto op = attention_ops().front().make(random, false);
  op->flags = MH_STRICT;
  const Limits limits;
  Session session(context);
  LoadedOp loaded(session, *op, limits);
  OpJob job(session, loaded, limits, 1, 0);
  constexpr uint32_t kPrompt = 96, kBlocks = 6;
  Step whole = plain_step(kPrompt);
  const auto in = op->fill(random, whole);
  std::vector<Matrix> first;
  int32_t next_block = 0;
  for (const uint32_t chunk : {kPrompt, 1U, 2U, 7U, 16U, 33U}) {
    std::vector<int32_t> blocks;
    for (uint32_t b = 0; b < kBlocks; ++b) blocks.push_back(next_block++);
    std::vector<Matrix> joined(1);
    for (uint32_t at = 0; at < kPrompt; at += chunk) {
      const uint32_t count = std::min(chunk, kPrompt - at);
      Step step;
      step.add_sequence(count, at);
      step.groups.resize(op->kv_desc()->group + 1);
      step.groups.back().table = blocks;
      std::vector<uint32_t> rows;
      for (uint32_t r = at; r < at + count; ++r) rows.push_back(r);
      job.put(step, 0, select(in, op->inputs, rows));
      job.run(step);
      const auto out = job.get(step, 0);
      joined[0].ids.insert(joined[0].ids.end(), out[0].ids.begin(), out[0].ids.end());
    }
    if (first.empty()) first = joined;
    require(same_bits(first, joined), "strict attention: a prompt of ", kPrompt, " tokens in chunks of ", chunk,
            " gives other bits than in one piece");
  }
  job.job().free();
  loaded.free();
  session.end();
}

// x is carried from op to op by values inside the program: fusion and workspace.
void run_chain(const Context& context) {
  Random random(context.seed, "chain");
  const Limits limits{64, 64, 4};
  Session session(context);
  const uint32_t model_dim = 136;
  std::vector<std::unique_ptr<Op>> ops;
  for (const OpVariant& variant : all_ops()) {
    auto op = variant.make(random, false);
    const bool fits = op->repeatable() && !op->inputs.empty() && op->inputs[0].width() == model_dim &&
                      op->outputs[0].width() == model_dim && op->outputs[0].rows == MH_ROWS_TOKENS &&
                      op->kind != MH_OP_ADD;
    if (fits && supports(session, *op, limits)) ops.push_back(std::move(op));
  }
  if (ops.empty()) skip("no op with f32 weights from [T, ", model_dim, "] to [T, ", model_dim, "]");
  StepBlock block(session.arena, limits);
  Job job(session, session.queue, limits, block);
  const Shape shape{MH_ROWS_TOKENS, 1, model_dim};
  const auto region = [&](const Shape& s) { return session.arena.place_rows(limits.tokens, s.width() * 4, 0); };
  const Fence done = session.arena.place_fence();
  const Step step = ops[0]->next_step(random, limits.tokens);
  const Region x_region = region(shape), y_region = region(shape);
  uint32_t x = job.boundary(shape, x_region, true);
  std::vector<float> carried = random.normals(size_t{limits.tokens} * model_dim, 1);
  std::copy(carried.begin(), carried.end(), session.arena.at<float>(x_region.offset));
  std::vector<LoadedOp> loaded;
  for (size_t i = 0; i < ops.size(); ++i) {
    loaded.emplace_back(session, *ops[i], limits);
    auto in = ops[i]->fill(random, step);
    std::vector<uint32_t> inputs{x};
    for (size_t k = 1; k < in.size(); ++k) {
      const Region other = region(ops[i]->inputs[k]);
      inputs.push_back(job.boundary(ops[i]->inputs[k], other, true));
      const bool ids = ops[i]->inputs[k].format == MH_FORMAT_I32;
      const void* from = ids ? static_cast<const void*>(in[k].ids.data()) : in[k].reals.data();
      std::memcpy(session.arena.base() + other.offset, from, size_t{limits.tokens} * other.width_bytes);
    }
    in[0].reals = carried;
    const auto right = ops[i]->expect(step, in);
    std::transform(right[0].reals.begin(), right[0].reals.end(), carried.begin(),
                   [](const Number& n) { return static_cast<float>(n.value); });
    x = i + 1 == ops.size() ? job.boundary(shape, y_region, false) : job.value(shape);
    job.op(loaded.back(), inputs, {x});
  }
  job.signal(done);
  job.create();
  const uint64_t serial = session.next_serial();
  block.write(step, serial);
  job.run(serial, done);
  // Errors of one op pass through the next ones: some digits fewer than a single op.
  double largest = 0;
  for (const float v : carried) largest = std::max(largest, std::fabs(double{v}));
  for (size_t i = 0; i < carried.size(); ++i) {
    const float got = session.arena.at<float>(y_region.offset)[i];
    require(std::fabs(got - carried[i]) <= 0x1p-14 * largest, ops.size(), " ops in a row: row ", i / model_dim,
            ", column ", i % model_dim, " is ", got, ", right is ", carried[i]);
  }
  note(ops.size(), " ops in one program");
}

const char* layout_name(Layout layout) {
  return layout == Layout::kPlain ? "" : layout == Layout::kSliced ? "/sliced" : "/windows";
}

}  // namespace

std::vector<Case> numbers_cases() {
  std::vector<Case> cases;
  for (const OpVariant& variant : all_ops())
    for (const Layout layout : {Layout::kPlain, Layout::kSliced, Layout::kWindows}) {
      if (layout == Layout::kSliced && !variant.has_weights) continue;
      cases.push_back({"numbers", variant.name + layout_name(layout),
                       [variant, layout](const Context& context) { run_variant(context, variant, layout); }});
    }
  for (const OpVariant& variant : all_ops())
    if (variant.name.rfind("attention", 0) != 0 && variant.name != "take_rows" &&
        variant.name.find("output_rows") == std::string::npos)
      cases.push_back(
          {"numbers", variant.name + "/strict", [variant](const Context& context) { run_strict(context, variant); }});
  cases.push_back({"numbers", "attention/strict_chunks", run_strict_chunks});
  cases.push_back({"numbers", "chain", run_chain});
  return cases;
}

}  // namespace conform

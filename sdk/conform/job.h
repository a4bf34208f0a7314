// A program being built and run; on a device that cannot wait or signal, a program a segment and a relay.
#pragma once
#include <deque>
#include <thread>
#include <vector>

#include "session.h"

namespace conform {

class Job {
 public:
  Job(Session& session, mh_queue* queue, const Limits& limits, const StepBlock& step);
  ~Job() { join(); }

  uint32_t value(const Shape& shape);
  // groups x cols of a root, `offset` elements into its row.
  uint32_t window(uint32_t root, const Shape& shape, uint32_t group_stride, uint32_t offset);
  uint32_t boundary(const Shape& shape, const Region& region, bool is_input);
  void op(const LoadedOp& op, std::vector<uint32_t> inputs, std::vector<uint32_t> outputs);
  void wait(const Fence& fence);
  void signal(const Fence& fence);
  // The description so far, as one program. with_objects: buffers, fences' lines and ops, as program_create wants it.
  mh_program_desc describe(bool with_objects);
  mh_program_cost cost();
  // Creates the program or, to be relayed, the programs. Costs of several are the largest of each.
  void create();
  void free();

  // Submits one run of the step with this serial, and returns; the relay goes on in a thread.
  void submit(uint64_t serial);
  // As submit; the code that the plugin answers. Not for a relay.
  int32_t try_submit(mh_error* error);
  void join();  // the relay thread
  // submit, then until `last` is reached; fails the case on an error or after 30 s.
  void run(uint64_t serial, const Fence& last);
  const mh_program_cost& promised() const { return promised_; }

 private:
  struct Action {  // of a relay
    uint32_t what;
    Fence fence;
    mh_program* program;
  };
  void create_segment(uint32_t first, uint32_t count);
  mh_program_desc describe_items(uint32_t first, uint32_t count, bool with_objects);
  mh_program_cost cost_of(const mh_program_desc& desc);
  void relay(uint64_t serial);

  Session& session_;
  mh_queue* queue_;
  Limits limits_;
  uint64_t step_offset_;
  std::vector<mh_value> values_;
  std::vector<mh_binding> bindings_;
  std::vector<mh_fence> fences_;
  std::vector<Fence> lines_;
  std::vector<mh_item> items_;
  std::deque<std::vector<uint32_t>> indices_;
  std::deque<mh_op_desc> descs_;
  std::vector<mh_program*> programs_;
  std::vector<Action> actions_;
  mh_program_cost promised_{};
  std::thread relay_;
  // Copies without objects, for cost.
  std::vector<mh_binding> bare_bindings_;
  std::vector<mh_fence> bare_fences_;
  std::vector<mh_item> bare_items_;
};

// The usual job of one op: every input and output a boundary, [wait go] op [signal done].
class OpJob {
 public:
  // slots: how many values share a root side by side; instances of the op read and write one each. padding_bytes:
  // between the rows of a boundary.
  OpJob(Session& session, const LoadedOp& op, const Limits& limits, uint32_t slots, uint64_t padding_bytes);
  uint32_t instances() const { return instances_; }
  void put(const Step& step, uint32_t instance, const std::vector<Matrix>& inputs);
  // Runs the step and checks that nothing but its outputs was written.
  void run(const Step& step);
  // The outputs of the last run.
  std::vector<Matrix> get(const Step& step, uint32_t instance) const;
  Job& job() { return job_; }
  StepBlock& step_block() { return block_; }
  const Fence& go() const { return go_; }
  const Fence& done() const { return done_; }
  const std::vector<Region>& outputs() const { return output_regions_; }

 private:
  // Element (row 0, group 0, col 0) of the value that an instance uses, and the elements from group to group.
  struct Place {
    uint64_t offset, row_stride_bytes;
    uint32_t group_stride;
  };
  Place place(const Region& region, const Shape& shape, uint32_t instance) const;
  uint32_t slot(uint32_t instance) const;

  Session& session_;
  const Op& op_;
  uint32_t slots_, instances_;
  StepBlock block_;
  Job job_;
  Fence go_, done_;
  std::vector<Region> input_regions_, output_regions_;
};

}  // namespace conform

// The engine: a model file and a config become something that answers. Floor 5.
//
// Engine::load opens the devices, plans, loads the weights and compiles the programs; then generate() and logits() run,
// one call at a time (a caller waits for the one before). All functions are thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/config/config.h"
#include "core/engine/sampler.h"
#include "core/placement/plan.h"
#include "core/text/tokenizer.h"

namespace moehost {

// How far loading is.
struct LoadProgress {
  uint64_t bytes_done = 0, bytes_total = 0;  // of weights
  double seconds = 0;
};

// One call of generate(): a prompt and how to continue it.
struct GenerateRequest {
  std::vector<TokenId> prompt;  // not empty
  uint32_t max_tokens = 256;
  SamplingParams sampling;
  bool ignore_end = false;  // go on after end-of-text tokens (benchmarks, tests)
};
struct GenerateTimings {
  double prefill_s = 0, decode_s = 0;
  uint32_t prompt_tokens = 0, generated_tokens = 0;
};
// What generate() made of a request.
struct GenerateResult {
  std::vector<TokenId> ids;   // generated, without the end token
  std::string text;           // of ids
  std::string finish_reason;  // "stop" | "length" | "cancelled"
  GenerateTimings timings;
};
// Called on the calling thread, in order, with every generated token and the text that became certain (may be empty).
// id is -1 between the chunks of a long prompt (no text) and for text that only the end made certain. Returns false to
// cancel.
using TokenCallback = std::function<bool(TokenId id, const std::string& text)>;

// Facts of the loaded model, for people and for /v1/models.
struct ModelSummary {
  std::string name, architecture, path;
  uint32_t layers = 0, vocab_size = 0, context_length = 0, experts = 0, experts_per_token = 0;
  uint64_t weight_bytes = 0;
};

// Where the engine finds plugins besides the config: tests add folders.
struct EngineOptions {
  std::string plugin_folder;  // empty: config's, else default_plugin_folder()
  std::vector<std::string> extra_plugin_folders;
  double step_timeout_s = 600;                           // a step later than this is aborted
  std::function<void(const LoadProgress&)> on_progress;  // from load(), a few times a second
  std::function<void(const Plan&)> on_plan;              // from load(), before weights are read
  const std::atomic<bool>* cancel = nullptr;             // set from anywhere: load() and generate() end soon
};

// A loaded model. See the top of the file.
class Engine {
 public:
  // Places the model without reading weights. A plan that does not fit is a result, not an error.
  static Result<Plan> plan(const Config& config, const EngineOptions& options = {});
  // kBadModel, kUnavailable, kNoResource (does not fit: all problems with numbers), kBadConfig (map that matches
  // nothing), kInterrupted.
  static Result<std::unique_ptr<Engine>> load(const Config& config, const EngineOptions& options = {});
  ~Engine();

  const Plan& plan() const;
  const ModelSummary& model() const;
  const Tokenizer* tokenizer() const;  // null: the file has none, or one that is not supported (the log says why)
  uint32_t max_tokens() const;         // of a sequence: prompt and answer
  // Bytes the devices report as allocated right now, by device name: equal to the plan's sums (a test holds it).
  Result<std::vector<std::pair<std::string, uint64_t>>> allocated_bytes() const;

  // Errors: kUsage (empty or too long prompt: both counts; sampling out of range), kUnavailable (a device failed: the
  // engine recovers and the next call works), cancelling is no error: finish_reason "cancelled".
  Result<GenerateResult> generate(const GenerateRequest& request, const TokenCallback& on_token = {});
  // Logits of every position: [ids, vocab] f32.
  Result<std::vector<float>> logits(std::span<const TokenId> ids);

  // The defaults of a request under this config: config's sampling, then the built-in ones.
  SamplingParams default_sampling() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The tokenizer of a GGUF file, also a vocabulary-only one. kBadModel names the key.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& model_path);

}  // namespace moehost

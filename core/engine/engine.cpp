// The engine facade: load, generate, logits.
#include "core/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "core/base/log.h"
#include "core/engine/blocks.h"
#include "core/engine/executor.h"
#include "core/engine/loader.h"
#include "core/model/architecture.h"

namespace moehost {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A model read, placed and priced, before its weights.
struct Prepared {
  GgufFile file;
  Program program;
  std::shared_ptr<Registry> registry;
  Placement placement;
};

Result<std::unique_ptr<Prepared>> prepare(const Config& config, const EngineOptions& options) {
  if (config.model.empty())
    return fail(Code::kBadConfig, "no model: name a GGUF file on the command line, or under 'model' in the config");
  MOEHOST_ASSIGN(GgufFile file, GgufFile::open(config.model));
  MOEHOST_ASSIGN(Program program, build_program(file));
  RegistryOptions plugins;
  plugins.folder =
      !options.plugin_folder.empty() ? options.plugin_folder : config.plugin_folder.value_or(default_plugin_folder());
  plugins.extra_folders = options.extra_plugin_folders;
  plugins.allowed = config.plugins;
  MOEHOST_ASSIGN(std::shared_ptr<Registry> registry, Registry::discover(plugins));
  MOEHOST_ASSIGN(Placement placement, make_placement(program, config, *registry));
  return std::unique_ptr<Prepared>(
      new Prepared{std::move(file), std::move(program), std::move(registry), std::move(placement)});
}

}  // namespace

struct Engine::State {
  Config config;
  EngineOptions options;
  std::unique_ptr<Prepared> prepared;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<BlockPool> blocks;
  std::shared_ptr<const Tokenizer> tokenizer;
  ModelSummary summary;
  std::mutex mutex;  // one call at a time

  const StepLimits& limits() const { return prepared->placement.program.limits; }
  bool cancelled() const { return options.cancel && *options.cancel; }

  Status check_ids(std::span<const TokenId> ids) const {
    if (ids.empty()) return fail(Code::kUsage, "the prompt is empty");
    for (const TokenId id : ids)
      if (id < 0 || static_cast<uint32_t>(id) >= summary.vocab_size)
        return fail(Code::kUsage, "token id ", id, " is outside the vocabulary of ", summary.vocab_size);
    if (ids.size() > limits().context_tokens)
      return fail(Code::kUsage, "the prompt has ", ids.size(), " tokens, the context holds ", limits().context_tokens);
    return {};
  }

  // Tokens at [first, first + ids) of a sequence, logits of the last `outputs` of them.
  Result<std::span<float>> step(std::span<const TokenId> ids, uint32_t first, BlockTable& table, uint32_t outputs) {
    const auto count = static_cast<uint32_t>(ids.size());
    MOEHOST_RETURN_IF_ERROR(table.grow(first + count));
    StepInput input;
    input.sequences.push_back({ids, first, table.blocks()});
    for (uint32_t i = count - outputs; i < count; ++i) input.outputs.push_back(static_cast<int32_t>(i));
    return executor->run(input);
  }

  Result<GenerateResult> generate(const GenerateRequest& request, const TokenCallback& on_token);
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<Plan> Engine::plan(const Config& config, const EngineOptions& options) {
  MOEHOST_ASSIGN(const auto prepared, prepare(config, options));
  return prepared->placement.plan;
}

Result<std::unique_ptr<Engine>> Engine::load(const Config& config, const EngineOptions& options) {
  auto state = std::make_unique<State>();
  state->config = config;
  state->options = options;
  MOEHOST_ASSIGN(state->prepared, prepare(config, options));
  Prepared& p = *state->prepared;
  if (options.on_plan) options.on_plan(p.placement.plan);
  if (!p.placement.plan.fits) {
    std::string text = "the model does not fit:";
    for (const std::string& problem : p.placement.plan.problems) text += "\n  " + problem;
    return fail(Code::kNoResource, text);
  }
  ModelSummary& s = state->summary;
  s.name = p.program.name, s.architecture = p.program.architecture, s.path = config.model;
  s.layers = p.program.layers, s.vocab_size = p.program.vocab_size, s.context_length = p.program.context_length;
  s.experts = p.program.experts, s.experts_per_token = p.program.experts_per_token;
  for (const GgufTensor& t : p.file.tensors()) s.weight_bytes += t.bytes;

  MOEHOST_ASSIGN(LoadedWeights weights, load_weights(p.placement, p.file, options));
  MOEHOST_ASSIGN(state->executor, Executor::create(p.placement, *p.registry, std::move(weights.ops),
                                                   std::move(weights.kvs), options.step_timeout_s));
  const StepLimits& l = state->limits();
  state->blocks = std::make_unique<BlockPool>(l.blocks_per_sequence() * l.max_sequences, l.block_tokens);
  if (auto tokenizer = load_tokenizer(config.model); tokenizer.ok())
    state->tokenizer = *std::move(tokenizer);
  else
    log::warning("engine", "no tokenizer: ", tokenizer.status().message());
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const Plan& Engine::plan() const { return state_->prepared->placement.plan; }
const ModelSummary& Engine::model() const { return state_->summary; }
const Tokenizer* Engine::tokenizer() const { return state_->tokenizer.get(); }
uint32_t Engine::max_tokens() const { return state_->limits().context_tokens; }

Result<std::vector<std::pair<std::string, uint64_t>>> Engine::allocated_bytes() const {
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto& device : state_->prepared->placement.program.devices) {
    MOEHOST_ASSIGN(const MemoryInfo memory, device->memory());
    out.emplace_back(device->name(), memory.used_bytes);
  }
  return out;
}

SamplingParams Engine::default_sampling() const {
  const SamplingConfig& c = state_->config.sampling;
  SamplingParams p;
  p.temperature = c.temperature.value_or(p.temperature);
  p.top_k = c.top_k.value_or(p.top_k);
  p.top_p = c.top_p.value_or(p.top_p);
  p.min_p = c.min_p.value_or(p.min_p);
  p.repetition_penalty = c.repetition_penalty.value_or(p.repetition_penalty);
  p.seed = c.seed.value_or(p.seed);
  return p;
}

Result<GenerateResult> Engine::generate(const GenerateRequest& request, const TokenCallback& on_token) {
  const std::lock_guard lock(state_->mutex);
  return state_->generate(request, on_token);
}

Result<GenerateResult> Engine::State::generate(const GenerateRequest& request, const TokenCallback& on_token) {
  MOEHOST_RETURN_IF_ERROR(check_ids(request.prompt));
  MOEHOST_RETURN_IF_ERROR(check_sampling(request.sampling));
  GenerateResult out;
  out.timings.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const auto prompt_tokens = out.timings.prompt_tokens;
  const uint32_t room = limits().context_tokens - prompt_tokens;
  const uint32_t budget = std::min(request.max_tokens, room + 1);  // the last token needs no place in the cache
  out.finish_reason = "length";
  BlockTable table(*blocks);
  std::vector<TokenId> history = request.prompt;
  Sampler sampler(request.sampling);
  std::optional<StreamDecoder> decoder;
  if (tokenizer) decoder.emplace(tokenizer);

  auto start = std::chrono::steady_clock::now();
  std::span<float> logits;
  for (uint32_t at = 0; at < prompt_tokens && budget > 0;) {
    if (cancelled() || (on_token && at > 0 && !on_token(-1, ""))) {
      out.finish_reason = "cancelled";
      return out;
    }
    const uint32_t count = std::min(limits().max_tokens, prompt_tokens - at);
    const std::span<const TokenId> chunk(request.prompt.data() + at, count);
    at += count;
    MOEHOST_ASSIGN(logits, step(chunk, at - count, table, at == prompt_tokens ? 1 : 0));
  }
  out.timings.prefill_s = seconds_since(start);
  start = std::chrono::steady_clock::now();
  while (out.ids.size() < budget) {
    MOEHOST_ASSIGN(const TokenId id, sampler.sample(logits, history));
    if (!request.ignore_end && tokenizer && tokenizer->is_end(id)) {
      out.finish_reason = "stop";
      break;
    }
    out.ids.push_back(id);
    history.push_back(id);
    const std::string text = decoder ? decoder->push(id) : std::string();
    out.text += text;
    if (cancelled() || (on_token && !on_token(id, text))) {
      out.finish_reason = "cancelled";
      break;
    }
    if (out.ids.size() == budget) break;
    MOEHOST_ASSIGN(logits, step({&history.back(), 1}, static_cast<uint32_t>(history.size() - 1), table, 1));
  }
  if (decoder) {
    const std::string rest = decoder->finish();
    out.text += rest;
    if (!rest.empty() && on_token && out.finish_reason != "cancelled") on_token(-1, rest);
  }
  out.timings.generated_tokens = static_cast<uint32_t>(out.ids.size());
  out.timings.decode_s = seconds_since(start);
  return out;
}

Result<std::vector<float>> Engine::logits(std::span<const TokenId> ids) {
  const std::lock_guard lock(state_->mutex);
  MOEHOST_RETURN_IF_ERROR(state_->check_ids(ids));
  BlockTable table(*state_->blocks);
  std::vector<float> out;
  out.reserve(ids.size() * state_->summary.vocab_size);
  for (size_t at = 0; at < ids.size();) {
    if (state_->cancelled()) return fail(Code::kInterrupted, "cancelled");
    const size_t count = std::min<size_t>(state_->limits().max_outputs, ids.size() - at);
    MOEHOST_ASSIGN(const std::span<float> rows, state_->step(ids.subspan(at, count), static_cast<uint32_t>(at), table,
                                                             static_cast<uint32_t>(count)));
    out.insert(out.end(), rows.begin(), rows.end());
    at += count;
  }
  return out;
}

}  // namespace moehost

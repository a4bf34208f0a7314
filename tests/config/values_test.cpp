// Every key: values that are taken, and values that are refused with a reason.
#include <gtest/gtest.h>

#include <functional>

#include "tests/config/helpers.h"

namespace moehost {
namespace {

using test::expect_error;
using test::joined;
using test::load;

struct Good {
  const char* text;
  std::function<bool(const Config&)> holds;
};

void expect_good(const std::vector<Good>& cases) {
  for (const Good& c : cases) {
    const ConfigResult result = load(c.text);
    EXPECT_TRUE(result.errors.empty()) << c.text << "\n" << joined(result.errors);
    EXPECT_TRUE(c.holds(result.config)) << c.text;
  }
}

std::string text_of(const Shares& shares) {
  std::string out;
  for (const auto& [device, weight] : shares) out += cat(device.text(), "=", weight, " ");
  return out;
}

TEST(ConfigValues, TakesPlainKeys) {
  expect_good({
      {"version: 1", [](const Config& c) { return c.model.empty(); }},
      {"model: a.gguf", [](const Config& c) { return c.model == "a.gguf"; }},
      {"model: 'it''s here.gguf'", [](const Config& c) { return c.model == "it's here.gguf"; }},
      {"model: \"a b\\u00e9.gguf\"", [](const Config& c) { return c.model == "a b\xc3\xa9.gguf"; }},
      {"model: /models/größe.gguf", [](const Config& c) { return c.model == "/models/größe.gguf"; }},
      {"model: no", [](const Config& c) { return c.model == "no"; }},
      {"model: 010", [](const Config& c) { return c.model == "010"; }},
      {"model: .nan", [](const Config& c) { return c.model == ".nan"; }},
      {"plugins: [backend_cuda, backend_cpu_avx512]", [](const Config& c) { return c.plugins.size() == 2; }},
      {"plugins:\n  - backend_reference\n",
       [](const Config& c) { return c.plugins == std::vector<std::string>{"backend_reference"}; }},
      {"plugin_folder: lib", [](const Config& c) { return c.plugin_folder == "lib"; }},
      {"cpu_moe_options: {num_threads: 8}", [](const Config& c) { return c.cpu_moe_options.num_threads == 8u; }},
      {"cpu_moe_options: {num_threads: auto}", [](const Config& c) { return !c.cpu_moe_options.num_threads; }},
      {"cpu_moe_options: {num_threads: \"auto\"}", [](const Config& c) { return !c.cpu_moe_options.num_threads; }},
      {"cpu_moe_options: {batch_size: 64}", [](const Config& c) { return c.cpu_moe_options.batch_size == 64; }},
      {"max_sequence_length: 32768", [](const Config& c) { return c.context.max_tokens == 32768u; }},
      {"context: {max_tokens: 1}", [](const Config& c) { return c.context.max_tokens == 1u; }},
      {"context: {max_tokens: auto}", [](const Config& c) { return !c.context.max_tokens; }},
      {"context: {max_sequences: 8}", [](const Config& c) { return c.context.max_sequences == 8; }},
      {"context: {kv_dtype: f32}", [](const Config& c) { return c.context.kv_dtype == KvDtype::kF32; }},
      {"context: {kv_dtype: f16}", [](const Config& c) { return c.context.kv_dtype == KvDtype::kF16; }},
      {"context: {kv_dtype: bf16}", [](const Config& c) { return c.context.kv_dtype == KvDtype::kBF16; }},
      {"context: {block_tokens: 16}", [](const Config& c) { return c.context.block_tokens == 16; }},
      {"context: {prefill_chunk: 65536}", [](const Config& c) { return c.context.prefill_chunk == 65536; }},
      {"server: {host: 0.0.0.0}", [](const Config& c) { return c.server.host == "0.0.0.0"; }},
      {"server: {host: '::1'}", [](const Config& c) { return c.server.host == "::1"; }},
      {"server: {port: 0}", [](const Config& c) { return c.server.port == 0; }},
      {"server: {port: 65535}", [](const Config& c) { return c.server.port == 65535; }},
      {"server: {max_queue: 0}", [](const Config& c) { return c.server.max_queue == 0; }},
      {"server:\n", [](const Config& c) { return c.server.port == 8080; }},
      {"sampling: {temperature: 0}", [](const Config& c) { return c.sampling.temperature == 0.0; }},
      {"sampling: {temperature: 0.6}", [](const Config& c) { return c.sampling.temperature == 0.6; }},
      {"sampling: {temperature: 6e-1}", [](const Config& c) { return c.sampling.temperature == 0.6; }},
      {"sampling: {temperature: 1E+1}", [](const Config& c) { return c.sampling.temperature == 10.0; }},
      {"sampling: {top_k: 0}", [](const Config& c) { return c.sampling.top_k == 0u; }},
      {"sampling: {top_p: 1}", [](const Config& c) { return c.sampling.top_p == 1.0; }},
      {"sampling: {min_p: 0.05}", [](const Config& c) { return c.sampling.min_p == 0.05; }},
      {"sampling: {repetition_penalty: 1.1}", [](const Config& c) { return c.sampling.repetition_penalty == 1.1; }},
      {"sampling: {seed: 18446744073709551615}", [](const Config& c) { return c.sampling.seed == UINT64_MAX; }},
      {"sampling: {max_tokens: 9}", [](const Config& c) { return c.sampling.max_tokens == 9u; }},
  });
}

TEST(ConfigValues, TakesDeviceMaps) {
  const auto shares = [](const std::string& text) {
    return [text](const Config& c) { return text_of(c.device_map.expert_layers.shares) == text; };
  };
  expect_good({
      {"device_map:\n", [](const Config& c) { return c.device_map.non_expert_layers.empty(); }},
      {"device_map: {kv_cache: cuda:0}", [](const Config& c) { return c.device_map.kv_cache->text() == "cuda:0"; }},
      {"device_map: {non_expert_layers: cuda:1}",
       [](const Config& c) { return text_of(c.device_map.non_expert_layers) == "cuda:1=1 "; }},
      {"device_map: {non_expert_layers: {cuda:0: 30, cuda:1: 31}}",
       [](const Config& c) { return text_of(c.device_map.non_expert_layers) == "cuda:0=30 cuda:1=31 "; }},
      {"device_map: {expert_layers: cpu}", shares("cpu:0=1 ")},
      {"device_map: {expert_layers: multicuda:0}", shares("multicuda:0=1 ")},
      {"device_map: {expert_layers: {cuda:0: 1, cpu: 19}}", shares("cuda:0=1 cpu:0=19 ")},
      {"device_map: {expert_layers: {'cuda':1,'cpu':19}}", shares("cuda:0=1 cpu:0=19 ")},
      {"device_map: {\"expert_layers\": {\"cuda\":1,\"cpu\":19}}", shares("cuda:0=1 cpu:0=19 ")},
      {"device_map:\n  expert_layers:\n    cuda:0: 0.5\n    cpu: 9.5\n", shares("cuda:0=0.5 cpu:0=9.5 ")},
      {"device_map: {expert_layers: {'multicuda:0:3,1:3,cpu:2':15,'cpu':85}}",
       shares("multicuda:0:3,1:3,cpu:2=15 cpu:0=85 ")},
      {"device_map:\n  expert_layers:\n    multicuda:0:3,1:3,cpu:2: 15\n    cpu: 85\n",
       shares("multicuda:0:3,1:3,cpu:2=15 cpu:0=85 ")},
      {"device_map: {expert_layers: {shares: cpu}}", shares("cpu:0=1 ")},
      {"device_map: {expert_layers: {shares: {cpu: 1, cuda: 2}}}", shares("cpu:0=1 cuda:0=2 ")},
      {"device_map: {expert_layers: {split: layers}}",
       [](const Config& c) { return c.device_map.expert_layers.split == Split::kLayers; }},
      {"device_map: {expert_layers: {split: experts}}",
       [](const Config& c) { return c.device_map.expert_layers.split == Split::kExperts; }},
      {"device_map: {expert_layers: {split: columns}}",
       [](const Config& c) { return c.device_map.expert_layers.split == Split::kColumns; }},
      {"device_map: {expert_layers: {rules: []}}",
       [](const Config& c) { return c.device_map.expert_layers.rules.empty(); }},
      {"device_options: {cpu: {pin: no}}",
       [](const Config& c) { return c.device_options.at("cpu:0").at("pin") == "no"; }},
      {"device_options: {cuda:1: {a: 010, b: \"2\"}}",
       [](const Config& c) { return c.device_options.at("cuda:1").at("a") == "010"; }},
      {"device_options: {}", [](const Config& c) { return c.device_options.empty(); }},
  });
}

TEST(ConfigValues, RulesKeepTheirRangesTheirOrderAndTheirPlace) {
  const ConfigResult result = load(
      "device_map:\n"
      "  expert_layers:\n"
      "    split: layers\n"
      "    shares: {cuda:0: 1, cpu: 19}\n"
      "    rules:\n"
      "      - {layers: 0-3, device: cuda:0}\n"
      "      - {layers: 58, experts: \"0-31\", device: cuda:1}\n");
  ASSERT_TRUE(result.errors.empty()) << joined(result.errors);
  const std::vector<ExpertRule>& rules = result.config.device_map.expert_layers.rules;
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].layers->first, 0u);
  EXPECT_EQ(rules[0].layers->last, 3u);
  EXPECT_FALSE(rules[0].experts);
  EXPECT_EQ(rules[0].device.text(), "cuda:0");
  EXPECT_EQ(rules[0].where, "t.yaml:6:9");
  EXPECT_EQ(rules[1].layers->first, 58u);
  EXPECT_EQ(rules[1].layers->last, 58u);
  EXPECT_EQ(rules[1].experts->last, 31u);
  EXPECT_EQ(rules[1].where, "t.yaml:7:9");
}

struct Bad {
  const char* text;
  const char* place;   // "line:column"
  const char* reason;  // part of the message or hint
};

void expect_bad(const std::vector<Bad>& cases) {
  for (const Bad& c : cases) expect_error(c.text, c.place, c.reason);
}

TEST(ConfigValues, RefusesUnknownKeysAndNamesTheNearest) {
  expect_bad({
      {"modle: a", "1:1", "did you mean 'model'?"},
      {"Model: a", "1:1", "did you mean 'model'?"},
      {"\"\": a", "1:1", "unknown key ''"},
      {"xyzzy: a", "1:1", "unknown key 'xyzzy'\n"},
      {"port: 80", "1:1", "did you mean 'server.port'?"},
      {"kv_cache: cpu", "1:1", "did you mean 'device_map.kv_cache'?"},
      {"server.port: 80", "1:1", "unknown key 'server.port'"},
      {"serve: {port: 80}", "1:1", "did you mean 'server'?"},
      {"server: {prot: 80}", "1:10", "unknown key 'prot' in 'server'"},
      {"context: {max_contxt: 3}", "1:11", "did you mean 'max_tokens'?"},
      {"device_map: {expert_layer: cpu}", "1:14", "did you mean 'expert_layers'?"},
      {"device_map: {expert_layers: {split: layers, share: cpu}}", "1:45", "did you mean 'shares'?"},
      {"device_map: {expert_layers: {share: {cpu: 1}}}", "1:30", "did you mean 'shares'?"},
      {"device_map: {expert_layers: {rules: [{layer: 1, device: cpu}]}}", "1:39", "did you mean 'layers'?"},
      {"sampling: {temprature: 1}", "1:12", "did you mean 'temperature'?"},
      {"cpu_moe_options: {num_thread: 1}", "1:19", "did you mean 'num_threads'?"},
      {"version: 1\n\n# c\n  \nmodell: x", "5:1", "did you mean 'model'?"},
      {"<<: {a: 1}", "1:1", "unknown key '<<'"},
  });
}

TEST(ConfigValues, RefusesKeysOfLaterVersions) {
  expect_bad({
      {"device_map: auto", "1:13", "not supported by this version"},
      {"device_map: {expert_layers: auto}", "1:29", "not supported by this version"},
      {"device_map: {non_expert_layers: auto}", "1:33", "not supported by this version"},
      {"device_map: {kv_cache: auto}", "1:24", "not supported by this version"},
      {"device_map: {prefill: {stream_experts: auto}}", "1:14", "not supported by this version"},
      {"device_map: {expert_profile: p.json}", "1:14", "not supported by this version"},
      {"device_map: {expert_layers: {balance: auto}}", "1:30", "not supported by this version"},
      {"device_map: {expert_layers: {prefill: {a: b}}}", "1:30", "not supported by this version"},
      {"device_map: {expert_layers: {shares: cpu, expert_profile: p}}", "1:43", "not supported by this version"},
  });
}

TEST(ConfigValues, RefusesNumbersThatAreNone) {
  const char* not_ports[] = {"-1",  "65536", "1.5",  "1e3",  "0x50", "+80",
                             "8_0", "80 80", "abc",  ".inf", ".nan", "99999999999999999999999",
                             "no",  "yes",   "true", "80s"};
  for (const char* text : not_ports)
    expect_error(cat("server: {port: ", text, "}"), "1:16", "must be a whole number from 0 to 65535, found");
  const char* not_temperatures[] = {"-0.1", "101",   ".5",   "1.",    "1e",    "nan",
                                    "inf",  "-.inf", ".NaN", "0x1p3", "1e999", "hot"};
  for (const char* text : not_temperatures)
    expect_error(cat("sampling: {temperature: ", text, "}"), "1:25", "must be a number from 0 to 100, found");
  expect_bad({
      {"server: {port: 010}", "1:16", "without leading zeros"},
      {"server: {port: '80'}", "1:16", "without quotes"},
      {"server: {port: }", "1:10", "found no value"},
      {"server: {port: ~}", "1:10", "found no value"},
      {"server: {port: [80]}", "1:16", "found a list"},
      {"server: {port: {}}", "1:16", "found an empty map"},
      {"server: {max_queue: 65537}", "1:21", "from 0 to 65536"},
      {"version: 2", "1:10", "must be 1, found '2'"},
      {"version: 1.0", "1:10", "must be 1"},
      {"version: '1'", "1:10", "without quotes"},
      {"cpu_moe_options: {num_threads: 0}", "1:32", "from 1 to 4096, or auto"},
      {"cpu_moe_options: {num_threads: all}", "1:32", "or auto, found 'all'"},
      {"cpu_moe_options: {batch_size: 0}", "1:31", "from 1 to"},
      {"context: {max_tokens: 0}", "1:23", "from 1 to"},
      {"max_sequence_length: 16777217", "1:22", "'context.max_tokens' must be"},
      {"context: {max_sequences: 0}", "1:26", "from 1 to"},
      {"context: {block_tokens: 0}", "1:25", "from 1 to"},
      {"context: {prefill_chunk: 0}", "1:26", "from 1 to"},
      {"sampling: {top_p: -0.1}", "1:19", "from 0 to 1"},
      {"sampling: {top_p: 1.01}", "1:19", "from 0 to 1"},
      {"sampling: {min_p: 2}", "1:19", "from 0 to 1"},
      {"sampling: {repetition_penalty: 0}", "1:32", "from 0.01 to 100"},
      {"sampling: {top_k: -1}", "1:19", "a whole number"},
      {"sampling: {seed: 18446744073709551616}", "1:18", "a whole number"},
      {"sampling: {max_tokens: 0}", "1:24", "from 1 to"},
  });
}

TEST(ConfigValues, RefusesValuesOfTheWrongShape) {
  expect_bad({
      {"model:", "1:1", "'model' must be a path, found no value"},
      {"model: null", "1:1", "found no value"},
      {"model: ''", "1:8", "found '' in quotes"},
      {"model: [a]", "1:8", "found a list"},
      {"model: {a: b}", "1:8", "quote text with"},
      {"model: \"a\\0b\"", "1:8", "\\x00"},
      {"model: |\n  a\n  b\n", "1:8", "a\\nb"},
      {"server: {host: }", "1:10", "must be text"},
      {"server: 8080", "1:9", "'server' must be a map of keys to values"},
      {"server: []", "1:9", "'server' must be a map of keys to values"},
      {"context: {kv_dtype: f8}", "1:21", "must be f32, f16 or bf16, found 'f8'"},
      {"context: {kv_dtype: bf61}", "1:21", "did you mean 'bf16'?"},
      {"context: {kv_dtype: [f16]}", "1:21", "found a list"},
      {"plugins: backend_cuda", "1:10", "put it in brackets"},
      {"plugins: []", "1:10", "found an empty list"},
      {"plugins: {a: b}", "1:10", "found a map"},
      {"plugins: [../evil]", "1:11", "'../evil'"},
      {"plugins: [a, '']", "1:14", "a plugin id must be"},
      {"plugins: [a, [b]]", "1:14", "a plugin id must be"},
      {"plugins: [a, a]", "1:14", "listed twice"},
      {"- model: a", "1:1", "the configuration must be a map"},
      {"model", "1:1", "the configuration must be a map"},
      {"max_sequence_length: 1\ncontext: {max_tokens: 1}", "2:11", "the other is at t.yaml:1:1"},
      {"context: {max_tokens: 1}\nmax_sequence_length: 1", "2:1", "are the same setting"},
  });
}

TEST(ConfigValues, RefusesDeviceMapsThatCannotBeMeant) {
  expect_bad({
      {"device_map: {kv_cache: CUDA}", "1:24", "device 'CUDA'"},
      {"device_map: {kv_cache: {cpu: 1}}", "1:24", "a device name"},
      {"device_map: {kv_cache: }", "1:14", "a device name"},
      {"device_map: {non_expert_layers: }", "1:14", "found no value"},
      {"device_map: {non_expert_layers: []}", "1:33", "found an empty list"},
      {"device_map: {non_expert_layers: {}}", "1:33", "found an empty map"},
      {"device_map: {expert_layers: }", "1:14", "found no value"},
      {"device_map: {expert_layers: {}}", "1:29", "found an empty map"},
      {"device_map: {expert_layers: [cpu]}", "1:29", "found a list"},
      {"device_map: {expert_layers: {cpu: 0}}", "1:35", "above 0"},
      {"device_map: {expert_layers: {cpu: -1}}", "1:35", "above 0"},
      {"device_map: {expert_layers: {cpu: .inf}}", "1:35", "not '.inf'"},
      {"device_map: {expert_layers: {cpu: 1e10}}", "1:35", "at most 1e9"},
      {"device_map: {expert_layers: {cpu: 010}}", "1:35", "leading zeros"},
      {"device_map: {expert_layers: {cpu: '1'}}", "1:35", "without quotes"},
      {"device_map: {expert_layers: {cpu: 50%}}", "1:35", "not '50%'"},
      {"device_map: {expert_layers: {cuda:0}}", "1:30", "with a space"},
      {"device_map: {expert_layers: {cuda: 1, cuda:0: 2}}", "1:39", "'cuda:0' has a share already"},
      {"device_map: {expert_layers: {cuda:x: 1}}", "1:30", "index"},
      {"device_map: {expert_layers: {split: rows}}", "1:37", "must be layers, experts or columns"},
      {"device_map: {expert_layers: {split: }}", "1:30", "found no value"},
      {"device_map: {expert_layers: {rules: {}}}", "1:37", "must be a list of rules"},
      {"device_map: {expert_layers: {rules: [cpu]}}", "1:38", "a rule must be a map"},
      {"device_map: {expert_layers: {rules: [{layers: 1}]}}", "1:38", "must name its 'device'"},
      {"device_map: {expert_layers: {rules: [{device: 1}]}}", "1:47", "device '1'"},
      {"device_map: {expert_layers: {rules: [{device: }]}}", "1:39", "a device name"},
      {"device_map: {expert_layers: {rules: [{layers: 3-1, device: cpu}]}}", "1:47", "found '3-1'"},
      {"device_map: {expert_layers: {rules: [{layers: -1, device: cpu}]}}", "1:47", "found '-1'"},
      {"device_map: {expert_layers: {rules: [{layers: 0-, device: cpu}]}}", "1:47", "found '0-'"},
      {"device_map: {expert_layers: {rules: [{layers: [0, 1], device: cpu}]}}", "1:47", "found a list"},
      {"device_map: {expert_layers: {rules: [{experts: 0-65536, device: cpu}]}}", "1:48", "up to 65535"},
      {"device_map: {expert_layers: {rules: [{layers: , device: cpu}]}}", "1:39", "found no value"},
      {"device_options: cpu", "1:17", "must be a map of devices"},
      {"device_options: {cpu: 1}", "1:23", "must be a map of devices"},
      {"device_options: {CPU: {a: b}}", "1:18", "device 'CPU'"},
      {"device_options: {'multicuda:0,1': {a: b}}", "1:18", "composite"},
      {"device_options: {cpu: {a: [b]}}", "1:27", "found a list"},
      {"device_options: {cpu: {a: }}", "1:24", "found no value"},
  });
}

TEST(ConfigValues, AnInvalidValueLeavesTheOthersTaken) {
  const ConfigResult result = load("server: {port: no, host: ::1}\nmodel: m");
  EXPECT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.config.server.host, "::1");
  EXPECT_EQ(result.config.model, "m");
}

}  // namespace
}  // namespace moehost

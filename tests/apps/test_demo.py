"""The demo model: what `./setup --demo` made, held to the answers of the original implementation."""

import json
import os
import unittest

from program import DEMO, DEMO_DENSE, ProgramTest, TREE, read_safetensors_f32

PROMPT = "The capital of France is"
PROMPT_IDS = [504, 3575, 282, 4649, 314]
# Exact arithmetic (F32 activations and KV cache). The sixth is the last whose margin is small: 0.22.
ANSWER_IDS = [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33]
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
CHAT_IDS = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2,
            198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
CHAT_ANSWER = "The capital of France is Paris."
# Largest logits of the last prompt position.
LARGEST = {7042: 17.37126, 260: 14.88860, 4528: 13.24498, 2250: 13.00947, 1315: 12.95152}
EXACT = ("--set", "context.kv_dtype=f32")


@unittest.skipUnless(os.path.exists(DEMO) and os.path.exists(DEMO_DENSE),
                     "the demo model is not here: ./setup --demo fetches it")
class Demo(ProgramTest):
    def run_json(self, *arguments):
        return json.loads(self.succeed("run", *arguments, "--temperature", "0", "--json").stdout)

    def logits(self, model, ids, *arguments):
        out = os.path.join(self.folder, "logits.safetensors")
        self.succeed("logits", model, "--ids", self.file("ids.json", json.dumps(ids)), "--out", out, *EXACT, *arguments)
        return read_safetensors_f32(out, "logits")

    def test_reference_gives_the_exact_answer(self):
        out = self.run_json(DEMO, "-p", PROMPT, "-n", "12", "--device", "reference", "--moe-device", "reference", *EXACT)
        self.assertEqual(out["prompt_ids"], PROMPT_IDS)
        self.assertEqual(out["ids"], ANSWER_IDS)
        self.assertEqual(out["text"], " Paris.\n\nThe answer is: 201")

    def test_cpu_answers_paris_as_configured(self):
        for config in ("demo.yaml", "demo-two-devices.yaml"):
            out = self.run_json("--config", os.path.join(TREE, "configs", config), "-p", PROMPT, "-n", "5")
            self.assertEqual(out["ids"], ANSWER_IDS[:5], config)

    def test_a_chat_prompt_has_the_ids_of_the_original_and_its_answer(self):
        out = self.run_json(DEMO, "-p", CHAT, "-n", "16", *EXACT)
        self.assertEqual(out["prompt_ids"], CHAT_IDS)
        self.assertEqual(out["text"], CHAT_ANSWER)
        self.assertEqual(out["finish_reason"], "stop")

    def test_experts_give_the_dense_model_bit_for_bit_on_reference(self):
        placement = ("--device", "reference", "--moe-device", "reference")
        self.assertEqual(self.logits(DEMO, PROMPT_IDS, *placement), self.logits(DEMO_DENSE, PROMPT_IDS, *placement))

    def test_experts_give_the_dense_model_on_cpu_within_float32_noise(self):
        _, experts = self.logits(DEMO, PROMPT_IDS)
        _, dense = self.logits(DEMO_DENSE, PROMPT_IDS)
        a, b = (memoryview(data).cast("f") for data in (experts, dense))
        # The logits have a standard deviation of 6.5; the bound of the CPU backends is 1e-3 of it.
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 6.5e-3)

    def test_largest_logits_are_those_of_the_original(self):
        shape, data = self.logits(DEMO, PROMPT_IDS)
        last = memoryview(data).cast("f")[-shape[1]:]
        self.assertEqual(max(range(shape[1]), key=last.__getitem__), 7042)
        for token, logit in LARGEST.items():
            self.assertAlmostEqual(last[token], logit, delta=6.5e-3)


if __name__ == "__main__":
    unittest.main()

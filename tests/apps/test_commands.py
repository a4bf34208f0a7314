"""Every command but serve, as a script would use it: output forms and exit codes."""

import json
import os
import unittest

from program import ProgramTest, TINY, TINY_CONFIG, moehost, read_safetensors_f32

IDS = [84, 104, 101, 32, 99]
VOCAB = 512


class Usage(ProgramTest):
    def test_version_is_one_line(self):
        self.assertRegex(self.succeed("--version").stdout, r"^moehost \d+\.\d+\.\d+ \(.*\)\n$")

    def test_no_arguments_show_the_commands_and_exit_2(self):
        done = moehost()
        self.assertEqual(done.returncode, 2)
        self.assertIn("serve", done.stderr)

    def test_every_command_has_help(self):
        for name in ("serve", "run", "plan", "check", "devices", "inspect", "logits", "tokenize", "convert"):
            done = self.succeed(name, "--help")
            self.assertIn(f"moehost {name}", done.stdout)
            self.assertIn("--help", done.stdout)

    def test_an_unknown_option_is_refused_with_the_nearest_one(self):
        self.assertIn("did you mean '--device'", self.refuse(2, "plan", TINY, "--devise", "cpu"))

    def test_an_unknown_command_is_refused_with_the_nearest_one(self):
        self.assertIn("did you mean 'plan'", self.refuse(2, "plam"))

    def test_an_abbreviated_option_is_not_guessed(self):
        self.refuse(2, "plan", TINY, "--dev", "cpu")

    def test_underscores_and_dashes_are_the_same_in_options(self):
        for option in ("--moe-device", "--moe_device"):
            self.succeed("plan", TINY, option, "{'cpu': 1, 'reference': 3}")

    def test_a_number_out_of_range_is_refused_with_the_range(self):
        self.assertIn("1 to", self.refuse(2, "run", TINY, "-p", "x", "-n", "0"))
        self.assertIn("temperature", self.refuse(2, "run", TINY, "-p", "x", "--temperature", "nan"))

    def test_no_model_is_bad_usage(self):
        self.assertIn("no model", self.refuse(2, "plan"))


class Run(ProgramTest):
    def test_json_form(self):
        done = self.succeed("run", "--config", TINY_CONFIG, "-p", "The capital", "-n", "8", "--temperature", "0",
                            "--json", "--ignore-end")
        out = json.loads(done.stdout)
        self.assertEqual(list(out), ["text", "ids", "prompt_ids", "finish_reason", "timings"])
        self.assertEqual(len(out["ids"]), 8)
        self.assertEqual(out["finish_reason"], "length")
        self.assertEqual(out["timings"]["generated_tokens"], 8)

    def test_ids_give_what_their_text_gives(self):
        arguments = ("run", TINY, "-n", "8", "--temperature", "0", "--json")
        by_text = json.loads(self.succeed(*arguments, "-p", "The capital").stdout)
        for form in (by_text["prompt_ids"], {"input_ids": by_text["prompt_ids"]}):
            by_ids = json.loads(self.succeed(*arguments, "--ids", self.file("ids.json", json.dumps(form))).stdout)
            self.assertEqual(by_ids["ids"], by_text["ids"])

    def test_text_goes_to_standard_output_and_statistics_to_standard_error(self):
        arguments = ("run", TINY, "-p", "The capital", "-n", "8", "--temperature", "0")
        done = self.succeed(*arguments)
        self.assertEqual(done.stdout, json.loads(self.succeed(*arguments, "--json").stdout)["text"] + "\n")
        self.assertRegex(done.stderr, r"tokens/s")

    def test_the_same_seed_gives_the_same_answer_and_others_differ(self):
        def ids(seed):
            done = self.succeed("run", TINY, "-p", "The", "-n", "24", "--temperature", "2", "--top-k", "0", "--top-p",
                                "1", "--seed", seed, "--json", "--ignore-end")
            return json.loads(done.stdout)["ids"]
        self.assertEqual(ids("7"), ids("7"))
        self.assertNotEqual(ids("7"), ids("8"))

    def test_placements_give_the_same_tokens(self):
        def ids(*placement):
            done = self.succeed("run", TINY, "-p", "The capital", "-n", "16", "--temperature", "0", "--json", "--set",
                                "context.kv_dtype=f32", *placement)
            return json.loads(done.stdout)["ids"]
        alone = ids("--device", "reference", "--moe-device", "reference")
        self.assertEqual(alone, ids("--device", "cpu", "--moe-device", "{'reference': 1, 'cpu': 3}"))

    def test_a_prompt_longer_than_the_context_is_refused_with_both_counts(self):
        ids = self.file("ids.json", json.dumps([1] * 40))
        self.assertRegex(self.refuse(2, "run", TINY, "--ids", ids, "--set", "context.max_tokens=32"), r"40.*32")

    def test_neither_or_both_of_text_and_ids_are_bad_usage(self):
        self.refuse(2, "run", TINY)
        self.refuse(2, "run", TINY, "-p", "x", "--ids", self.file("ids.json", "[1]"))


class Logits(ProgramTest):
    def logits(self, *placement):
        out = os.path.join(self.folder, "logits.safetensors")
        self.succeed("logits", TINY, "--ids", self.file("ids.json", json.dumps(IDS)), "--out", out, *placement)
        return read_safetensors_f32(out, "logits")

    def test_shape_is_tokens_by_vocabulary(self):
        shape, data = self.logits()
        self.assertEqual(shape, [len(IDS), VOCAB])
        self.assertEqual(len(data), 4 * len(IDS) * VOCAB)

    def test_the_same_placement_gives_the_same_bits(self):
        self.assertEqual(self.logits("--device", "reference"), self.logits("--device", "reference"))

    def test_ids_that_are_none_are_refused(self):
        for wrong in ("[1, -1]", "[1.5]", "{}", "[", '["a"]', "[" * 100000):
            self.refuse(2, "logits", TINY, "--ids", self.file("ids.json", wrong), "--out",
                        os.path.join(self.folder, "x"))
        self.refuse(2, "logits", TINY, "--ids", self.file("ids.json", f"[{VOCAB}]"), "--out",
                    os.path.join(self.folder, "x"))


class Tokenize(ProgramTest):
    TEXT = "The capital is <|endoftext|> naïve 😀\n"

    def test_json_has_ids_and_pieces_and_decode_gives_the_text_back(self):
        path = self.file("text", self.TEXT)
        out = json.loads(self.succeed("tokenize", TINY, "--file", path, "--json").stdout)
        self.assertEqual(list(out), ["ids", "pieces"])
        self.assertEqual(len(out["ids"]), len(out["pieces"]))
        ids = self.file("ids.json", json.dumps(out["ids"]))
        self.assertEqual(self.succeed("tokenize", TINY, "--decode", "--file", ids).stdout, self.TEXT)

    def test_plain_keeps_text_that_spells_a_special_token(self):
        special = json.loads(self.succeed("tokenize", TINY, "-p", "<|endoftext|>", "--json").stdout)["ids"]
        plain = json.loads(self.succeed("tokenize", TINY, "-p", "<|endoftext|>", "--json", "--plain").stdout)["ids"]
        self.assertEqual(len(special), 1)
        self.assertGreater(len(plain), 1)

    def test_lines_show_id_bytes_and_text(self):
        line = self.succeed("tokenize", TINY, "-p", "T").stdout
        self.assertRegex(line, r"^\d+\t54\tT\n$")

    def test_batch_answers_a_line_for_a_line_both_ways(self):
        texts = ["The capital", "", "naïve\nline", self.TEXT]
        asked = "".join(json.dumps(text) + "\n" for text in texts)
        answered = self.succeed("tokenize", TINY, "--batch", stdin=asked).stdout
        self.assertEqual(len(answered.splitlines()), len(texts))
        back = self.succeed("tokenize", TINY, "--batch", "--decode", stdin=answered).stdout
        self.assertEqual([json.loads(line) for line in back.splitlines()], texts)

    def test_a_bad_line_of_a_batch_is_named(self):
        self.assertIn("line 2", self.refuse(2, "tokenize", TINY, "--batch", stdin='"a"\n[1]\n'))


class Plan(ProgramTest):
    def test_json_form(self):
        out = json.loads(self.succeed("plan", "--config", TINY_CONFIG, "--json").stdout)
        self.assertEqual(list(out), ["fits", "devices"])
        self.assertIs(out["fits"], True)
        for device in out["devices"]:
            self.assertEqual(list(device), ["name", "layers", "experts", "weight_bytes", "kv_bytes", "workspace_bytes",
                                            "free_bytes"])

    def test_the_table_has_a_row_for_every_device(self):
        out = self.succeed("plan", TINY, "--device", "cpu", "--moe-device", "reference").stdout
        self.assertRegex(out, r"(?m)^ *cpu:0 .*\n(.*\n)* *reference:0 ")

    def test_what_does_not_fit_says_so_and_exits_71(self):
        done = moehost("plan", TINY, "--json", "--set", "device_options.cpu.memory_limit=65536")
        self.assertEqual(done.returncode, 71, done.stdout + done.stderr)
        self.assertIs(json.loads(done.stdout)["fits"], False)
        self.assertIn("cpu:0", done.stderr)


class Devices(ProgramTest):
    def test_json_form(self):
        out = json.loads(self.succeed("devices", "--json").stdout)
        self.assertEqual(list(out), ["plugins", "devices"])
        for plugin in out["plugins"]:
            self.assertEqual(list(plugin), ["id", "path", "abi", "taken", "reason"])
        for device in out["devices"]:
            self.assertEqual(list(device), ["name", "plugin", "memory_bytes", "features"])
        self.assertIn("backend_reference", [plugin["id"] for plugin in out["plugins"]])
        self.assertIn("reference:0", [device["name"] for device in out["devices"]])

    def test_an_unknown_device_is_unavailable_and_the_known_are_named(self):
        self.assertIn("reference", self.refuse(69, "plan", TINY, "--device", "tpu"))


class Inspect(ProgramTest):
    def test_json_holds_metadata_and_tensors(self):
        out = json.loads(self.succeed("inspect", TINY, "--json").stdout)
        self.assertEqual(out["metadata"]["general.architecture"], "llama")
        self.assertIn({"name": "token_embd.weight", "format": "Q8_0", "shape": [64, VOCAB]}.items(),
                      [dict(list(tensor.items())[:3]).items() for tensor in out["tensors"]])

    def test_text_is_one_line_a_key_and_a_tensor(self):
        out = self.succeed("inspect", TINY).stdout
        self.assertIn("general.architecture = llama", out)
        self.assertRegex(out, r"token_embd.weight  Q8_0 \[64, 512\]")


class ModelFiles(ProgramTest):
    def broken(self, change):
        with open(TINY, "rb") as file:
            data = bytearray(file.read())
        path = os.path.join(self.folder, "broken.gguf")
        with open(path, "wb") as file:
            file.write(change(data))
        return path

    def test_malformed_files_are_refused_with_file_and_place(self):
        huge = (1 << 62).to_bytes(8, "little")
        changes = {"empty": lambda data: b"",
                   "not GGUF": lambda data: b"ELF!" + data[4:],
                   "cut in the header": lambda data: data[:300],
                   "cut in the tensors": lambda data: data[:-1000],
                   "more tensors than bytes": lambda data: data[:8] + huge + data[16:],
                   "more keys than bytes": lambda data: data[:16] + huge + data[24:]}
        for name, change in changes.items():
            with self.subTest(name):
                path = self.broken(change)
                for command in ("inspect", "plan", "check", "tokenize"):
                    self.assertIn("broken.gguf", self.refuse(65, command, path, stdin=""))

    def test_a_missing_file_and_a_folder_are_refused(self):
        for path in (os.path.join(self.folder, "none.gguf"), self.folder):
            for command in ("inspect", "plan", "check"):
                self.assertIn(path, self.refuse(65, command, path))


class Convert(ProgramTest):
    def test_a_model_with_experts_is_not_upcycled_again(self):
        out = os.path.join(self.folder, "out.gguf")
        self.refuse(65, "convert", TINY, out, "--to-moe", "upcycle")
        self.assertFalse(os.path.exists(out))

    def test_options_are_checked(self):
        out = os.path.join(self.folder, "out.gguf")
        self.refuse(2, "convert", TINY, out)
        self.refuse(2, "convert", TINY, out, "--to-moe", "carve")
        self.refuse(2, "convert", TINY, out, "--to-moe", "upcycle", "--num-experts", "0")


if __name__ == "__main__":
    unittest.main()

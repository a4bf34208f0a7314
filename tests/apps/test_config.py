"""Configuration as an operator meets it: errors with their place, precedence, what `check` prints."""

import json
import os
import re
import unittest

from program import ProgramTest, TINY, TINY_CONFIG, TREE, moehost

SEVEN_MISTAKES = """\
version: 1
modle: tiny.gguf
device_map:
  expert_layers: {cpu: 0, reference: 1}
context:
  kv_dtype: f64
  max_tokens: many
server:
  port: 70000
sampling:
  temperature: .nan
  top_k: -1
"""


class Errors(ProgramTest):
    def test_seven_mistakes_print_seven_located_errors_and_exit_78(self):
        path = self.file("seven.yaml", SEVEN_MISTAKES)
        done = moehost("check", "--config", path, "--no-model")
        self.assertEqual(done.returncode, 78, done.stderr)
        places = re.findall(r"(?m)^.*seven\.yaml:(\d+):\d+: error: ", done.stderr)
        self.assertEqual(places, ["2", "4", "6", "7", "9", "11", "12"], done.stderr)
        self.assertIn("did you mean 'model'?", done.stderr)
        self.assertIn("7 errors", done.stderr)

    def test_every_command_refuses_a_wrong_config_the_same_way(self):
        path = self.file("seven.yaml", SEVEN_MISTAKES)
        for command in (["serve"], ["run", "-p", "x"], ["plan"], ["devices"]):
            self.assertIn("seven.yaml:2:1", self.refuse(78, *command, "--config", path))

    def test_check_reports_config_and_model_in_one_run(self):
        path = self.file("two.yaml", "version: 1\nmodel: none.gguf\nserver: {prot: 1}\n")
        errors = self.refuse(78, "check", "--config", path)
        self.assertIn("two.yaml:3", errors)
        self.assertIn("none.gguf", errors)

    def test_a_missing_config_file_is_a_config_error(self):
        self.refuse(78, "check", "--config", os.path.join(self.folder, "none.yaml"))

    def test_a_wrong_set_is_refused(self):
        self.assertIn("KEY=VALUE", self.refuse(2, "plan", TINY, "--set", "context"))
        self.assertIn("max_tokens", self.refuse(78, "plan", TINY, "--set", "context.max_tokns=1"))


class Files(ProgramTest):
    def test_every_config_of_the_tree_is_valid(self):
        names = [name for name in os.listdir(os.path.join(TREE, "configs")) if name.endswith((".yaml", ".json"))]
        self.assertIn("deepseek.yaml", names)
        for name in names:
            self.succeed("check", "--no-model", "--config", os.path.join(TREE, "configs", name))

    def test_check_reads_the_model_header_too(self):
        self.assertIn("llama", self.succeed("check", "--config", TINY_CONFIG).stdout)

    def test_json_is_read_as_yaml_is(self):
        path = self.file("tiny.json", json.dumps({"version": 1, "model": TINY, "context": {"max_tokens": 64}}))
        self.assertIn("context.max_tokens = 64", self.succeed("check", "--origin", "--config", path).stdout)


class Precedence(ProgramTest):
    def effective(self, *arguments, environment=None):
        done = self.succeed("check", "--origin", "--no-model", *arguments, environment=environment)
        return {key: (value, origin) for key, value, origin in
                re.findall(r"(?m)^(\S+) = (.*?) +# (.*)$", done.stdout)}

    def test_flags_beat_the_environment_which_beats_files_which_beat_defaults(self):
        first = self.file("first.yaml", "version: 1\nserver: {port: 1001}\ncontext: {max_tokens: 11}\n")
        second = self.file("second.yaml", "version: 1\nserver: {port: 1002}\n")
        files = ("--config", first, "--config", second)
        self.assertEqual(self.effective(*files)["server.port"][0], "1002")
        self.assertEqual(self.effective(*files)["context.max_tokens"][0], "11")
        environment = {"MOEHOST_SERVER__PORT": "1003"}
        self.assertEqual(self.effective(*files, environment=environment)["server.port"][0], "1003")
        for flag in (("--port", "1004"), ("--set", "server.port=1004")):
            self.assertEqual(self.effective(*files, *flag, environment=environment)["server.port"][0], "1004")

    def test_origin_names_the_place_of_every_value(self):
        path = self.file("one.yaml", "version: 1\nserver:\n  port: 1001\n")
        origins = self.effective("--config", path)
        self.assertRegex(origins["server.port"][1], r"one\.yaml:3:")
        self.assertEqual(origins["server.host"][1], "default")

    def test_a_model_of_a_config_is_relative_to_the_config_and_of_the_command_line_to_the_current_folder(self):
        os.symlink(TINY, os.path.join(self.folder, "here.gguf"))
        path = self.file("one.yaml", "version: 1\nmodel: here.gguf\n")
        self.succeed("plan", "--config", path)
        self.succeed("plan", "--config", path, "--model", os.path.relpath(TINY))

    def test_a_model_file_may_have_any_name(self):
        path = os.path.join(self.folder, "[1]: it's here.gguf")
        os.symlink(TINY, path)
        self.succeed("plan", path)


class Generated(ProgramTest):
    def test_the_schema_is_json_and_knows_the_keys_of_the_shipped_configs(self):
        schema = json.loads(self.succeed("check", "--schema").stdout)
        for key in ("model", "device_map", "context", "server", "sampling"):
            self.assertIn(key, schema["properties"])

    def test_the_documentation_names_every_key_of_the_schema(self):
        schema = json.loads(self.succeed("check", "--schema").stdout)
        text = self.succeed("check", "--docs").stdout
        for key in schema["properties"]:
            self.assertIn(key, text)


if __name__ == "__main__":
    unittest.main()

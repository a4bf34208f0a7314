"""The HTTP server as clients meet it: answers, streams, limits, queue, disconnects, start and end."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

from program import PROGRAM, ProgramTest, Server, TINY, TREE, stream_events, wait_until

sys.path.insert(0, os.path.join(TREE, "tests", "tools"))
import gguf_file  # noqa: E402

GREEDY = {"temperature": 0, "max_tokens": 8}
PROMPT = "The capital of"
# One step of TINY on the slow device takes more than half a second: a request of a thousand tokens does not end by itself
# within any test.
SLOW_CONFIG = f"""\
version: 1
model: {TINY}
plugin_folder: {os.environ["TEST_FAKE_PLUGINS"]}
device_map: {{non_expert_layers: fake, expert_layers: fake}}
device_options: {{"fake:0": {{backend_fake.latency_us: 8000}}}}
"""
ENDLESS = {"prompt": PROMPT, "max_tokens": 1000, "temperature": 2, "top_k": 0, "top_p": 1}


def post(connection, fields):
    connection.request("POST", "/generate", json.dumps(fields))
    return connection


class Answers(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TINY, "--set", "context.max_tokens=256", "--set", "sampling.seed=1")
        cls.addClassCleanup(cls.server.stop)

    def refused(self, status, code, answer, param=None):
        self.assertEqual(answer[0], status, answer)
        error = answer[2]["error"]
        self.assertEqual(list(error), ["message", "type", "param", "code"])
        self.assertEqual((error["code"], error["param"]), (code, param))
        return error["message"]

    def test_health_ready_and_models(self):
        self.assertEqual(self.server.call("GET", "/health")[2], {"status": "ok", "model_loaded": True})
        self.assertEqual(self.server.call("GET", "/ready")[0], 200)
        for path in ("/v1/models", "/v1//models", "/v1/models/", "/v1/models?x=1"):
            model, = self.server.call("GET", path)[2]["data"]
            self.assertEqual((model["id"], model["max_model_len"]), ("tiny", 256))

    def test_head_answers_without_a_body(self):
        status, headers, body = self.server.call("HEAD", "/health")
        self.assertEqual((status, body), (200, None))
        self.assertGreater(int(headers["Content-Length"]), 0)

    def test_unknown_paths_and_methods_are_json_errors(self):
        self.refused(404, "not_found", self.server.call("GET", "/nothing"))
        for method, path, allowed in (("GET", "/generate", "POST"), ("POST", "/health", "GET, HEAD")):
            answer = self.server.call(method, path)
            self.refused(405, "method_not_allowed", answer)
            self.assertEqual(answer[1]["Allow"], allowed)

    def test_generate_answers_text_usage_reason_and_model(self):
        status, headers, body = self.server.generate(prompt=PROMPT, temperature=0, max_tokens=2)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
        self.assertEqual(list(body), ["text", "usage", "finish_reason", "model"])
        usage = body["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual((usage["completion_tokens"], body["finish_reason"], body["model"]), (2, "length", "tiny"))

    def test_the_server_says_what_run_says(self):
        done = self.succeed("run", TINY, "-p", PROMPT, "-n", "8", "--temperature", "0", "--json")
        self.assertEqual(self.server.generate(prompt=PROMPT, **GREEDY)[2]["text"], json.loads(done.stdout)["text"])

    def test_a_stream_is_the_plain_answer_in_pieces(self):
        fields = {"prompt": PROMPT, "max_tokens": 64, "temperature": 2, "top_k": 0, "top_p": 1, "seed": 3}
        plain = self.server.generate(**fields)[2]
        connection = post(self.server.connect(), {**fields, "stream": True})
        self.addCleanup(connection.close)
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "text/event-stream"))
        events = list(stream_events(answer))
        self.assertEqual(events.pop(), "[DONE]")
        last = events.pop()
        self.assertEqual({**last, "text": plain["text"]}, plain)
        self.assertEqual("".join(event["text"] for event in events), plain["text"])
        for event in events:
            self.assertEqual(list(event), ["text"])

    def test_a_stream_to_an_old_client_ends_with_the_connection(self):
        body = json.dumps({"prompt": PROMPT, "stream": True, **GREEDY})
        answer = self.server.raw(f"POST /generate HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer[-80:])

    def test_equal_greedy_requests_get_equal_answers_at_the_same_time(self):
        answers = [None] * 8

        def ask(index):
            answers[index] = self.server.generate(prompt=PROMPT, **GREEDY)[2]
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(answers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [answers[0]] * len(answers))

    def test_wrong_fields_are_refused_by_name(self):
        wrong = {"prompt": (5, ["a"], ""), "max_tokens": (0, -1, 1.5, "9", 1 << 40), "temperature": (-1, "x", True),
                 "top_k": (-1, 0.5), "top_p": (-0.1, 1.1, []), "min_p": (2,), "repetition_penalty": (0, -1),
                 "seed": (-1, 1.5, 1 << 70), "stream": (1, "true")}
        for field, values in wrong.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    answer = self.server.generate(**{"prompt": PROMPT, **GREEDY, field: value})
                    self.refused(400, "invalid_value", answer, field)
        self.refused(400, "missing_field", self.server.generate(max_tokens=1), "prompt")
        message = self.refused(400, "unknown_field", self.server.generate(prompt="x", max_token=1), "max_token")
        self.assertIn("did you mean 'max_tokens'", message)

    def test_null_means_not_given(self):
        self.assertEqual(self.server.generate(prompt=PROMPT, top_p=None, **GREEDY)[0], 200)

    def test_bodies_that_are_no_json_object_are_refused(self):
        for body in ("", "{", "[]", "5", '{"prompt": "a"} x', '{"prompt": 1e999}', "\ufeff{}".encode("utf-16")):
            code = "invalid_utf8" if isinstance(body, bytes) else "invalid_json"
            self.refused(400, code, self.server.call("POST", "/generate", body))
        for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"):
            self.refused(400, "invalid_utf8", self.server.call("POST", "/generate", b'{"prompt": "' + bad + b'"}'))

    def test_nesting_is_limited_before_a_tree_is_built(self):
        def nested(depth):  # the object is one level
            return '{"prompt": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"
        self.refused(400, "invalid_value", self.server.call("POST", "/generate", nested(64)), "prompt")
        for depth in (65, 1000000):
            self.refused(400, "invalid_json", self.server.call("POST", "/generate", nested(depth)))

    def test_a_prompt_longer_than_the_context_is_refused_with_both_counts(self):
        message = self.refused(400, "context_length_exceeded", self.server.generate(prompt="\x01" * 300), "prompt")
        self.assertRegex(message, r"300.*256")

    def test_an_answer_that_the_context_cuts_says_length(self):
        body = self.server.generate(prompt="\x01" * 250, **{**GREEDY, "max_tokens": 1000})[2]
        if body["finish_reason"] != "stop":
            self.assertEqual(body["finish_reason"], "length")
        self.assertLessEqual(body["usage"]["completion_tokens"], 7)

    def test_text_that_spells_a_special_token_stays_text(self):
        usage = self.server.generate(prompt="<|endoftext|>", **GREEDY)[2]["usage"]
        self.assertGreater(usage["prompt_tokens"], 1)


class Limits(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TINY)
        cls.addClassCleanup(cls.server.stop)

    def status(self, request):
        answer = self.server.raw(request)
        self.assertTrue(answer.startswith(b"HTTP/1.1 "), answer[:200])
        head, _, body = answer.partition(b"\r\n\r\n")
        if b"/json" in head:
            json.loads(body)
        return int(answer[9:12])

    def get(self, headers):
        return self.status(b"GET /health HTTP/1.1\r\n" + headers + b"Connection: close\r\n\r\n")

    def test_a_body_of_the_limit_is_read_and_a_longer_one_is_not(self):
        limit = 16 << 20
        def body(size):
            return b'{"prompt": "", "x": "' + b"a" * (size - 23) + b'"}'
        self.assertEqual(self.server.call("POST", "/generate", body(limit))[0], 400)
        head = f"POST /generate HTTP/1.1\r\nContent-Length: {limit + 1}\r\n\r\n".encode()
        self.assertEqual(self.status(head), 413)
        chunk = b"100000\r\n" + b"a" * (1 << 20) + b"\r\n"
        self.assertEqual(self.status(b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + 17 * chunk), 413)

    def test_headers_are_limited_in_length_and_number(self):
        self.assertEqual(self.get(b"X: " + b"a" * 8000 + b"\r\n"), 200)
        self.assertEqual(self.get(b"X: " + b"a" * 8200 + b"\r\n"), 431)
        self.assertEqual(self.get(b"X: " + b"a" * 40000 + b"\r\n"), 431)
        self.assertEqual(self.get(b"".join(b"X%d: 1\r\n" % i for i in range(99))), 200)
        self.assertEqual(self.get(b"".join(b"X%d: 1\r\n" % i for i in range(100))), 431)

    def test_what_is_not_http_is_refused(self):
        for request in (b"hello\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                        b"POST /generate HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"):
            self.assertEqual(self.status(request), 400, request)

    def test_chunked_bodies_and_expect_continue_work(self):
        body = json.dumps({"prompt": PROMPT, **GREEDY}).encode()
        chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        self.assertEqual(self.status(b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
                                     chunked), 200)
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(b"POST /generate HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body)
            self.assertIn(b"200 OK", connection.recv(1000))

    def test_a_connection_is_kept_for_more_requests_also_sent_at_once(self):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        for _ in range(3):
            connection.request("GET", "/health")
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            answer.read()
        get = b"GET /health HTTP/1.1\r\n\r\n"
        last = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
        self.assertEqual(self.server.raw(get + get + last).count(b"HTTP/1.1 200 OK"), 3)

    def test_a_page_of_another_site_cannot_use_a_local_server(self):
        self.assertEqual(self.get(b"Host: evil.example:8080\r\n"), 403)
        for host in (b"localhost", b"127.0.0.1:8080", b"[::1]:8080", b"localhost:1"):
            self.assertEqual(self.get(b"Host: " + host + b"\r\n"), 200)

    def test_headers_that_do_not_end_are_cut_off(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
            self.assertIn(b" 408 ", connection.recv(1000))
            self.assertEqual(connection.recv(1000), b"")

    def test_one_address_may_hold_256_connections(self):
        open_ones = []
        try:
            for _ in range(256):
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
                connection.request("GET", "/health")
                connection.getresponse().read()
                open_ones.append(connection)
            self.assertEqual(self.server.raw(b"GET /health HTTP/1.1\r\n\r\n"), b"")
        finally:
            for connection in open_ones:
                connection.close()
        wait_until(lambda: self.server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), "room for another")


class Busy(ProgramTest):
    """A slow device: requests are under way while others come, go and wait."""

    def start(self, *arguments):
        server = Server("--config", self.file("slow.yaml", SLOW_CONFIG), *arguments)
        self.addCleanup(server.stop)
        return server

    def stream(self, server, **fields):
        """A stream that has been admitted: its status line is here."""
        connection = post(server.connect(), {**ENDLESS, "stream": True, **fields})
        self.addCleanup(connection.close)
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        return connection, answer

    def close(self, connection, answer):
        answer.close()
        connection.close()

    def test_a_client_that_goes_away_frees_the_engine_whether_running_or_waiting(self):
        server = self.start()
        running = self.stream(server)
        next(stream_events(running[1]))
        waiting = self.stream(server)
        self.close(*waiting)
        self.close(*running)
        self.assertEqual(server.generate(prompt=PROMPT, max_tokens=1)[0], 200)

    def test_a_plain_request_whose_client_goes_away_frees_the_engine(self):
        server = self.start()
        connection = post(server.connect(), ENDLESS)
        wait_until(lambda: server.call("GET", "/health")[0] == 200, "health")
        connection.close()
        self.assertEqual(server.generate(prompt=PROMPT, max_tokens=1)[0], 200)

    def test_the_queue_is_bounded_and_a_full_one_asks_to_come_again(self):
        server = self.start("--set", "server.max_queue=1")
        running = self.stream(server)
        next(stream_events(running[1]))
        waiting = self.stream(server)
        status, headers, body = server.generate(**ENDLESS)
        self.assertEqual((status, body["error"]["code"]), (503, "queue_full"))
        self.assertGreater(int(headers["Retry-After"]), 0)
        self.close(*waiting)
        wait_until(lambda: self.admitted(server), "the place of the client that went away")

    def admitted(self, server):
        connection = post(server.connect(), {**ENDLESS, "stream": True})
        try:
            return connection.getresponse().status == 200
        finally:
            connection.close()

    def test_health_answers_while_a_request_runs(self):
        server = self.start()
        next(stream_events(self.stream(server)[1]))
        self.assertEqual(server.call("GET", "/health")[0], 200)
        self.assertEqual(server.call("GET", "/ready")[0], 200)

    def test_requests_are_answered_in_the_order_they_came(self):
        server = self.start()
        streams = [self.stream(server, max_tokens=2) for _ in range(3)]
        ended = []

        def read(index):
            self.assertEqual(list(stream_events(streams[index][1]))[-1], "[DONE]")
            ended.append(index)
        threads = [threading.Thread(target=read, args=(index,)) for index in (2, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(ended, [0, 1, 2])

    def test_the_first_interrupt_drains_and_exits_0(self):
        server = self.start()
        running = self.stream(server, max_tokens=4)
        next(stream_events(running[1]))
        idle = server.connect()
        idle.request("GET", "/health")
        idle.getresponse().read()
        server.interrupt()
        self.assertEqual(list(stream_events(running[1]))[-1], "[DONE]")
        self.assertEqual(server.wait_end(), 0, server.log)
        with self.assertRaises(ConnectionRefusedError):
            server.call("GET", "/health")

    def test_the_second_interrupt_ends_at_once(self):
        server = self.start()
        running = self.stream(server)
        next(stream_events(running[1]))
        server.interrupt()
        wait_until(lambda: any("Ctrl-C again" in line for line in server.log), "the first interrupt was seen")
        server.interrupt()
        self.assertEqual(server.wait_end(), 130)

    def test_a_device_that_fails_once_costs_one_request(self):
        config = SLOW_CONFIG.replace("backend_fake.latency_us: 8000", "backend_fake.error_at: 100")
        server = Server("--config", self.file("failing.yaml", config))
        self.addCleanup(server.stop)
        answers = [server.generate(prompt=PROMPT, **GREEDY) for _ in range(4)]
        self.assertEqual(sorted(answer[0] for answer in answers), [200, 200, 200, 503])
        failed, = [answer[2] for answer in answers if answer[0] == 503]
        self.assertEqual(failed["error"]["code"], "device_failed")


class Start(ProgramTest):
    def large_model(self):
        """A llama file whose weights are half a GiB of zeros without a byte on disk: it loads for a while."""
        dim, ffn, vocab = 1024, 1 << 17, 8
        metadata = [("general.architecture", "str", "llama"), ("llama.block_count", "u32", 1),
                    ("llama.context_length", "u32", 64), ("llama.embedding_length", "u32", dim),
                    ("llama.feed_forward_length", "u32", ffn), ("llama.attention.head_count", "u32", 8),
                    ("llama.attention.head_count_kv", "u32", 8),
                    ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5), ("llama.vocab_size", "u32", vocab)]
        shapes = {"token_embd.weight": (dim, vocab), "output_norm.weight": (dim,), "blk.0.attn_norm.weight": (dim,),
                  "blk.0.ffn_norm.weight": (dim,), "blk.0.ffn_gate.weight": (dim, ffn), "blk.0.ffn_up.weight": (dim, ffn),
                  "blk.0.ffn_down.weight": (ffn, dim)}
        for name in ("q", "k", "v", "output"):
            shapes[f"blk.0.attn_{name}.weight"] = (dim, dim)
        head, offset = gguf_file.struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(metadata)), 0
        head += b"".join(gguf_file.key_record(*entry) for entry in metadata)
        for name, ne in shapes.items():
            head += gguf_file.tensor_record(name, ne, 0, offset)
            offset += 4 * ne[0] * (ne[1] if len(ne) > 1 else 1)
        path = os.path.join(self.folder, "large.gguf")
        with open(path, "wb") as file:
            head = gguf_file.padded(head)
            file.write(head)
            file.truncate(len(head) + offset)
        return path

    def test_health_answers_while_the_model_loads_and_ready_does_not(self):
        server = Server(self.large_model(), "--device", "reference", "--moe-device", "reference", wait=False)
        self.addCleanup(server.stop)
        server.wait_listening()
        seen = [server.call("GET", "/health")[2]["model_loaded"]]
        status, headers, body = server.call("GET", "/ready")
        self.assertEqual((status, body["error"]["code"]), (503, "model_loading"))
        self.assertIn("Retry-After", headers)
        self.assertEqual(server.generate(prompt="x")[0], 503)
        self.assertEqual(server.call("GET", "/v1/models")[0], 200)
        server.wait_ready()
        wait_until(lambda: server.call("GET", "/ready")[0] == 200, "the model is ready")
        seen.append(server.call("GET", "/health")[2]["model_loaded"])
        self.assertEqual(seen, [False, True])

    def test_an_interrupt_while_loading_exits_130(self):
        server = Server(self.large_model(), "--device", "reference", "--moe-device", "reference", wait=False)
        self.addCleanup(server.stop)
        server.wait_listening()
        server.interrupt()
        self.assertEqual(server.wait_end(), 130, server.log)

    def test_an_interrupt_ends_a_run_with_130(self):
        config = self.file("slow.yaml", SLOW_CONFIG)
        process = subprocess.Popen([PROGRAM, "run", "--config", config, "-p", PROMPT, "-n", "1000", "--ignore-end"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    def test_the_table_shows_the_placement(self):
        server = Server(TINY, "--device", "cpu", "--moe-device", "{'cpu': 1, 'reference': 3}")
        self.addCleanup(server.stop)
        log = "\n".join(server.log)
        self.assertRegex(log, r"(?m)^moehost \d")
        self.assertRegex(log, r"plugin taken: +backend_reference")
        self.assertRegex(log, r"(?m)^ *cpu:0 .*\n *reference:0 ")

    def test_progress_for_programs_is_a_json_line_each(self):
        server = Server(TINY, "--progress", "ndjson")
        self.addCleanup(server.stop)
        lines = [json.loads(line) for line in server.log if line.startswith('{"')]
        self.assertEqual(lines[-1]["bytes_done"], lines[-1]["bytes_total"])

    def test_a_port_in_use_is_said_before_the_model_is_read(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.assertIn(port, self.refuse(69, "serve", "/no/such/model.gguf", "--port", port))

    def test_a_public_address_needs_to_be_asked_for_twice(self):
        for host in ("0.0.0.0", "::"):
            self.assertIn("--insecure-no-auth", self.refuse(78, "serve", TINY, "--host", host, "--port", "0"))
        server = Server(TINY, "--host", "0.0.0.0", "--insecure-no-auth")
        self.addCleanup(server.stop)
        self.assertTrue(any("without authentication" in line for line in server.log))
        self.assertEqual(server.call("GET", "/health")[0], 200)

    def test_a_model_that_does_not_load_ends_the_server_with_its_code(self):
        self.refuse(65, "serve", os.path.join(self.folder, "none.gguf"), "--port", "0")


if __name__ == "__main__":
    unittest.main()

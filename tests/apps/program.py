"""Runs the built program for the end-to-end tests: single calls, and a server in the background."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["TEST_PROGRAM"]
TREE = os.environ["TEST_TREE"]
TINY = os.path.join(TREE, "tests", "data", "tiny.gguf")
TINY_CONFIG = os.path.join(TREE, "configs", "tiny.yaml")
DEMO = os.path.join(TREE, "models", "demo-moe.gguf")
DEMO_DENSE = os.path.join(TREE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")

TIME_LIMIT_S = 240  # of one call: generous, because sanitizers and busy machines are slow


def moehost(*arguments, stdin=None, environment=None):
    """The finished process: returncode, stdout and stderr as text."""
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=TIME_LIMIT_S,
                          env={**os.environ, **(environment or {})})


def read_safetensors_f32(path, name):
    """(shape, bytes) of one tensor."""
    with open(path, "rb") as file:
        header_bytes, = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(header_bytes))[name]
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        file.seek(8 + header_bytes + begin)
        return entry["shape"], file.read(end - begin)


class ProgramTest(unittest.TestCase):
    """A test case with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def succeed(self, *arguments, **options):
        done = moehost(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refuse(self, code, *arguments, **options):
        """Exits with the code and says why on standard error only."""
        done = moehost(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn("error", done.stderr)
        return done.stderr


class Server:
    """`moehost serve` on a free port; leaves no process behind."""

    def __init__(self, *arguments, wait=True):
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", *arguments], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        self._listening = threading.Event()
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            address = re.search(r"(listening on|ready:) http://[^ ]*:(\d+)", line)
            if address:
                self.port = int(address[2])
                self._listening.set()
            if line.startswith("ready:"):
                self._ready.set()
        self._listening.set()
        self._ready.set()

    def wait_listening(self):
        self._listening.wait(TIME_LIMIT_S)
        if self.port is None:
            raise AssertionError("the server did not start:\n" + "\n".join(self.log))

    def wait_ready(self):
        self._ready.wait(TIME_LIMIT_S)
        if self.process.poll() is not None or self.port is None:
            raise AssertionError("the server did not start:\n" + "\n".join(self.log))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIME_LIMIT_S)

    def call(self, method, path, body=None, headers=None):
        """(status, headers, body as JSON)"""
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, dict(answer.getheaders()), json.loads(text) if text else None
        finally:
            connection.close()

    def generate(self, **fields):
        return self.call("POST", "/generate", fields)

    def raw(self, request, timeout=TIME_LIMIT_S):
        """Sends bytes as they are; everything that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            try:
                connection.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all was sent: the answer is read below
            answer = b""
            try:
                while piece := connection.recv(65536):
                    answer += piece
            except ConnectionResetError:
                pass
            return answer

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait_end(self):
        code = self.process.wait(TIME_LIMIT_S)
        self._reader.join(TIME_LIMIT_S)
        return code

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(TIME_LIMIT_S)
        self.process.stderr.close()


def stream_events(answer):
    """The data of server-sent events, as they come: JSON objects, and "[DONE]"."""
    for line in answer:
        line = line.decode().rstrip("\n")
        if line.startswith("data: "):
            data = line[len("data: "):]
            yield data if data == "[DONE]" else json.loads(data)
        elif line and not line.startswith(":"):
            raise AssertionError("not a line of a stream: " + line)


def wait_until(condition, what):
    deadline = time.monotonic() + TIME_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("did not happen: " + what)
        time.sleep(0.02)

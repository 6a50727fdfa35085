# SPDX-License-Identifier: Apache-2.0
"""A server under test, with a tiny model of bytes and random weights, and requests to it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENDS = [256, 258]  # <|endoftext|> and <|im_end|>, which end a text
CONTEXT = 128
WAIT = 120  # seconds, for what takes a moment


class Checks:
    def __init__(self):
        self.made = self.failed = 0
        self.lock = threading.Lock()

    def check(self, ok, what):
        with self.lock:
            self.made += 1
            if not ok:
                self.failed += 1
                print("FAILED:", str(what)[:2000], flush=True)
        return ok

    def same(self, got, want, what):
        return self.check(got == want, f"{what}: {got!r}, not {want!r}")

    def end(self, name, least):
        print(f"{name}: {self.made} checks, {self.failed} failed")
        sys.exit(self.failed > 0 or self.made < least)


def make_model(program, folder):
    """Its folder."""
    subprocess.run([ROOT / "scripts/make_chat_model", folder / "chat"], check=True)
    subprocess.run([program, "import", "chat", "--out", "model"], cwd=folder, check=True, capture_output=True)
    return folder / "model"


class Server:
    """A process of `serve`. What it writes to its standard error is in `errors` when it has stopped."""

    def __init__(self, program, model, *words, env=None):
        self.folder = tempfile.TemporaryDirectory()
        self.errors_path = Path(self.folder.name) / "errors"
        with open(self.errors_path, "w") as errors:
            self.process = subprocess.Popen(
                [program, "serve", "--checkpoint", model, "--port", "0", *words], stdout=subprocess.PIPE, stderr=errors,
                text=True, env={**os.environ, **(env or {})})
        self.said, self.port = [], None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("listening on http://"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        if self.port is None:
            self.process.wait()
            raise RuntimeError(f"no server: {self.errors()}")

    def errors(self):
        return self.errors_path.read_text()

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(WAIT)
        self.process.stdout.close()
        return code

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)

    def ask(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, bytes)"""
        own = connection or self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        own.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = own.getresponse()
        data = answer.read()
        if not connection:
            own.close()
        return answer.status, dict(answer.getheaders()), data

    def post(self, path, connection=None, **body):
        """(status, object)"""
        status, _, data = self.ask("POST", path, body, connection=connection)
        return status, json.loads(data)

    def complete(self, connection=None, **body):
        """The answer to a completion that must succeed."""
        status, answer = self.post("/v1/completions", connection, **body)
        if status != 200:
            raise RuntimeError(f"{status}: {answer}")
        return answer

    def events(self, path, **body):
        """The events of a stream; the last one is "[DONE]"."""
        status, headers, data = self.ask("POST", path, {**body, "stream": True})
        if status != 200 or not headers["Content-Type"].startswith("text/event-stream"):
            raise RuntimeError(f"{status}: {data}")
        parts = data.decode().split("\n\n")
        if parts.pop() != "" or not all(part.startswith("data: ") for part in parts):
            raise RuntimeError(f"no stream of events: {data}")
        return [part[6:] if part == "data: [DONE]" else json.loads(part[6:]) for part in parts]

    def raw(self, data):
        """What comes back for these bytes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            parts = []
            try:
                while part := s.recv(65536):
                    parts.append(part)
            except OSError:
                pass
            return b"".join(parts)

    def metric(self, name):
        data = self.ask("GET", "/metrics")[2].decode()
        return next(float(line.split()[-1]) for line in data.splitlines() if line.split()[0] == name)


@contextmanager
def serving(checks, program, model, *words, code=143, env=None):
    """A server that must end with this code when it is stopped."""
    server = Server(program, model, *words, env=env)
    try:
        yield server
    finally:
        got = server.stop()
        checks.same(got, code, f"exit code of serve {' '.join(words)}")
        checks.check("Sanitizer" not in server.errors(), server.errors())
        server.folder.cleanup()

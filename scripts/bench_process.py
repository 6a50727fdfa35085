# SPDX-License-Identifier: Apache-2.0
"""Runs one process for scripts/bench and says when it said what, and how much memory it took."""
import json
import os
import select
import subprocess
import sys
import time

TIME_LIMIT_S = 3600


class Failed(Exception):
    pass


class Process:
    """`lines` are pairs of seconds since the start and a line, from standard output or, with `metrics`,
    from the file that the argument METRICS names."""

    def __init__(self, command, metrics=False, env=None, cwd=None):
        self.command, self.lines, self.output, self.errors = command, [], b"", b""
        self.chunks = []  # of standard output, with their times
        metrics_in, metrics_out = os.pipe() if metrics else (None, None)
        command = [f"/dev/fd/{metrics_out}" if word == "METRICS" else word for word in command]
        self.start = time.monotonic()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
            env={**os.environ, **(env or {})}, pass_fds=[metrics_out] if metrics else [])
        try:
            if metrics:
                os.close(metrics_out)
            self.read_all(child, metrics_in)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if child.returncode is None:
                child.kill()
                child.wait()
            for pipe in (child.stdout, child.stderr):
                pipe.close()
            if metrics:
                os.close(metrics_in)
        self.seconds = time.monotonic() - self.start
        self.peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        if child.returncode:
            said = (self.errors + self.output).decode(errors="replace").strip().splitlines()[-8:]
            raise Failed("\n    ".join([f"{command[0]} ended with {child.returncode}", *said]))

    def read_all(self, child, metrics):
        out, errors = child.stdout.fileno(), child.stderr.fileno()
        open_files = {out, errors, metrics} - {None}
        told = metrics if metrics is not None else out
        waiting = b""
        while open_files:
            left = self.start + TIME_LIMIT_S - time.monotonic()
            ready, _, _ = select.select(open_files, [], [], max(left, 0))
            if not ready:
                raise Failed(f"{self.command[0]} took more than {TIME_LIMIT_S} s")
            at = time.monotonic() - self.start
            for file in ready:
                data = os.read(file, 1 << 16)
                if not data:
                    open_files.discard(file)
                if file == out:
                    self.output += data
                    self.chunks.append((at, data))
                elif file == errors:
                    self.errors += data
                if file == told:
                    *whole, waiting = (waiting + data).split(b"\n")
                    self.lines += [(at, line.decode(errors="replace")) for line in whole]

    def events(self):
        """The lines that are JSON objects: pairs of seconds and a dict."""
        return [(at, json.loads(line)) for at, line in self.lines if line.startswith("{")]


class Training:
    """What a training process has shown: its steps' times but for the first `dropped`, the time to its first
    step, and the most memory it had."""

    def __init__(self, process, steps, dropped):
        events = process.events()
        times = [event["ms"] / 1000 for _, event in events if event["event"] == "step"]
        if len(times) != steps:
            raise Failed(f"{process.command[0]} made {len(times)} steps of {steps}")
        self.steps = times[dropped:]
        self.first_step = next(at for at, event in events if event["event"] == "start")
        self.first_step_done = next(at for at, event in events if event["event"] == "step")
        self.peak_bytes = process.peak_bytes
        self.loss = [event["loss"] for _, event in events if event["event"] == "step"][-1]

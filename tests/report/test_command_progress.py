# SPDX-License-Identifier: Apache-2.0
"""The progress of commands that take long: on a terminal a line that is gone at the end, at errors and at signals; without
one nothing, or plain lines where these are asked for. What a command prints otherwise is the same.
usage: test_command_progress.py PROGRAM"""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RUN = """
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 2, sequence_length: 16, max_steps: 2, eval_every: 0,
  sample_tokens: 0, model_save_interval: 2, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_blocks: 2, num_heads: 2, num_groups: 2,
  max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 2, tp: 1}}
"""


def screen(data):
    """What stands on a terminal that got these bytes: carriage returns and cleared lines."""
    rows, at = [""], 0
    for piece in re.split(rb"(\r\n|\n|\r|\x1b\[K|\x1b\[\d*m)", data):
        if piece in (b"\n", b"\r\n"):
            rows.append("")
            at = 0
        elif piece == b"\r":
            at = 0
        elif piece == b"\x1b[K":
            rows[-1] = rows[-1][:at]
        elif piece and not piece.startswith(b"\x1b"):
            text = piece.decode()
            rows[-1] = rows[-1][:at] + text + rows[-1][at + len(text):]
            at += len(text)
    return "\n".join(rows).rstrip("\n")


class Program:
    def __init__(self, c, path):
        self.c, self.path = c, str(path)

    def plain(self, *words, **env):
        done = subprocess.run([self.path, *words], capture_output=True, env={**os.environ, **env})
        return done.returncode, done.stdout, done.stderr

    def terminal(self, *words, stop_at=None, stop_with=None, columns=100, **env):
        """With standard error on a terminal; stop_at: bytes in its output at which a signal is sent."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([self.path, *words], stdout=subprocess.PIPE, stderr=slave,
                                   env={**os.environ, "TERM": "xterm", **env})
        os.close(slave)
        said, is_stopped = b"", False
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            said += data
            if stop_at and not is_stopped and stop_at in said:
                process.send_signal(stop_with)
                is_stopped = True
        out = process.stdout.read()
        os.close(master)
        return process.wait(), out, said


def without_times(text):
    return re.sub(rb"[\d.,]+ (s|MB/s|tokens/s|documents/s|requests/s)\b|sha256 \w+", b"N", text)


def check_command(c, p, words, phases, made=()):
    """On a terminal, in a pipe, in a pipe with lines, and quiet."""
    def run(kind, *more):
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
            Path(path).unlink(missing_ok=True) if os.path.isfile(path) else None
        return kind(*words, *more)

    want = run(p.plain, "--progress", "never")
    c.check(want[0] == 0 and b"\x1b" not in want[2], f"{words}: {want}")
    auto = run(p.plain)
    c.same((auto[0], without_times(auto[1]), auto[2]), (0, without_times(want[1]), want[2]), f"{words} in a pipe")
    code, out, said = run(p.terminal, "--progress", "0")
    c.same((code, without_times(out)), (0, without_times(want[1])), f"{words} on a terminal")
    c.same(screen(said), want[2].decode().rstrip("\n"), f"{words}: what stays on the terminal")
    for phase in phases:
        c.check(f"\r\x1b[K{phase} ".encode() in said, f"{words}: no '{phase}' in {said!r}")
    widest = max(len(x) for x in re.split(rb"\r\x1b\[K|\r?\n", said))
    c.check(widest < 100 or widest <= max(len(x) for x in want[2].split(b"\n")), f"{words}: {widest} columns")
    _, out, lines = run(p.plain, "--progress", "0")
    c.same(without_times(out), without_times(want[1]), f"{words} with lines")
    c.check(b"\x1b" not in lines and b"\r" not in lines, f"{words}: {lines!r}")
    for phase in phases:
        c.check(re.search(rf"^{phase}: \d+%, .* of .*, ETA [\d:-]+$".encode(), lines, re.M), f"{words}: no line of '{phase}' in {lines!r}")
    code, _, said = run(p.terminal, "--progress", "0", "--quiet")
    c.same((code, b"%" in said), (0, False), f"{words} --quiet: {said!r}")


def check_sweep(c, p):
    """The run whose check fails says why on a clean line, in a process of its own."""
    words = ["sweep", "--config", "run.yaml", "--set", "num_heads=[1, 2, 3]", "--set", "num_groups=1", "--set", "eval_every=2", "--out", "none",
             "--progress"]
    want = p.plain(*words, "never")
    code, out, said = p.terminal(*words, "0")
    c.same((code, out, screen(said)), (2, b"", want[2].decode().rstrip("\n")), "a sweep's check that fails")
    c.check(b"run 3 (num_heads=3 " in want[2] and b"checking [" in said, f"{said!r}")


def check_terminals(c, p):
    words = ["tokenize", "text.txt", "--out", "t.bin", "--progress", "0"]
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        Path("t.bin").unlink(missing_ok=True)
        said = p.terminal(*words, **env)[2]
        c.check(b"\x1b" not in said and re.search(rb"^tokenizing: 100%, ", said, re.M), f"{env}: {said!r}")
    said = p.terminal(*words[:-2])[2]
    c.same(said, b"", "nothing before two seconds")
    narrow = p.terminal(*words, columns=20)[2]
    c.check(max(len(x) for x in re.split(rb"\r\x1b\[K", narrow)) < 20 and b"tokenizing  100%" in narrow, f"{narrow!r}")
    for value in ("soon", "-1", "1e9", ""):
        code, _, said = p.plain(*words[:-1], value)
        c.check(code == 2 and b"--progress" in said, f"--progress {value}: {code} {said!r}")


def check_error(c, p):
    """A bad line behind many good ones."""
    line = '{"text": "a line of some words"}\n'
    Path("bad.jsonl").write_text(line * 100_000 + "{\n")
    want = p.plain("tokenize", "bad.jsonl", "--out", "bad.bin", "--progress", "never")
    code, out, said = p.terminal("tokenize", "bad.jsonl", "--out", "bad.bin", "--progress", "0")
    c.same((code, out), want[:2], "an error behind progress")
    c.check(code == 2 and b"tokenizing [" in said, f"{said[:300]!r}")
    c.same(screen(said), want[2].decode().rstrip("\n"), "an error on a clean line")


def check_signals(c, p):
    """A command that stops by itself, and one that a signal ends."""
    Path("long.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400_000)
    code, _, said = p.terminal("tokenize", "long.txt", "--out", "long.bin", "--progress", "0", "--threads", "1", stop_at=b"tokenizing [",
                               stop_with=signal.SIGINT)
    c.check(code == 130 and screen(said) == "", f"SIGINT: {code} {said!r}")
    prove = ["check", "--config", "run.yaml", "--prove", "--progress", "0"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        code, _, said = p.terminal(*prove, stop_at=b"proving: one rank [", stop_with=number)
        c.same((code, screen(said)), (128 + number, "tessera-train: ended by a signal"), f"signal {number}: {said!r}")


def main():
    c = Checks()
    p = Program(c, Path(sys.argv[1]).resolve())
    os.environ["TESSERA_SHARE"] = str(ROOT)
    for name in ("NO_COLOR", "TESSERA_COMM_TRACE"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("run.yaml").write_text(RUN)
        Path("other.yaml").write_text(RUN.replace("lr: 0.01", "lr: 0.02"))
        Path("text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
        code, _, said = p.plain("train", "--config", "run.yaml", "--out", "run", "--quiet")
        c.check(code == 0, said)
        check_command(c, p, ["tokenize", "text.txt", "--out", "t.bin"], ["tokenizing"], ["t.bin"])
        check_command(c, p, ["export", "run", "--out", "hf"], ["verifying", "exporting"], ["hf"])
        check_command(c, p, ["export", "run", "--format", "gguf", "--out", "m.gguf"], ["verifying", "exporting"], ["m.gguf"])
        check_command(c, p, ["import", "hf", "--out", "imported"], ["importing"], ["imported"])
        check_command(c, p, ["checkpoint", "verify", "run"], ["verifying"])
        check_command(c, p, ["checkpoint", "reshard", "run", "--shards", "2", "--out", "two"], ["verifying", "writing"], ["two"])
        check_command(c, p, ["checkpoint", "diff", "run", "run"], ["comparing"])
        check_command(c, p, ["evaluate", "--checkpoint", "run", "--data", "text.txt"], ["loading", "evaluating"])
        check_command(c, p, ["verify", "run"], ["repeating"])
        check_command(c, p, ["compare", "run.yaml", "run.yaml", "--steps", "2"], ["repeating"])
        check_command(c, p, ["trace", "--config", "run.yaml", "--save", "saved", "--steps", "1-2"], ["repeating"], ["saved"])
        check_command(c, p, ["check", "--config", "run.yaml", "--prove"], ["proving: one rank", "proving: the mesh", "proving: the interpreter"])
        check_command(c, p, ["report", "run", "run", "--html", "runs.html"], ["reading"], ["runs.html"])
        check_command(c, p, ["sweep", "--config", "run.yaml", "--set", "lr=[0.01, 0.02]", "--set", "eval_every=2", "--out", "swept"],
                      ["checking"], ["swept"])
        check_sweep(c, p)
        check_terminals(c, p)
        check_error(c, p)
        check_signals(c, p)
        os.chdir(ROOT)
    c.end("report.command_progress", 140)


main()

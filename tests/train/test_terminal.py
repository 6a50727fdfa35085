#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run writes to a terminal: a progress line, but none with NO_COLOR, TERM=dumb or --quiet; and after a signal
its last line says 'stopped', of the step that its checkpoint has, and not 'done'. A sample that is shown has colours.
usage: test_terminal.py PROGRAM"""

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """\
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 8, max_steps: 1000000,
  num_epochs: 1000000, eval_every: 0, sample_tokens: 0, tokenizer_type: byte, log_every: 10}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
numerics: {threads: 1}
"""
BAR = re.compile(rb"\r(\x1b\[[0-9]*[a-zA-Z])*step [0-9]+/1000000")
SECONDS = 120  # a run that does not end is a failure

checks = failed = 0


def check(holds: bool, what: str, said: bytes) -> None:
    global checks, failed
    checks += 1
    if not holds:
        failed += 1
        print(f"FAILED: {what}; the terminal shows {said[-300:]!r}")


def on_terminal(words: list[str], folder: str, more: dict[str, str], number: int, until: re.Pattern[bytes]) -> tuple[int, bytes]:
    """Runs it on a terminal of its own; gives it the signal when `until` is there. Its exit code and all that it wrote."""
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")} | {"TERM": "xterm"} | more
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                          start_new_session=True) as run:
        os.close(theirs)
        signal.signal(signal.SIGALRM, lambda *_: run.kill())
        signal.alarm(SECONDS)
        said, sent = b"", False
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # nobody has the other end any more
                break
            if not part:
                break
            said += part
            if not sent and until.search(said[-65536:]):
                run.send_signal(number)
                sent = True
        signal.alarm(0)
    os.close(ours)
    return run.returncode, said


def main() -> int:
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.yaml").write_text(RUN, encoding="ascii")
        Path(folder, "text.txt").write_text(" ".join(str(i * i) for i in range(2000)), encoding="ascii")
        words = [program, "--config", "run.yaml"]
        cases = [("a terminal", {}, signal.SIGINT, True), ("a terminal", {}, signal.SIGTERM, True),
                 ("an empty NO_COLOR", {"NO_COLOR": ""}, signal.SIGINT, True),
                 ("NO_COLOR", {"NO_COLOR": "1"}, signal.SIGINT, False),
                 ("TERM=dumb", {"TERM": "dumb"}, signal.SIGINT, False)]
        for i, (what, more, number, draws) in enumerate(cases):
            # behind so many steps that a line that is drawn has been drawn
            code, said = on_terminal(words + ["--out", f"out{i}"], folder, more, number, re.compile(rb"Step 2000:"))
            what = f"{what}, {number.name}"
            check(code == 128 + number, f"{what}: exit code {code}", said)
            check(bool(BAR.search(said)) == draws, f"{what}: {'no' if draws else 'a'} progress line", said)
            if not draws:
                check(b"\x1b" not in said and b"\r" not in said.replace(b"\r\n", b""), f"{what}: control characters", said)
            last = said.decode().rstrip().splitlines()[-1]
            found = re.search(r"stopped: step ([0-9]+), loss [0-9.]+, weights sha256 [0-9a-f]{64}, recipe [0-9a-f]{32}$", last)
            check(bool(found), f"{what}: the last line is {last!r}", said)
            check(b"done:" not in said, f"{what}: says done", said)
            step = int(found[1]) if found else -1
            check(Path(folder, f"out{i}", "checkpoints", f"step-{step:08}").is_dir(), f"{what}: no checkpoint of step {step}", said)
        code, said = on_terminal(words + ["--quiet", "--set", "training_config.max_steps=30"], folder, {}, signal.SIGINT, re.compile(rb"Step 2000:"))
        check(code == 0 and said == b"", f"--quiet: exit code {code}", said)
        for what, more, coloured in [("a terminal", {}, True), ("NO_COLOR", {"NO_COLOR": "1"}, False),
                                     ("TERM=dumb", {"TERM": "dumb"}, False)]:
            code, said = on_terminal([program, "data", "show", "--config", "run.yaml"], folder, more, signal.SIGINT,
                                     re.compile(rb"there is no such text"))
            check(code == 0 and (b"\x1b[32m" in said) == coloured, f"data show, {what}: {'no' if coloured else 'a'} colour", said)
            check(("⟦".encode() in said) != coloured, f"data show, {what}: marks and colours", said)
    print(f"train.terminal: {checks} checks, {failed} failed")
    return 1 if failed or checks < 25 else 0


if __name__ == "__main__":
    sys.exit(main())

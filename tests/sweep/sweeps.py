# SPDX-License-Identifier: Apache-2.0
"""What the tests of sweeps share: a small run, commands, and a trainer that is a function."""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402,F401

RUN = """\
training_config: {{seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 2, sequence_length: 8, max_steps: {steps}, num_epochs: 100000,
  eval_every: {every}, validation_batch_size: 2, sample_tokens: 0, model_save_interval: {save},
  optimizer: {{type: AdamW, lr: 0.01}}}}
transformer_config: {{model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1, max_sequence_length: 8}}
numerics: {{threads: 1, units: {{batch: 2}}}}
"""
# Writes the metrics that a run up to --stop-at would have, with the loss of a function of x and the step.
TRAINER = """\
import json, os, signal, sys
words = sys.argv[1:]
value = lambda option: words[words.index(option) + 1] if option in words else None
out, stop = value("--out"), int(value("--stop-at") or {steps})
x = [w.split("=", 1)[1] for w in words if w.startswith("eval_config.top_k=")][0]
open("starts.txt", "a").write(f"{{x}} {{stop}}\\n")
losses = json.load(open("losses.json"))[x]
loss = losses[str(stop)]
if loss == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if loss == "exit":
    sys.exit(3)
lines = [{{"event": "start"}}, {{"event": "step", "step": stop, "loss": 1.0}}, {{"event": "eval", "step": stop, "loss": loss}},
         {{"event": "end", "step": stop, "loss": 1.0, "reason": "stop_at", "weights_sha256": "f" * 64}}]
open(out + "/metrics.jsonl", "w").write("".join(json.dumps(line) + "\\n" for line in lines))
"""


class Sweeps:
    def __init__(self, c, program):
        self.c, self.program = c, os.path.abspath(program)
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        os.environ["TESSERA_SHARE"] = str(Path(__file__).resolve().parents[2])
        Path("train.txt").write_text("".join(f"Line {i * 7919 % 1000} of the text; " for i in range(60)))

    def config(self, name="run.yaml", steps=8, every=2, save=100, more=""):
        Path(name).write_text(RUN.format(steps=steps, every=every, save=save) + more)

    def run(self, *words, code=0, says=""):
        done = subprocess.run([self.program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        said = done.stdout + done.stderr
        self.c.check((code is None or done.returncode == code) and says in said, f"{words}: {done.returncode}, not {code} with {says!r}: {said}")
        return said

    def sweep(self, out, *words, code=0, says="", config="run.yaml"):
        return self.run("sweep", "--config", config, "--out", out, *words, code=code, says=says)

    def launcher(self, losses, steps):
        """Options for a trainer whose losses are losses[x][step]; x is the value of top_k, which no run reads."""
        Path("trainer.py").write_text(TRAINER.format(steps=steps))
        Path("losses.json").write_text(json.dumps(losses))
        Path("starts.txt").write_text("")
        return ["--launcher", f"{sys.executable} trainer.py"]


def rows(out):
    """The table, a dictionary a line."""
    return list(csv.DictReader(io.StringIO(Path(out, "sweep.csv").read_text())))


def decisions(out):
    lines = [json.loads(line) for line in Path(out, "decisions.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "rung"]

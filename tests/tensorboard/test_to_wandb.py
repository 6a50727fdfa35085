# SPDX-License-Identifier: Apache-2.0
"""scripts/to_wandb: what the client of Weights & Biases is given of lines with texts of any characters, of a line that is cut off
and of a file that has something else. The client is a module that writes its calls to a file.
usage: test_to_wandb.py"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/to_wandb"
CLIENT = """\
import json
calls = open("calls.jsonl", "w")
class Html(str):
    pass
class Run:
    config = summary = {}
    def log(self, values, step):
        calls.write(json.dumps([step, values]) + "\\n")
    def finish(self):
        calls.close()
def init(**kwargs):
    return Run()
"""
TEXT = "a\u2028b\u2029c\x85d<&\x7f\u00a0é"  # what Python's splitlines takes for ends of lines, and JSON does not escape
STEPS = [{"event": "step", "step": n, "loss": 2.5 / n, "grad_norm": None, "lr": 0.1, "tokens": 8 * n, "tokens_per_s": 9, "ms": 7} for n in (1, 2)]
LINES = [{"event": "start", "config": "run.yaml"}, *STEPS, {"event": "eval", "step": 2, "loss": 1.5, "perplexity": 4.5},
         {"event": "sample", "step": 2, "text": TEXT}]


def give(folder, text):
    Path(folder, "metrics.jsonl").write_bytes(text)
    calls = Path(folder, "calls.jsonl")
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, cwd=folder, env={**os.environ, "PYTHONPATH": folder})
    return done, [json.loads(line) for line in calls.open()]


def main():
    c = Checks()
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES).encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "wandb.py").write_text(CLIENT)
        tags = {"optimizer/learning_rate": 0.1, "throughput/tokens_per_s": 9, "throughput/step_ms": 7}
        want = [[1, {"loss/train": 2.5, "throughput/tokens": 8, **tags}],
                [2, {"loss/train": 1.25, "throughput/tokens": 16, **tags, "loss/validation": 1.5, "perplexity/validation": 4.5,
                     "sample": f"<pre>{TEXT.replace('&', '&amp;').replace('<', '&lt;')}</pre>"}]]
        for name, more in (("whole lines", b""), ("a line that is cut off", b'{"event":"sample","step":3,"text":"a\xe2\x80\xa8b')):
            done, calls = give(folder, text + more)
            c.check(done.returncode == 0 and b"2 steps of " in done.stdout, f"{name}: {done.returncode} {done.stderr}")
            c.same(calls, want, name)
        done, calls = give(folder, text + b'{"event":\n')
        c.check(done.returncode == 1 and b"metrics.jsonl:6: no JSON" in done.stderr, f"no JSON: {done.returncode} {done.stderr}")
        c.same(calls, [], "calls for what is no JSON")
    c.end("tensorboard.to_wandb", 6)


main()

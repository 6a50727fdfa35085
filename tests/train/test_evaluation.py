# SPDX-License-Identifier: Apache-2.0
"""The loss of an evaluation is the mean over the samples of its batches, whatever dp adds to fill them, with the
same bits on every mesh. Of a model that predicts 0 it is known: the mean square of the targets.
usage: test_evaluation.py PROGRAM"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS, VALIDATION = 40, 10  # of the table; ten batches of n samples take each validation row n times
SIZES = range(1, 13)  # of an evaluation batch
FEATURES, TARGETS = 6, 1

TABLE = """name: rows
sizes: {{input_features: ~, output_features: ~}}
inputs:
  features: {{shape: [batch, input_features], dtype: f32}}
  values: {{shape: [batch, output_features], dtype: f32}}
parameters:
  w: {{shape: [8, input_features], init: "{init}"}}
  v: {{shape: [output_features, 8], init: "{init}"}}
graph:
- h: linear(features, w)
{graph}
outputs: [loss, y]
"""
ROWS_ALONE = "- a: tanh(h)\n- y: linear(a, v)\n- loss: mse(y, values)"
REDUCED = "- a: tanh(h)\n- y: linear(a, v)\n- part: mse(y, values)\n- loss: all_reduce(part, axis=dp)"
SAMPLES_LAST = """- a: tanh(h)
- y: linear(a, v)
- p: transpose(y, dim0=0, dim1=1)
- q: transpose(values, dim0=0, dim1=1)
- loss: mse(p, q)"""
SAMPLES_JOINED = """- s: matmul(h, h, transpose_a=1)
- m: matmul(h, s)
- a: tanh(m)
- y: linear(a, v)
- loss: mse(y, values)"""
GATHERED = "- g: all_gather(h, axis=dp)\n- a: tanh(g)\n- y: linear(a, v)\n- loss: mse(y, values)"

BATCH_COUNTED = "- a: tanh(h)\n- s: scale(a, factor=batch)\n- y: linear(s, v)\n- loss: mse(y, values)"

TEXT = """transformer_config:
  {model_type: llama, vocab_size: 256, embedding_dim: 8, num_blocks: 2, num_heads: 2, num_groups: 2,
   max_sequence_length: 8}
"""


class Checks:
    """Runs one configuration after the other, and counts what is wrong."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = str(Path(program).resolve()), folder
        self.compared = self.wrong = 0

    def say(self, what: str) -> None:
        self.wrong += 1
        print(what)

    def loss(self, config: str, settings: dict[str, str]) -> float | None:
        """The evaluation's loss, all of its digits."""
        (self.folder / "run.yaml").write_text(config)
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run(
            [self.program, "--config", "run.yaml", "--quiet", "--metrics", "run.jsonl", *words],
            cwd=self.folder, capture_output=True, text=True, timeout=60)
        if done.returncode:
            return self.say(f"{settings}: exit code {done.returncode}\n{done.stderr}")
        lines = [json.loads(line) for line in (self.folder / "run.jsonl").read_text().split("\n") if line]
        return next(line["loss"] for line in lines if line["event"] == "eval")

    def meshes(self, name: str, config: str, meshes: list[dict[str, int]], more: dict[str, str],
               known: float | None = None) -> None:
        """All sizes of a batch on all meshes; the first mesh is one rank."""
        for size in SIZES:
            losses = []
            for mesh in meshes:
                settings = {"training_config.validation_batch_size": str(size), **more}
                if mesh:
                    settings["mesh"] = f"{{axes: [{', '.join(mesh)}], shape: {list(mesh.values())}}}"
                losses.append(self.loss(config, settings))
                self.compared += 1
                if losses[-1] != losses[0]:
                    self.say(f"{name}, {size} samples: the loss is {losses[-1]} on {mesh}, {losses[0]} on one rank")
                if known and (losses[-1] is None or abs(losses[-1] - known) > 1e-6 * known):
                    self.say(f"{name}, {size} samples: the loss is {losses[-1]} on {mesh}, not {known}")


# Its update changes no weight, so meshes may have units of a batch of their own.
def training(data: str, samples: int) -> str:
    return f"""training_config:
  {{seed: 5, {data}, batch_size: {samples}, max_steps: 1, eval_every: 1, sample_tokens: 0, num_epochs: 100,
   optimizer: {{type: SGD, lr: 1.0e-20}}}}
"""


def inline(config: str, graph: Path) -> str:
    """The configuration with the graph itself in the place of the model that names it."""
    lines = [line for line in config.split("\n") if not line.startswith("mlp_config")]
    sizes = f"sizes: {{input_features: {FEATURES}, output_features: {TARGETS}}}"
    inside = [sizes if line.startswith("sizes:") else line for line in graph.read_text().split("\n")]
    return "\n".join([*lines, "graph:", *("  " + line for line in inside)]) + "\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checks = Checks(sys.argv[1], folder)
        rng = random.Random(3)
        table = [[round(rng.gauss(0, 1), 3) for _ in range(FEATURES + TARGETS)] for _ in range(ROWS)]
        (folder / "rows.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in table))
        squares = [x * x for row in table[-VALIDATION:] for x in row[FEATURES:]]
        known = sum(squares) / len(squares)
        rows = training(f"data_path: rows.csv, validation_fraction: {VALIDATION / ROWS}", 12)
        rows += f"mlp_config: {{graph: graph.yaml, input_features: {FEATURES}, output_features: {TARGETS}}}\n"
        rows += "numerics: {units: {tp: 1}, threads: 1}\n"
        axes = [{}] + [{"dp": n} for n in (2, 3, 4, 6)]

        def graph(text: str, init: str) -> None:
            (folder / "graph.yaml").write_text(TABLE.format(graph=text, init=init))

        graph(ROWS_ALONE, "zeros")
        checks.meshes("zeros", rows, axes[:1] + axes[2:4], {}, known)
        for what, text, meshes in (("rows", ROWS_ALONE, axes), ("reduced", REDUCED, axes),
                                   ("samples last", SAMPLES_LAST, axes[:3]),
                                   ("joined", SAMPLES_JOINED, axes[:3]), ("gathered", GATHERED, axes[:3]),
                                   ("counted", BATCH_COUNTED, axes[:3])):
            graph(text, "normal(0.3)")
            checks.meshes(what, rows, meshes, {})
        checks.meshes("counted, in the configuration", inline(rows, folder / "graph.yaml"), axes[:3], {})
        graph(ROWS_ALONE, "normal(0.3)")
        checks.meshes("sharded", rows, axes[:1] + axes[2:4], {"zero.stage": "3"})
        graph(SAMPLES_JOINED, "normal(0.3)")
        checks.meshes("joined, sharded", rows, axes[:1] + axes[2:3], {"zero.stage": "3"})

        letters = "".join(rng.choice("abcdefgh \n") for _ in range(2000))
        (folder / "text.txt").write_text(letters)
        text = training("data_path: text.txt, tokenizer_type: byte, sequence_length: 8", 12) + TEXT
        text += "numerics: {units: {sequence: 4, tp: 2}, threads: 1}\n"
        checks.meshes("text", text, axes[:3] + [{"dp": 6}, {"cp": 2}, {"dp": 3, "cp": 2}, {"dp": 3, "tp": 2},
                                          {"dp": 3, "pp": 2}], {})
        zigzag = {"device_config.cp_layout": "zigzag"}
        checks.meshes("zigzag", text, [{}, {"dp": 3, "cp": 2}], zigzag)
        print(f"{checks.compared} evaluations, {checks.wrong} complaints")
        return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

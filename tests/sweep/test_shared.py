# SPDX-License-Identifier: Apache-2.0
"""Steps that runs of a sweep share are made once: the weights, losses and recipes are those of the same runs alone.
usage: test_shared.py PROGRAM"""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from sweeps import Checks, Sweeps, decisions, rows


def end_of(out):
    lines = [json.loads(line) for line in Path(out, "metrics.jsonl").open()]
    steps = {line["step"]: line["loss"] for line in lines if line["event"] == "step"}
    return steps, lines[-1]["weights_sha256"], lines[-1]["recipe"]


def made_of(out):
    """The steps that the run has made itself."""
    lines = [json.loads(line) for line in Path(out, "run.lock").read_text().splitlines()]
    return [line["step"] for line in lines if line["event"] == "step"]


def starts(said):
    return re.findall(r"^(prefix-\d+|run \d+) .*: starts", said, re.M)


def check_alone(c, s, out, config="run.yaml", more=()):
    """Each run against the same one by itself."""
    for row in rows(out):
        sets = [word for key, value in row.items() if "." in key for word in ("--set", f"{key}={value}")]
        alone = f"{out}-alone-{row['run']}"
        s.run("train", "--config", config, "--out", alone, *sets, *more, "--stop-at", row["steps"], "--quiet")
        steps, sha, recipe = end_of(alone)
        own, own_sha, own_recipe = end_of(f"{out}/{row['folder']}")
        c.same((own_sha, own_recipe, row["weights_sha256"]), (sha, recipe, sha), f"{out}, run {row['run']}: its weights and recipe")
        c.same(own, steps, f"{out}, run {row['run']}: its losses, from step 1 on")


def check_schedules(c, s):
    s.config(steps=12, every=3, more="scheduler_config: {type: wsd, warmup_steps: 2, min_lr: 0.001}\n")
    words = ["--set", "hold_steps=[3, 6, 8]", "--set", "seed=1..2", "--set", "min_lr=[0.001, 0.002]", "--jobs", "2"]
    said = s.sweep("wsd", *words)
    # With the same seed: 6 steps are of all, 3 more of two holds, 2 more of the third; the rest of each alone.
    steps = [int(n) for n in re.findall(r"^prefix-\d+ \(to step (\d+), of several runs\)", said, re.M)]
    c.same(sorted(steps), [6, 6, 9, 9, 11, 11], "the ends of the prefixes")
    own = {r["hold_steps"]: made_of(f"wsd/{r['folder']}")
           for r in ({**row, "hold_steps": row["scheduler_config.hold_steps"]} for row in rows("wsd"))}
    c.same(own, {"3": list(range(7, 13)), "6": list(range(10, 13)), "8": [12]}, "the steps that runs make themselves")
    check_alone(c, s, "wsd")
    s.run("verify", "wsd/run-001", says="verified")
    again = s.sweep("wsd", *words)
    c.same(starts(again), [], "what the same command starts again")

    s.config(steps=12, every=3)
    said = s.sweep("longer", "--set", "max_steps=[4, 8, 12]")
    c.same(starts(said), ["prefix-001", "prefix-002", "run 1", "run 2", "run 3"], "longer and longer runs at a constant rate")
    check_alone(c, s, "longer")
    for key, values in [("weight_decay", "[0, 0.1]"), ("eval_every", "[2, 3]"), ("batch_size", "[2, 4]"), ("lr", "[0.01, 0.02]"),
                        ("max_steps", "[11, 12]")]:
        schedule = ["--set", "scheduler_config={type: linear, warmup_steps: 0}"] if key == "max_steps" else []
        said = s.sweep(f"apart-{key}", "--set", f"{key}={values}", *schedule)
        c.same(starts(said), ["run 1", "run 2"], f"runs that differ in {key} share steps")
    said = s.sweep("best", "--set", "max_steps=[4, 8]", "--set", "checkpoint.keep_best=1")
    c.same(starts(said), ["run 1", "run 2"], "runs that keep their best checkpoints share steps")


def check_halving(c, s):
    """The first rung begins with the shared steps."""
    s.config(name="half.yaml", steps=8, every=4, more="""\
scheduler_config: {type: wsd, warmup_steps: 0}
sweep:
  parameters: {hold_steps: [2, 5, 6], lr: [0.01, 0.02]}
  method: {halving: {eta: 2, min_steps: 4, max_steps: 8}}
""")
    said = s.sweep("half", config="half.yaml")
    c.same([(r["state"], r["steps"]) for r in rows("half")], [("done", "8")] * 3 + [("stopped", "4")] * 3, "the rungs")
    c.same(len(decisions("half")), 1, "the decisions")
    c.same(re.findall(r"prefix-\d+ \(to step (\d+)", said), ["3", "3"], "the prefixes before the first rung")
    check_alone(c, s, "half", "half.yaml")


def check_kills(c, s):
    """A sweep that is killed at any line of its output ends like one that is not."""
    random.seed(5)
    s.config(steps=12, every=3, save=2, more="scheduler_config: {type: wsd, warmup_steps: 2}\n")
    words = ["--set", "hold_steps=[3, 6, 8]", "--set", "max_steps=[12, 14]"]
    s.sweep("whole", *words)
    command = [s.program, "sweep", "--config", "run.yaml", "--out", "killed", *words]
    for lines in [1, 2, 3, 1, 4, 2]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(lines):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    s.sweep("killed", *words)
    c.same(Path("killed/sweep.csv").read_text(), Path("whole/sweep.csv").read_text(), "the table after kills")


def check_failures(c, s):
    """Steps that cannot be shared are made by each run."""
    s.config(steps=8, every=4)
    said = s.sweep("nan", "--set", "lr=[1e38]", "--set", "max_steps=[6, 8]", code=1, says="2 of 2 runs failed")
    c.check("prefix-001: failed: exit code 1, see nan/prefix-001/log.txt" in said, said)
    words = ["--set", "max_steps=[6, 8]"]
    s.sweep("lost", *words)
    want = Path("lost/sweep.csv").read_text()
    shutil.rmtree("lost/run-002")
    shutil.rmtree("lost/prefix-001/checkpoints")
    journal = Path("lost/decisions.jsonl")
    journal.write_text("".join(line for line in journal.read_text().splitlines(True) if '"run":2' not in line))
    c.same(starts(s.sweep("lost", *words)), ["prefix-001", "run 2"], "a prefix whose checkpoint is gone is trained again")
    c.same(Path("lost/sweep.csv").read_text(), want, "the table after that")


def check_damage(c, s):
    """Runs that cannot fork from a prefix make its steps themselves."""
    s.config(steps=8, every=4, more="scheduler_config: {type: wsd, warmup_steps: 2}\n")
    words = ["--set", "hold_steps=[3, 5, 6]"]
    s.sweep("damaged", *words)
    want = Path("damaged/sweep.csv").read_text()
    nodes = [path.parts[1] for path in sorted(Path("damaged").glob("prefix-*"))]
    c.same(nodes, ["prefix-001", "prefix-002"], "the prefixes")
    for path in Path("damaged").glob("prefix-*/checkpoints/step-*/rank-00000.safetensors"):
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
    for run in ("run-001", "run-002", "run-003"):
        shutil.rmtree(f"damaged/{run}")
    journal = Path("damaged/decisions.jsonl")
    journal.write_text(journal.read_text().splitlines(True)[0])
    said = s.sweep("damaged", *words, says="cannot begin behind prefix-001, see damaged/run-001/log.txt")
    c.same(starts(said), ["run 1", "run 1", "run 2", "run 2", "run 3"], "what is started: a prefix is tried once")
    c.same(Path("damaged/sweep.csv").read_text(), want, "the table after that")


def main():
    c = Checks()
    s = Sweeps(c, sys.argv[1])
    check_schedules(c, s)
    check_halving(c, s)
    check_kills(c, s)
    check_failures(c, s)
    check_damage(c, s)
    c.end("sweep.shared", 80)


main()

# SPDX-License-Identifier: Apache-2.0
"""Checks of many runs of one configuration."""
import csv
import io

from feature import feature
from training import expect, gpt

LR, SEED = "training_config.optimizer.lr", "training_config.seed"


def table(c, out):
    return list(csv.DictReader(io.StringIO(c.read(f"{out}/sweep.csv"))))


def alone(c, row, steps):
    """The run of a row of the table, trained by itself: the hash of its weights."""
    out = f"alone-{row['run']}"
    sets = [word for key in (LR, SEED) for word in ("--set", f"{key}={row[key]}")]
    c.run("train", "--config", "run.yaml", "--out", out, "--stop-at", steps, *sets, "--quiet")
    return c.metrics(f"{out}/metrics.jsonl")[-1]["weights_sha256"]


@feature("sweep: grids, ranges and draws as runs; the table is that of the same runs alone, and continues after kill -9")
def sweeps(c):
    gpt(c)
    words = ("sweep", "--config", "run.yaml", "--set", "sweep.metric=loss/train")
    c.run(*words, "--out", "grid", "--set", "lr=[0.01, 0.003]", "--set", "seed=1..2", "--jobs", "2").says("run-004", "report.html")
    rows = table(c, "grid")
    expect(sorted((r[LR], r[SEED]) for r in rows) == [("0.003", "1"), ("0.003", "2"), ("0.01", "1"), ("0.01", "2")], f"{rows}")
    for row in rows:
        expect(row["weights_sha256"] == alone(c, row, "100000"), f"run {row['run']} has other weights than by itself")
    whole, journal = c.read("grid/sweep.csv"), c.read("grid/decisions.jsonl")
    c.write("grid/decisions.jsonl", "".join(journal.splitlines(True)[:3]) + '{"event"')  # as kill -9 may leave it
    c.run(*words, "--out", "grid", "--set", "lr=[0.01, 0.003]", "--set", "seed=1..2")
    expect(c.read("grid/sweep.csv") == whole, "another table after an interruption")
    c.run(*words, "--out", "draws", "--set", "lr=log_uniform(1e-4, 1e-2)", "--random", "2", "--sweep-seed", "7")
    expect(all(1e-4 <= float(r[LR]) <= 1e-2 for r in table(c, "draws")), "draws outside their ends")
    c.run(*words, "--out", "other", "--set", "sead=1..2", code=2).says("did you mean 'seed'?")


@feature("sweep by successive halving: the best of each rung go on with the bits of runs that nothing stopped")
def halving(c):
    gpt(c)
    halves = "sweep={metric: loss/train, method: {halving: {eta: 2, min_steps: 1, max_steps: 2}}}"
    c.run("sweep", "--config", "run.yaml", "--out", "half", "--set", halves, "--set", "lr=[0.01, 0.003]", "--set", "seed=1..2")
    rows = table(c, "half")
    expect([r["steps"] for r in rows] == ["2", "2", "1", "1"], f"{rows}")
    for row in rows:
        expect(row["weights_sha256"] == alone(c, row, row["steps"]), f"run {row['run']} has other weights than by itself")


@feature("sweep: runs with the same learning rates up to a step make these steps once, with the bits of separate runs")
def shared_steps(c):
    gpt(c)
    key = "scheduler_config.hold_steps"
    wsd = ("--set", "scheduler_config={type: wsd, warmup_steps: 1}", "--set", "training_config.max_steps=6")
    c.run("sweep", "--config", "run.yaml", "--out", "shared", "--set", "sweep.metric=loss/train", *wsd, "--set", "hold_steps=[2, 4]").says(
        "prefix-001 (to step 4, of several runs): starts", "run 2 (hold_steps=4): starts behind step 4 of prefix-001")
    for row in table(c, "shared"):
        out = f"alone-{row['run']}"
        c.run("train", "--config", "run.yaml", "--out", out, *wsd, "--set", f"{key}={row[key]}", "--quiet")
        expect(c.metrics(f"{out}/metrics.jsonl")[-1]["weights_sha256"] == row["weights_sha256"], f"run {row['run']}: other weights")

# SPDX-License-Identifier: Apache-2.0
"""Successive halving against its definition (Hyperband, algorithm 1, one bracket), over losses that are functions: which
runs are trained to which steps, what is decided, and the table; and one sweep of real runs.
usage: test_halving.py PROGRAM"""

import itertools
import json
import math
import random
import sys
from pathlib import Path

from sweeps import Checks, Sweeps, decisions, rows


def bracket(losses, n, eta, least, most):
    """(starts, decisions, table): runs 1 … n, losses[run][step]. By counting who is better, without a sort of its own."""
    def better(a, b, step):
        x, y = (losses[r][step] if isinstance(losses[r][step], float) else math.inf for r in (a, b))
        return x < y or (x == y and a < b)

    alive, step, rung, starts, decided, ends = list(range(1, n + 1)), least, 0, [], [], {}
    while True:
        starts += [(run, step) for run in alive]
        rank = {run: sum(better(other, run, step) for other in alive) for run in alive}
        ranking = sorted(alive, key=rank.get)
        ends |= {run: (rung, rank[run], step) for run in alive}
        if step == most:
            break
        kept = [run for run in ranking if rank[run] < max(1, len(alive) // eta) and isinstance(losses[run][step], float)]
        decided.append({"event": "rung", "rung": rung, "ranking": ranking, "kept": kept})
        alive, step, rung = sorted(kept), step * eta, rung + 1
    table = sorted(ends, key=lambda run: (-ends[run][0], ends[run][1]))
    return starts, decided, [(run, ends[run][2]) for run in table]


def check_case(c, s, number, losses, n, eta, least, most):
    """Run i has top_k i."""
    s.config(name="half.yaml", steps=most, every=1, more=f"""\
sweep:
  parameters: {{top_k: 1..{n}}}
  method: {{halving: {{eta: {eta}, min_steps: {least}, max_steps: {most}}}}}
""")
    fake = s.launcher({str(run): {str(k): v for k, v in steps.items()} for run, steps in losses.items()}, most)
    out = f"case-{number}"
    starts, decided, table = bracket(losses, n, eta, least, most)
    failed = any(losses[run][step] == "exit" for run, step in starts)
    s.sweep(out, *fake, "--jobs", "3", config="half.yaml", code=int(failed), says="runs failed" if failed else "")
    got = [tuple(map(int, line.split())) for line in Path("starts.txt").read_text().splitlines()]
    case = f"n {n}, eta {eta}, {least} to {most} steps, losses {losses}"
    c.same(sorted(got), sorted(starts), f"{case}: which runs are trained")
    c.same([step for _, step in got], sorted(step for _, step in got), f"{case}: a rung begins before the last one is decided")
    c.same(decisions(out), decided, f"{case}: the decisions")
    c.same([(int(r["run"]), int(r["steps"])) for r in rows(out) if r["state"] != "failed"],
           [x for x in table if losses[x[0]][x[1]] != "exit"], f"{case}: the table")


def check_cases(c, s):
    random.seed(11)
    cases = [(9, 3, 1, 9), (8, 2, 1, 8), (7, 3, 2, 18), (2, 2, 3, 6), (5, 4, 1, 1), (3, 5, 1, 25), (1, 2, 1, 2)]
    for number, (n, eta, least, most) in enumerate(cases):
        steps = [least * eta**k for k in range(12) if least * eta**k <= most]
        some = [0.5, 1.0, 1.5] if number % 2 else [random.random() for _ in range(50)]  # with ties
        losses = {run: {step: random.choice(some) for step in steps} for run in range(1, n + 1)}
        if number == 2:
            losses[1][least], losses[4][least], losses[6][steps[1]] = "exit", None, None
        if number == 3:
            losses[1][3] = losses[2][3] = None  # none goes on
            s_losses = losses
            check_none(c, s, s_losses)
            continue
        check_case(c, s, number, losses, n, eta, least, most)


def check_none(c, s, losses):
    s.config(name="half.yaml", steps=6, every=1,
             more="sweep: {parameters: {top_k: 1..2}, method: {halving: {eta: 2, min_steps: 3, max_steps: 6}}}\n")
    fake = s.launcher({str(run): {str(k): v for k, v in steps.items()} for run, steps in losses.items()}, 6)
    s.sweep("none", *fake, config="half.yaml")
    c.same(decisions("none"), [{"event": "rung", "rung": 0, "ranking": [1, 2], "kept": []}], "the decision where none has a loss")
    c.same([(r["run"], r["state"]) for r in rows("none")], [("1", "stopped"), ("2", "stopped")], "the table of these")


def check_failed(c, s):
    """A rung whose runs have all failed is not decided: the same command tries them again."""
    s.config(name="half.yaml", steps=2, every=1,
             more="sweep: {parameters: {top_k: 1..2}, method: {halving: {eta: 2, min_steps: 1, max_steps: 2}}}\n")
    losses = {run: {"1": "exit", "2": 0.5} for run in "12"}
    s.sweep("failed", *s.launcher(losses, 2), config="half.yaml", code=1, says="2 of 2 runs failed")
    c.same(decisions("failed"), [], "the decisions where all runs failed")
    losses["1"]["1"], losses["2"]["1"] = 1.0, 0.5
    s.sweep("failed", *s.launcher(losses, 2), config="half.yaml")
    c.same(decisions("failed"), [{"event": "rung", "rung": 0, "ranking": [2, 1], "kept": [2]}], "the decision about them after that")


def check_journal(c, s):
    """A journal with a decision behind the last one."""
    path = Path("case-0/decisions.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, '{"event":"rung","rung":2,"ranking":[1],"kept":[1]}\n']))
    s.config(name="half.yaml", steps=9, every=1,
             more="sweep: {parameters: {top_k: 1..9}, method: {halving: {eta: 3, min_steps: 1, max_steps: 9}}}\n")
    s.sweep("case-0", config="half.yaml", code=2, says=f"decisions.jsonl:{len(lines) + 1}:1: error: this is no line of a sweep with 9 runs")


def check_real(c, s):
    """The winner has the bits of a run that nothing stopped; the others those of their first steps."""
    s.config(name="real.yaml", steps=8, every=2, more="""\
scheduler_config: {type: cosine, warmup_steps: 2}
sweep:
  parameters: {lr: 'log_uniform(1e-3, 1e-1)', seed: 1..50}
  method: {halving: {eta: 2, min_steps: 2, max_steps: 8, runs: 4, seed: 5}}
""")
    s.sweep("real", config="real.yaml")
    table = rows("real")
    c.same([r["steps"] for r in table], ["8", "4", "2", "2"], "the steps of the runs")
    for row in table:
        words = itertools.chain(*(("--set", f"{k}={v}") for k, v in row.items() if k.startswith("training_config.")))
        s.run("--config", "real.yaml", "--out", f"alone-{row['run']}", "--stop-at", row["steps"], *words, "--quiet")
        lines = [json.loads(line) for line in Path(f"alone-{row['run']}/metrics.jsonl").open()]
        evals = [line["loss"] for line in lines if line["event"] == "eval"]
        c.same((row["weights_sha256"], float(row["loss/validation"])), (lines[-1]["weights_sha256"], evals[-1]),
               f"run {row['run']} and the same run alone")


def main():
    c = Checks()
    s = Sweeps(c, sys.argv[1])
    check_cases(c, s)
    check_journal(c, s)
    check_failed(c, s)
    check_real(c, s)
    c.end("sweep.halving", 40)


main()

# SPDX-License-Identifier: Apache-2.0
"""Sweeps over a grid and at random: their runs are those of train, their tables are exact, and what is wrong with one is
said before anything starts.
usage: test_tables.py PROGRAM"""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from sweeps import Checks, Sweeps, rows

LR, SEED = "training_config.optimizer.lr", "training_config.seed"
MASK = (1 << 64) - 1


# ---- the draws, by the definition of Philox4x32-10 and of the key ----

def philox(low, high, key):
    x = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


def splitmix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_key(seed, name, number):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return splitmix(splitmix(splitmix(seed) ^ value) ^ number)


def uniform(seed, key, run, attempt=0):
    words = philox(run, attempt, random_key(seed, key, 0))
    return ((words[0] << 32 | words[1]) >> 11) * 2.0**-53


# ---- tests ----

def check_grid(c, s):
    s.config()
    said = s.sweep("grid", "--set", "lr=[1e-2, 3e-3]", "--set", "seed=1..3", "--jobs", "2")
    got = {row["run"]: (row[LR], row[SEED]) for row in rows("grid")}
    want = {str(i + 1): (lr, str(seed)) for i, (lr, seed) in enumerate((x, y) for x in ["1e-2", "3e-3"] for y in (1, 2, 3))}
    c.same(got, want, "the runs of a grid")
    table = rows("grid")
    order = sorted(table, key=lambda row: (float(row["loss/validation"]), int(row["run"])))
    c.same([row["run"] for row in table], [row["run"] for row in order], "the order of the table")
    for row in table:
        out = f"alone-{row['run']}"
        s.run("train", "--config", "run.yaml", "--out", out, "--set", f"{LR}={row[LR]}", "--set", f"{SEED}={row[SEED]}", "--quiet")
        lines = [json.loads(line) for line in Path(out, "metrics.jsonl").open()]
        evals = [line["loss"] for line in lines if line["event"] == "eval"]
        c.same((row["weights_sha256"], float(row["loss/validation"]), row["steps"], row["state"]),
               (lines[-1]["weights_sha256"], evals[-1], "8", "done"), f"run {row['run']} and the same run alone")
    data = json.loads(Path("grid/sweep.json").read_text())
    c.same([(str(r["run"]), r["values"][LR], r["objective"], r["folder"]) for r in data["runs"]],
           [(r["run"], r[LR], float(r["loss/validation"]), r["folder"]) for r in table], "sweep.json and sweep.csv")
    c.same((data["method"], data["metric"]), ("grid", "loss/validation"), "the head of sweep.json")
    shown = said.split("folder\n")[1].splitlines()[: len(table)]
    c.same([line.split() for line in shown],
           [[r["run"], r[LR], r[SEED], "done", "8", f"{float(r['loss/validation']):.4f}", r["folder"]] for r in table], "the text")
    page = Path("grid/report.html").read_text()
    c.check(all(f"grid/run-00{i}" in page for i in range(1, 7)), "report.html has not all runs")
    # The same command again runs nothing.
    before = {p: p.stat().st_mtime_ns for p in Path("grid").glob("run-*/*")}
    again = s.sweep("grid", "--set", "lr=[1e-2, 3e-3]", "--set", "seed=1..3")
    c.check("starts" not in again and before == {p: p.stat().st_mtime_ns for p in Path("grid").glob("run-*/*")}, "a run ran again")
    c.same(rows("grid"), table, "the table of the same command again")


def check_random(c, s):
    words = ["--set", "lr=log_uniform(1e-4, 1e-1)", "--set", "weight_decay=uniform(0, 0.5)", "--set", "model_save_interval=uniform(1,4)",
             "--set", "seed=10..40:10", "--random", "5", "--sweep-seed", "7"]
    s.config(steps=1)
    s.sweep("random", *words, "--jobs", "2")
    for row in rows("random"):
        u = {key: uniform(7, key, int(row["run"])) for key in row if "." in key}
        decay, batch = "training_config.optimizer.weight_decay", "training_config.model_save_interval"
        low, high = math.log(1e-4), math.log(1e-1)
        want = {LR: float(f"{math.exp(low + u[LR] * (high - low)):.6g}"), decay: float(f"{0.5 * u[decay]:.6g}"),
                batch: 1 + int(u[batch] * 4), SEED: 10 + 10 * int(u[SEED] * 4)}
        c.same({key: float(row[key]) for key in want}, want, f"the values of random run {row['run']}")
    # The draws of a key do not depend on other parameters.
    s.sweep("fewer", "--set", "lr=log_uniform(1e-4, 1e-1)", "--random", "3", "--sweep-seed", "7")
    lrs = {row["run"]: row[LR] for row in rows("random")}
    c.same({row["run"]: row[LR] for row in rows("fewer")}, {run: lrs[run] for run in "123"}, "the draws with fewer parameters")
    # Six digits of most numbers between these ends are beyond one of them.
    low, high = 0.012345651, 0.012345699
    s.sweep("narrow", "--set", f"lr=uniform({low}, {high})", "--set", f"weight_decay=log_uniform({low}, {high})", "--random", "5")
    for row in rows("narrow"):
        for key in (LR, "training_config.optimizer.weight_decay"):
            c.check(low <= float(row[key]) <= high, f"{key} of random run {row['run']} is {row[key]}, beyond {low} to {high}")
    s.sweep("all", "--set", "seed=1..4", "--random", "4")
    c.same(sorted(row[SEED] for row in rows("all")), ["1", "2", "3", "4"], "as many draws as there are values")
    s.sweep("none", "--set", "seed=1..4", "--random", "5", code=2, says="5 runs are asked for, and the values have 4 combinations")


def check_section(c, s):
    s.config(name="section.yaml", steps=2, more="""\
sweep:
  parameters:
    lr: [0.01, 0.02]
    num_heads: [1, 2]
    mesh_shape: [[1, 1], [2, 1]]
  metric: loss/train
device_config: {enable_ddp: true, enable_tp: true}
""")
    s.sweep("section", "--set", "lr=[0.03]", config="section.yaml")
    table = rows("section")
    c.same({(r[LR], r["transformer_config.num_heads"], r["device_config.mesh_shape"]) for r in table},
           {("0.03", h, m) for h in "12" for m in ("[1, 1]", "[2, 1]")}, "the section's runs, lr from the command line")
    s.sweep("fixed", "--set", f"{LR}=0.04", "--set", "transformer_config.num_heads=1", "--set", "seed=2", config="section.yaml")
    c.same([(r[LR], r["transformer_config.num_heads"], r[SEED]) for r in rows("fixed")], [("0.04", "1", "2")] * 2,
           "values of the command line in place of the section's")
    hashes = {(r["transformer_config.num_heads"], r["weights_sha256"]) for r in table}
    c.same(len(hashes), 2, "how many weights two models have on two meshes each")
    last = [json.loads(line) for line in Path("section/run-001/metrics.jsonl").open()][-1]
    (first,) = [r for r in table if r["run"] == "1"]
    c.same(float(first["loss/train"]), last["loss"], "the metric loss/train")
    s.run("train", "--config", "section.yaml", "--quiet")  # which does not read the section
    s.run("--config", "section.yaml", "--print-config")


def check_errors(c, s):
    s.config()
    for word, says in [
            ("lr=[1e-3, 1e-3]", "--set:1:11: error: 'lr' has the value 1e-3 twice"),
            ("lr=[1e-3, 2e-3, 0.001]", "--set:1:17: error: 'lr' has the value 1e-3 twice"),
            ("seed=[9007199254740992, 9007199254740993, x]", "run 3 (seed=x):"),
            ("num_heads=[1, 1.0]", "'num_heads' has the value 1 twice"),
            ("checkpoint_dir=[a, b]", "--set:1:1: error: 'checkpoint_dir' is no parameter: each run has its checkpoints in its own folder"),
            ("checkpoint.dir=[a, b]", "'checkpoint.dir' is no parameter"),
            ("lr=uniform(-1e308, 1e308)", "--set:1:4: error: 'uniform(-1e308, 1e308)': the range is too wide"),
            ("lr=3..1", "'3..1': the range ends before it begins"),
            ("lr=1..", "'1..' is no range of integers"),
            ("seed=1..3:0", "the step of a range is at least 1"),
            ("seed=0..9223372036854775807", "the range is too long"),
            ("seed=1..9223372036854775807", "the grid has more combinations than can be counted"),
            ("seed=1..1000000000", "the sweep has 1,000,000,000 runs, and 10,000 at most are possible"),
            ("lr=uniform(1, 2)", "a grid needs the values of 'lr'"),
            ("lr=unifrom(1, 2)", "did you mean 'uniform'?"),
            ("lr=uniform(1)", "'uniform(1)' does not have two numbers"),
            ("lr=uniform(2, 1)", "the first number must be below the second"),
            ("lr=log_uniform(0, 1)", "a logarithm needs numbers above 0"),
            ("seed=uniform(0.5, 3)", "'seed' is an integer, so both ends are integers"),
            ("lr=[]", "'lr' has no values"),
            ("lr=[1, ~]", "a value of 'lr' is empty"),
            ("type=[a, b]", "one of: training_config.optimizer.type, scheduler_config.type, collectives.transport.type"),
            ("nosuch=[1, 2]", "no key of a configuration ends with 'nosuch'"),
            ("embeding_dim=[4, 8]", "did you mean 'embedding_dim'?"),
            ("training_config.optimiser.lr=[1, 2]", "did you mean 'training_config.optimizer.lr'?"),
            ("lr=[1, -2]", "run 2 (lr=-2):\n--set:1:30: error: 'lr' must be above 0"),
            ("seed=[1, x]", "run 2 (seed=x):\n--set:1:22: error: 'seed' must be an integer"),
            ("num_heads=[2, 3]", "run 2 (num_heads=3):\n"),
            ("training_config.max_steps=[3", "error: not YAML"),
            ("eval_every=[2, 0]", "run 2 (eval_every=0):\nerror: the run has no validation loss to compare"),
            ("data_path=[train.txt, none.txt]", "run 2 (data_path=none.txt):")]:
        s.sweep("wrong", "--set", word, code=2, says=says)
    s.sweep("wrong", "--set", "lr=[1]", "--set", f"{LR}=[2]", code=2, says=f"'lr' and '{LR}' are both '{LR}'")
    for words in (["--set", f"{LR}=0.5"], ["--set", "lr=[0.1, 0.2]"]), (["--set", "lr=[0.1, 0.2]"], ["--set", f"{LR}=0.5"]):
        s.sweep("wrong", *words[0], *words[1], code=2, says=f":1: error: '{LR}' is of all runs here, and 'lr' is a parameter")
    scheduler = ["--set", "scheduler_config={type: wsd, hold_steps: 2}"]
    s.sweep("wrong", "--set", "hold_steps=[1, 2]", *scheduler, code=2, says="'scheduler_config' is of all runs here, with the parameter 'hold_steps' in it")
    s.sweep("wrong", code=2, says="the sweep has no parameters")
    s.run("sweep", "--config", "run.yaml", "--set", "seed=1..2", code=2, says="no folder to write")
    s.sweep("wrong", "--set", "seed=1..2", "--jobs", "0", code=2, says="--jobs")
    s.run("sweep", "--config", "-", "--out", "wrong", "--set", "seed=1..2", code=2, says="it cannot come from a pipe")
    c.check(not os.path.exists("wrong"), "a sweep that is wrong has made its folder")
    s.sweep("train.txt", "--set", "seed=1..2", code=2, says="cannot make the folder")
    s.run("train", "--config", "run.yaml", "--out", "a_run", "--quiet")
    s.sweep("a_run", "--set", "seed=1..2", code=2, says="'a_run' is the folder of a run")
    for section, says in [("{parameters: [1]}", "parameters are a map"),
                          ("{parameters: {lr: uniform(1, 2)}}", "in braces quotes are needed"), ("{parametres: {lr: [1]}}", "did you mean 'parameters'?"),
                          ("{metric: bleu}", "a metric is loss/validation or loss/train"), ("{method: tpe}", "a method is grid"),
                          ("{method: {random: {}}}", "random needs runs"), ("{method: {random: {runs: 0}}}", "at least 1"),
                          ("{method: {bayes: {}}}", "there is no method 'bayes'"), ("[1]", "'sweep' is a map"),
                          ("{method: {halving: {eta: 2}}}", "halving needs min_steps"),
                          ("{method: {halving: {eta: 1, min_steps: 2}}}", "'eta' must be an integer, at least 2"),
                          ("{method: {halving: {eta: 2, min_steps: 3}}}", "6 and 12 would do"),
                          ("{method: {halving: {eta: 2, min_steps: 9, max_steps: 8}}}", "min_steps is 9, above max_steps, 8"),
                          ("{method: {halving: {eta: 2, min_steps: 8, max_steps: 16}}}", "a rung is at step 16, behind"),
                          ("{method: {halving: {eta: 2, min_steps: 1}}}", "step 1, a rung of the halving, has no evaluation")]:
        s.config(name="wrong.yaml", more=f"sweep: {section}\n")
        s.sweep("wrong", "--set", "seed=1..2", code=2, says=says, config="wrong.yaml")
    s.config(name="wrong.yaml", every=0, more="sweep: {method: {halving: {eta: 2, min_steps: 2}}}\n")
    s.sweep("wrong", "--set", "seed=1..2", code=2, says="the run has no validation loss to compare", config="wrong.yaml")
    c.check(not os.path.exists("wrong"), "a section that is wrong has made the folder")


def check_continued(c, s):
    """What a folder of a sweep is, and what is refused in one."""
    s.config(steps=2)
    s.sweep("kept", "--set", "seed=1..2")
    for words, says in [(["--set", "seed=1..3"], f"'sweep.parameters.{SEED}' is 1..3 in this sweep, and 1..2 in that one"),
                        (["--set", "seed=1..2", "--set", f"{LR}=0.5"], f"'{LR}' is 0.5 in this sweep, and 0.01 in that one"),
                        (["--set", "seed=1..2", "--set", "sweep.metric=loss/train"], "'sweep.metric' is loss/train in this"),
                        (["--set", "seed=1..2", "--random", "2"], "'sweep.method' is random: 2 runs, seed 0 in this")]:
        s.sweep("kept", *words, code=2, says=says)
    for more in ([], ["--resume"], ["--overwrite"]):
        s.run("train", "--config", "run.yaml", "--out", "kept", *more, code=2, says="'kept' is the folder of a sweep")
    s.sweep("kept", "--set", "seed=1..2", "--set", "training_config.log_every=1", "--set", "numerics.threads=2")  # may change
    data = Path("train.txt").read_text()
    Path("train.txt").write_text(data.replace("3", "4", 1))
    s.sweep("kept", "--set", "seed=1..2", code=2, says="'content of train.txt' is ")
    Path("train.txt").write_text(data)
    path, text = Path("kept/decisions.jsonl"), Path("kept/decisions.jsonl").read_text()
    path.write_text(text[:-20])  # a line that is cut off is one that was not written
    again = s.sweep("kept", "--set", "seed=1..2")
    c.check(re.findall(r"run \d \(seed=\d\): starts", again) == ["run 2 (seed=2): starts"], f"after a cut line: {again}")
    c.same(path.read_text(), text, "the journal after a line was cut off")
    # The run was killed behind its last checkpoint, before the evaluation that it is compared by.
    table = Path("kept/sweep.csv").read_text()
    path.write_text("".join(line for line in text.splitlines(True) if '"run":2' not in line))
    metrics = Path("kept/run-002/metrics.jsonl")
    metrics.write_text("".join(line for line in metrics.open() if '"eval"' not in line and '"end"' not in line))
    s.sweep("kept", "--set", "seed=1..2")
    c.same(Path("kept/sweep.csv").read_text(), table, "the table after a kill before the last evaluation")
    for wrong in ['{"event":"result","run":9,"rung":0,"step":1}', '{"event":"rung","rung":0}',
                  '{"event":"rung","rung":0,"ranking":[1,2],"kept":[1]}', "{", "[]", '{"event":"result"}']:
        path.write_text(text + wrong + "\n")
        s.sweep("kept", "--set", "seed=1..2", code=2, says="decisions.jsonl:4:1: error: this is no line of a sweep with 2 runs")
    path.write_text("my notes")
    s.sweep("kept", "--set", "seed=1..2", code=2, says="this is no line of a sweep")
    c.same(path.read_text(), "my notes", "another's file")


def check_failures(c, s):
    """Runs that fail do not end the others, and are tried again."""
    s.config(steps=4)
    said = s.sweep("fails", "--set", "lr=[1e38, 0.01]", code=1, says="1 of 2 runs failed")
    c.check("run 1 (lr=1e38): failed: exit code 1, see fails/run-001/log.txt" in said, said)
    c.check("the loss is" in Path("fails/run-001/log.txt").read_text(), "the log has not the reason")
    c.same([(r["run"], r["state"]) for r in rows("fails")], [("2", "done"), ("1", "failed")], "the table with a failed run")
    losses = {"5": {"4": 1.5}, "6": {"4": "crash"}, "7": {"4": "exit"}, "8": {"4": None}}
    fake = s.launcher(losses, 4)
    s.sweep("crashes", "--set", "top_k=5..8", *fake, code=1, says="Segmentation fault")
    c.same([(r["run"], r["state"]) for r in rows("crashes")], [("1", "done"), ("2", "failed"), ("3", "failed"), ("4", "done")],
           "the table with crashes; a loss that is no number is behind")
    losses["6"]["4"] = losses["7"]["4"] = 0.5
    fake = s.launcher(losses, 4)
    s.sweep("crashes", "--set", "top_k=5..8", *fake)
    c.same(Path("starts.txt").read_text(), "6 4\n7 4\n", "what the second sweep has run")
    c.same([r["run"] for r in rows("crashes")], ["2", "3", "1", "4"], "equal losses are in the order of the runs")
    # A launcher may report success of a run that has ended before its last step.
    Path("wrap.sh").write_text('"$@" --set training_config.log_every=1 $(cat more.txt)\nexit 0\n')
    s.config(steps=4)
    for number, (more, code, said) in enumerate([("--stop-at 2", 1, "failed: it has ended after step 2 of 4"),
                                                 ("--nosuch", 1, "failed: it has no metrics"), ("", 0, "step 4")]):
        Path("more.txt").write_text(more)
        out = s.sweep("early" if number != 1 else "early-1", "--set", "seed=[1]", "--launcher", "sh wrap.sh", code=code, says=said)
        c.same(out.count(": starts\n"), 2 if number == 0 else 1, f"{more}: the starts, again behind a new checkpoint: {out}")
    c.same([(r["state"], r["steps"]) for r in rows("early")], [("done", "4")], "the table after that")
    said = s.sweep("nothing", "--set", "seed=1..2", "--launcher", "no-such-launcher -n 2", code=1, says="failed: exit code 127")
    c.check("report:" not in said and not Path("nothing/report.html").exists(), "a page of runs without metrics")
    c.check("cannot run 'no-such-launcher'" in Path("nothing/run-001/log.txt").read_text(), "the log of a missing launcher")


def main():
    c = Checks()
    s = Sweeps(c, sys.argv[1])
    check_grid(c, s)
    check_random(c, s)
    check_section(c, s)
    check_errors(c, s)
    check_continued(c, s)
    check_failures(c, s)
    c.end("sweep.tables", 90)


main()

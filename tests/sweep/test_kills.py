# SPDX-License-Identifier: Apache-2.0
"""Sweeps that are killed and continued: the table, the decisions and the weights are those of a sweep that nothing
disturbed, no process is left, and no two sweeps have one folder.
usage: test_kills.py PROGRAM [QUICK]"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from sweeps import Checks, Sweeps

WAIT = 120


def begin(s, out, *words, config="half.yaml"):
    command = [s.program, "sweep", "--config", config, "--out", out, "--jobs", "2", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)


def results(out):
    """What a sweep leaves, without what depends on the order of the runs in time."""
    return Path(out, "sweep.csv").read_text(), [x for x in Path(out, "decisions.jsonl").read_text().splitlines() if '"rung",' in x]


def trainers(out):
    """Processes that train into the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"train" in words and any(word.startswith(out.encode() + b"/run-") for word in words):
            found.append(int(entry.name))
    return found


def gone(c, out, what):
    for _ in range(WAIT * 20):
        if not trainers(out):
            return
        time.sleep(0.05)
    c.check(False, f"{what}: {trainers(out)} still train")


def check_kills(c, s, times):
    """Each sweep is killed behind a number of lines of its output, which is drawn, until one reaches its end."""
    random.seed(3)
    s.config(name="half.yaml", steps=8, every=2, save=1, more="""\
sweep:
  parameters: {lr: 'log_uniform(1e-3, 1e-1)', seed: 1..50}
  method: {halving: {eta: 2, min_steps: 2, max_steps: 8, runs: 6, seed: 5}}
""")
    s.sweep("whole", config="half.yaml")
    want = results("whole")
    kills = 0
    for number in range(times):
        out = f"killed-{number}"
        while True:
            process, lines = begin(s, out), random.randint(1, 9)
            for _ in range(lines):
                process.stdout.readline()
            time.sleep(random.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            said = process.stdout.read()
            code = process.wait()
            gone(c, out, f"sweep {number} was killed")
            kills += code == -signal.SIGKILL
            if code != -signal.SIGKILL:
                c.same(code, 0, f"the end of sweep {number}: {said}")
                break
        c.same(results(out), want, f"sweep {number} after its kills")
    c.check(kills > times, f"only {kills} sweeps were killed")


def check_signals(c, s):
    """A request to end is handed on: the runs leave checkpoints, and the same command continues."""
    s.config(name="long.yaml", steps=1000000, every=0, save=0)
    # A launcher that ends with success, whatever ends its process.
    Path("wrap.sh").write_text("trap 'kill -TERM $p' TERM INT\n\"$@\" & p=$!\nwait $p; wait $p\nexit 0\n")
    for number, words in (signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGTERM, ["--launcher", "sh wrap.sh"]):
        out = f"signal-{number.name}-{len(words)}"
        process = begin(s, out, "--set", "seed=1..3", "--set", "sweep.metric=loss/train", *words, config="long.yaml")
        metrics = [Path(out, f"run-00{run}", "metrics.jsonl") for run in (1, 2)]
        for path in metrics:
            while not (path.exists() and '"step",' in path.read_text()):
                time.sleep(0.02)
        process.send_signal(number)
        said, _ = process.communicate(timeout=WAIT)
        c.same(process.returncode, 128 + number, f"{number.name}: the exit code; {said}")
        c.check("stopped: the same command continues the sweep" in said, f"{number.name}: {said}")
        c.check(not trainers(out), f"{number.name}: a run goes on")
        for run in (1, 2):
            c.check(list(Path(out, f"run-00{run}", "checkpoints").glob("step-*")), f"{number.name}: run {run} left no checkpoint")
            c.check('"reason":"signal"' in metrics[run - 1].read_text(), f"{number.name}: run {run} has another end")
        c.check(not Path(out, "run-003").exists(), f"{number.name}: run 3 was started")
        c.check('"result"' not in Path(out, "decisions.jsonl").read_text(), f"{number.name}: a run that was stopped has a result")
    # Another sweep in the folder of one that runs.
    process = begin(s, "locked", "--set", "seed=1..2", "--set", "sweep.metric=loss/train", config="long.yaml")
    while not Path("locked", "run-001", "metrics.jsonl").exists():
        time.sleep(0.02)
    said = s.sweep("locked", "--set", "seed=1..2", "--set", "sweep.metric=loss/train", config="long.yaml", code=2)
    c.check(f"process {process.pid} on" in said, f"a second sweep: {said}")
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone(c, "locked", "a sweep was killed")


def check_last_sample(c, s):
    """A signal in the sample behind a run's last step: the sweep that continues has the sample."""
    s.config(name="sample.yaml", steps=2, every=0, save=0)
    words = ["--set", "seed=1..2", "--set", "sweep.metric=loss/train", "--set", "sample_tokens=20"]
    Path("endless.sh").write_text("[ ! -e endless ] || set -- \"$@\" --set training_config.sample_tokens=2147483647\nexec \"$@\"\n")
    s.sweep("samples", *words, config="sample.yaml")
    Path("endless").touch()
    process = begin(s, "cut", *words, "--launcher", "sh endless.sh", config="sample.yaml")
    metrics = [Path("cut", f"run-00{run}", "metrics.jsonl") for run in (1, 2)]
    for path in metrics:
        while not (path.exists() and '"step","step":2' in path.read_text()):
            time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=WAIT)
    c.same(process.returncode, 128 + signal.SIGTERM, f"a signal in the last samples: {said}")
    Path("endless").unlink()
    s.sweep("cut", *words, "--launcher", "sh endless.sh", config="sample.yaml")
    for path in metrics:
        have, want = ([x for x in p.read_text().splitlines() if '"sample"' in x] for p in (path, Path("samples", *path.parts[1:])))
        c.check(len(want) == 1 and have == want, f"{path}: {have}, not {want}")


def main():
    c = Checks()
    s = Sweeps(c, sys.argv[1])
    quick = len(sys.argv) > 2
    check_kills(c, s, 2 if quick else 6)
    check_signals(c, s)
    check_last_sample(c, s)
    c.end("sweep.kills", 15 if quick else 20)


main()

# SPDX-License-Identifier: Apache-2.0
"""Every file operation of a sweep fails in turn: the sweep says so or is killed, and the same command then ends as if
nothing had been.
usage: test_faults.py PROGRAM PROGRAM_WITH_FAULTS [QUICK]"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sweeps import Checks, Sweeps, decisions, rows


def main():
    c = Checks()
    faulty = os.path.abspath(sys.argv[2])
    s = Sweeps(c, sys.argv[1])
    s.config(steps=2, every=1, more="""\
sweep: {parameters: {top_k: 1..3}, method: {halving: {eta: 2, min_steps: 1, max_steps: 2}}}
""")
    fake = s.launcher({str(run): {"1": 1.0 / run, "2": 0.5} for run in (1, 2, 3)}, 2)
    launcher = ["--launcher", "env -u TESSERA_FAULT " + fake[1]]
    s.sweep("whole", *launcher)
    want = (Path("whole/sweep.csv").read_text(), decisions("whole"))
    c.same([(r["run"], r["steps"]) for r in rows("whole")], [("3", "2"), ("2", "1"), ("1", "1")], "the table")
    reached, every = 0, 3 if len(sys.argv) > 3 else 1
    for number in range(1, 400, every):
        kind = ("ENOSPC", "kill", "killed")[number // every % 3]
        shutil.rmtree("hit", ignore_errors=True)
        done = subprocess.run([faulty, "sweep", "--config", "run.yaml", "--out", "hit", *launcher], capture_output=True, text=True,
                              env={**os.environ, "TESSERA_FAULT": f"{kind}@{number}"})
        said, case = done.stdout + done.stderr, f"{kind}@{number}"
        c.check(done.returncode in ((-9, 0) if kind != "ENOSPC" else (0, 1, 2)), f"{case}: {done.returncode}: {said}")
        c.check(done.returncode in (0, -9) or "error: " in said, f"{case}: no error is said: {said}")
        s.sweep("hit", *launcher)
        c.same((Path("hit/sweep.csv").read_text(), decisions("hit")), want, f"{case}: what the sweep after it leaves")
        reached += done.returncode != 0
        if kind != "ENOSPC" and done.returncode == 0:
            break
    c.check(reached * every > 20, f"only {reached} operations were reached")
    c.end("sweep.faults", 40)


main()

# SPDX-License-Identifier: Apache-2.0
"""Runs of a sweep that are killed leave unfinished files and locks. The sweep removes them, also where the run goes no
further, and nothing of a process that lives.
usage: test_leftovers.py PROGRAM PROGRAM_WITH_FAULTS [QUICK]"""

import fcntl
import os
import shutil
import sys
from pathlib import Path

from sweeps import Checks, Sweeps

WORDS = ["--set", "max_steps=[3, 4]"]  # a prefix of 2 steps, and two runs


def leftovers(out):
    return sorted(str(p.relative_to(out)) for p in Path(out).rglob("*") if ".partial" in p.name or p.name == ".tessera-train.lock")


def check_kills(c, s, faulty, every):
    """The prefix and the runs are killed in each of their file operations."""
    killed = 0
    for number in range(1, 400, every):
        out = f"kill-{number}"
        fault = f"{('kill', 'killed')[number // every % 2]}@{number}"
        own, s.program = s.program, faulty
        said = s.sweep(out, *WORDS, "--launcher", f"env TESSERA_FAULT={fault}", code=None)
        s.program = own
        c.same(leftovers(out), [], f"{fault}: left when the sweep ended")
        ended = "runs failed" not in said
        killed += not ended
        s.sweep(out, *WORDS)
        c.same(leftovers(out), [], f"{fault}: left behind the next sweep")
        c.same(Path(out, "sweep.csv").read_text(), Path("whole/sweep.csv").read_text(), f"{fault}: the table")
        shutil.rmtree(out)
        if ended:
            break
    c.check(killed * every > 30, f"runs were killed in {killed} operations")


def leave(folder, checkpoint):
    """What a killed run leaves in a folder whose run goes no further."""
    Path(folder, "config.yaml.partial-0.tmp").write_text("# half")
    Path(folder, "config.yaml.partial-1.tmp").write_text("")
    Path(folder, ".tessera-train.lock").write_text("999999999 here\n")
    shutil.copytree(Path(folder, "checkpoints", checkpoint), Path(folder, "checkpoints", "step-00000009.partial"))
    Path(folder, "checkpoints", ".tessera-train.lock").write_text("999999999 here\n")
    Path(folder, "notes.partial").write_text("a user's")


def check_old(c, s):
    """Of a sweep that was killed with its runs, which are done by now."""
    shutil.copytree("whole", "old")
    for name, checkpoint in ("prefix-001", "step-00000002"), ("run-001", "step-00000003"), ("run-002", "step-00000004"):
        leave(f"old/{name}", checkpoint)
    # Run 2 is another process's, and so is one file of run 1.
    with open("old/run-002/.tessera-train.lock") as lock, open("old/run-001/config.yaml.partial-1.tmp") as file:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = [x for x in leftovers("old") if x.startswith("run-002/")]
        c.same(len(kept), 6, "what there is in the folder of the living process")
        s.sweep("old", *WORDS)
        notes = [f"{name}/notes.partial" for name in ("prefix-001", "run-001")]
        c.same(leftovers("old"), sorted([*notes, "run-001/config.yaml.partial-1.tmp", *kept]), "what living processes and users have")
    s.sweep("old", *WORDS)
    c.same(leftovers("old"), sorted([*notes, "run-002/notes.partial"]), "what a user has")
    for path in Path("whole").rglob("checkpoints/step-*/*"):
        c.check(path.read_bytes() == Path("old", path.relative_to("whole")).read_bytes(), f"{path} has changed")


def main():
    c = Checks()
    faulty = os.path.abspath(sys.argv[2])
    s = Sweeps(c, sys.argv[1])
    s.config(steps=4, every=2, save=1)
    s.sweep("whole", *WORDS)
    c.same(leftovers("whole"), [], "left by a sweep that nothing disturbed")
    check_old(c, s)
    check_kills(c, s, faulty, 20 if len(sys.argv) > 3 else 5)
    c.end("sweep.leftovers", 20)


main()

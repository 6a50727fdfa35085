# SPDX-License-Identifier: Apache-2.0
"""Checks the generator itself: false programs with one fault each must be found, and made small in the end."""

import random
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

import layout
import misfits
import orders
import pieces
import recipe
import shrinking
from checking import Plan, Result, check
from running import Runner

# What stands for tessera-train. Its losses and hash are the same for every realisation, but for the fault.
PROGRAM = """\
    #!{python} -SE
    import json, os, re, sys, time
    words = sys.argv[1:]
    text = open(words[words.index("--config") + 1]).read()
    begin = 0
    if "--resume" in words:
        begin = int(open(os.path.join(words[words.index("--out") + 1], "ended")).read()) if words[-1] == "--resume" \\
            else int(words[-1][-8:])
    last = int(re.search(r"max_steps: (\\d+)", text).group(1))
    bad = bool(re.search({pattern!r}, text))
    result = "0" * 64
    {fault}
    with open(words[words.index("--metrics") + 1], "w") as file:
        for step in range(begin + 1, last + 1):
            print(json.dumps({{"event": "step", "step": step, "loss": 1.5 / step, "grad_norm": 0.25}}), file=file)
        print(json.dumps({{"event": "end", "step": last, "weights_sha256": result}}), file=file)
    if "--out" in words:
        os.makedirs(words[words.index("--out") + 1], exist_ok=True)
        open(os.path.join(words[words.index("--out") + 1], "ended"), "w").write(str(last))
    """

# The verdict that must come, where the fault shows (words of the configuration), and the fault.
FAULTS = (
    ("equal", "nothing has these words", "pass"),
    ("different", "stage: [123]", 'result = "1" * 64 if bad else result'),
    ("crash", "threads: [23]", "os.abort() if bad else None"),
    ("hang", "all_reduce_overlap", "time.sleep(60) if bad else None"),
    ("silent", "recompute: full", "sys.exit(2) if bad else None"),
    ("refused", "recompute: full", '(print("error: 3 is odd"), sys.exit(2)) if bad else None'),
    ("internal", "pipeline:", "(print(\"error: reads 'x', whose bytes hold 'y'\"), sys.exit(2)) if bad else None"),
)


def _write(folder: Path, pattern: str, fault: str) -> str:
    path = folder / "program"
    path.write_text(textwrap.dedent(PROGRAM).format(python=sys.executable, pattern=pattern, fault=fault))
    path.chmod(0o755)
    return str(path)


def _run(runner: Runner, recipes: int) -> list[Result]:
    results = []
    for seed in range(recipes):
        results += check(runner, recipe.draw(f"self {seed}"), Plan(4, []), lambda: False)
    return results


def _check_fault(verdict: str, pattern: str, fault: str) -> list[str]:
    """What is wrong with what the generator says of one false program."""
    with tempfile.TemporaryDirectory(prefix="generator-self-") as name:
        runner = Runner(_write(Path(name), pattern, fault), 0.7 if verdict == "hang" else 60)
        results = _run(runner, 2 if verdict == "hang" else 5)
        counts = Counter(result.verdict for result in results if result.number != "base")
        wrong = []
        allowed = {verdict, "equal"}
        if not counts[verdict] or set(counts) - allowed:
            wrong.append(f"a program that is {verdict} where it has '{pattern}': {dict(counts)}")
        if verdict in ("equal", "refused"):
            return wrong
        found = next((result for result in results if result.failed), None)
        if not found:
            return wrong
        small = shrinking.shrink(runner, found, runs=8 if verdict == "hang" else 80, seconds=60)
        if small.verdict != verdict:
            wrong.append(f"a case made small is {small.verdict}, not {verdict}")
        if verdict != "hang" and len(repr(small.recipe)) >= len(repr(found.recipe)):
            wrong.append(f"a case of {verdict} did not become smaller")
        folder = Path(name) / "kept"
        shrinking.keep(small, runner.program, folder)
        for part in ("run.sh", "run0.yaml", "README"):
            if not (folder / part).exists():
                wrong.append(f"the reproduction has no {part}")
        if verdict == "different" and subprocess.run([folder / "run.sh"], capture_output=True, timeout=60).returncode:
            wrong.append("the reproduction's run.sh fails")
        return wrong


def _check_order(seed: int) -> list[str]:
    """Whether a drawn order can be run, by another rule than the one that made it: as long as some stage's next action
    has all that it needs, take it; at the end nothing may be left."""
    rng = random.Random(seed)
    stages, microbatches, chunks = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 3)
    order = orders.draw(rng, stages, microbatches, chunks)
    left = [list(actions) for actions in order.stages]
    parts = stages * chunks
    done: set[tuple[str, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for stage, actions in enumerate(left):
            if not actions:
                continue
            word, micro, chunk = actions[0]
            part = chunk * stages + (stages - 1 - stage if order.v_shaped and chunk % 2 else stage)
            needs = {"F": {("F", micro, part - 1)} if part else set(),
                     "B": {("F", micro, part)} | ({("B", micro, part + 1)} if part + 1 < parts else set()),
                     "W": {("B", micro, part)}}[word]
            if needs <= done:
                done.add((word, micro, part))
                actions.pop(0)
                moved = True
    expected = parts * microbatches * (3 if order.splits else 2)
    wrong = [] if len(done) == expected and not any(left) else [f"order {seed} cannot be run"]
    other = orders.misplace(rng, order)
    early = sum(b.index(action) < b.index(("FB"["BW".index(action[0])], *action[1:]))
                for b in other.stages for action in b if action[0] != "F")
    if early != 1 or [sorted(a) for a in other.stages] != [sorted(a) for a in order.stages]:
        wrong.append(f"of order {seed} not one action is misplaced, but {early}")
    return wrong


def _check_pure() -> list[str]:
    """A seed is one recipe, and its realisations are the same each time."""
    wrong = []
    for seed in range(30):
        first, again = recipe.draw(str(seed)), recipe.draw(str(seed))
        names = [str(n) for n in range(5)] + ["3-openmpi"]
        if first != again or [layout.draw(first, n) for n in names] != [layout.draw(again, n) for n in names]:
            wrong.append(f"seed {seed} gives two recipes")
        if first.config() != again.config():
            wrong.append(f"seed {seed} gives two configurations")
    return wrong


def _check_misfits() -> list[str]:
    """Every change of a recipe is drawn, a seed's is the same each time, and its files can be written."""
    usual, layout.MISFITS = layout.MISFITS, 1.0
    try:
        drawn = [misfits.draw(str(seed)) for seed in range(100)]
        wrong = [f"seed {r.seed} gives two misfits" for r in drawn if r != misfits.draw(r.seed)]
        for r in drawn:
            with tempfile.TemporaryDirectory(prefix="generator-self-") as name:
                r.write(Path(name))
        kinds = set().union(*(r.own.kinds() for r in drawn if r.own))
        missing = {name for name, kind in pieces.KINDS.items() if not kind.often} - kinds
        return wrong + [f"no misfit has the piece {name}" for name in sorted(missing)]
    finally:
        layout.MISFITS = usual


def main() -> int:
    """Prints what is wrong, and counts."""
    passed = failed = 0
    checks = [lambda f=f: _check_fault(*f) for f in FAULTS]
    checks += [lambda s=s: _check_order(s) for s in range(200)] + [_check_pure, _check_misfits]
    for one in checks:
        wrong = one()
        for line in wrong:
            print(line)
        failed += bool(wrong)
        passed += not wrong
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0

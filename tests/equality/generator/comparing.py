# SPDX-License-Identifier: Apache-2.0
"""Runs `compare` over drawn recipes: each realisation has the tensors of the baseline, by their hashes."""

import re
import shutil
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import layout
import recipe
from running import Runner, first_error, write

_PART = r"([\d,]+) of ([\d,]+) "
_COUNTS = re.compile(rf"^step \d+: {_PART}tensors, {_PART}unclipped gradients, {_PART}weights, "
                     rf"{_PART}tensors of optimizer state differ$", re.MULTILINE)
LEAST = 0.6  # of the baseline's tensors: over cp attention has other steps, and microbatches have no sums of their own


@dataclass
class Comparisons:
    """Counts of all realisations so far; safe for several threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    verdicts: Counter[str] = field(default_factory=Counter)
    tensors: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, case: str, verdict: str, said: str = "", tensors: int = 0) -> None:
        with self.lock:
            self.verdicts[verdict] += 1
            self.tensors += tensors
            if verdict == "failed":
                self.failures.append(f"{case}:\n{said[:2000]}")

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        return [*self.failures, f"{counts}; {self.tensors} tensors compared"]

    @property
    def ok(self) -> bool:
        return not self.failures and self.verdicts["equal"] > self.verdicts["refused"]


def counts(said: str) -> list[int]:
    """differing, compared, … of tensors, gradients, weights and state; empty where nothing was compared."""
    found = _COUNTS.search(said)
    return [int(text.replace(",", "")) for text in found.groups()] if found else []


def compare(runner: Runner, seed: str, realisations: int, comparisons: Comparisons) -> None:
    """One recipe: the baseline with itself, then with each realisation."""
    drawn = recipe.draw(seed)
    folder = Path(tempfile.mkdtemp(prefix="generator-"))
    try:
        drawn.write(folder)
        want: list[int] = []
        said = ""
        for chosen in layout.baselines(drawn):
            write(drawn, layout.Realisation(chosen.first), "base", folder)
            code, said = runner.start([runner.program, "compare", "runbase.yaml", "runbase.yaml"], folder)
            want = counts(said)
            if code != 2:
                break
        unusable = re.search(r"the loss is -?(nan|inf)|NaN among the scores of", said)
        if not want or any(want[::2]):
            verdict = "refused" if code == 2 and "error" in said else "unusable" if unusable else "failed"
            comparisons.add(f"{seed}:base", verdict, f"exit code {code}\n{said}")
            return
        for number in range(realisations):
            realisation = layout.draw(drawn, str(number))
            write(drawn, layout.Realisation(realisation.first), str(number), folder)
            code, said = runner.start([runner.program, "compare", "runbase.yaml", f"run{number}.yaml"], folder)
            have = counts(said)
            whole = have[3::2] == want[3::2] and have[1] >= LEAST * want[1] if have else False
            if code == 2 and first_error(said):
                comparisons.add(f"{seed}:{number}", "refused")
            elif code == 0 and whole and not any(have[::2]):
                comparisons.add(f"{seed}:{number}", "equal", tensors=have[1])
            else:
                comparisons.add(f"{seed}:{number}", "failed", f"exit code {code}, {have}, itself {want}\n{said}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

# SPDX-License-Identifier: Apache-2.0
"""Runs `check --prove` over drawn recipes: what plain `check` accepts must be proved."""

import shutil
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import layout
import recipe
from running import Runner, first_error, write

PROVED = "tested at reduced size; full size: verified statically"
COMPARED = {"bits": "bits: one sha256", "numbers": "no bits are compared", "interpreter": "interpreter, step 1"}


@dataclass
class Proofs:
    """Counts of all recipes so far; safe for several threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    verdicts: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, seed: str, verdict: str, said: str) -> None:
        with self.lock:
            self.verdicts[verdict] += 1
            if verdict == "refused":
                self.refusals[first_error(said)] += 1
            if verdict == "failed":
                self.failures.append(f"recipe {seed}:\n{said[-2000:]}")
            for name, words in COMPARED.items():
                self.compared[name] += verdict == "proved" and words in said

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        compared = ", ".join(f"{name} of {count}" for name, count in sorted(self.compared.items()))
        return [*self.failures, *(f"refused {n} times: {what}" for what, n in self.refusals.most_common()),
                f"{counts}; compared: {compared}"]

    @property
    def ok(self) -> bool:
        """Something was proved, by its bits and by the interpreter, and nothing failed."""
        return not self.failures and self.compared["bits"] > 0 and \
            self.compared["interpreter"] == self.verdicts["proved"]


def prove(runner: Runner, seed: str, number: str, proofs: Proofs) -> None:
    """One recipe in one realisation."""
    drawn = recipe.draw(seed)
    realisation = layout.draw(drawn, number)
    folder = Path(tempfile.mkdtemp(prefix="generator-"))
    try:
        drawn.write(folder)
        write(drawn, layout.Realisation(realisation.first), number, folder)
        command = [runner.program, "check", "--config", f"run{number}.yaml"]
        code, said = runner.start([*command, "--prove"], folder)
        if code == 0 and PROVED in said:
            proofs.add(seed, "proved", said)
        elif runner.start([*command, "--quiet"], folder)[0] == 2:
            proofs.add(seed, "refused", said)
        else:
            begin = max(0, said.find("proof: "))
            proofs.add(seed, "failed", f"exit code {code}\n{said[begin:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

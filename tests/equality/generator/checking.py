# SPDX-License-Identifier: Apache-2.0
"""Runs a recipe's realisations and compares each with the baseline."""

import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import layout
from layout import Realisation
from recipe import Recipe
from running import Outcome, Runner, difference, run

FAILURES = ("different", "crash", "hang", "silent", "internal", "changed")


@dataclass
class Result:
    """One realisation's verdict: equal, refused, unusable, zero norm, or one of FAILURES."""

    verdict: str
    what: str  # the message, or in what it differs
    recipe: Recipe
    number: str  # of the realisation; base for the baseline
    realisation: Realisation
    baseline: Realisation
    outcome: Outcome
    features: set[str] = field(default_factory=set)

    @property
    def case(self) -> str:
        return f"{self.recipe.seed}:{self.number}"

    @property
    def failed(self) -> bool:
        return self.verdict in FAILURES


def suspicious(outcome: Outcome, recipe: Recipe) -> str:
    """What to look at in a run that ended well: a gradient that is exactly zero. A loss scale that overflows has
    no gradient, though."""
    zero = [step for step, (_, norm) in outcome.steps.items() if norm != "None" and float(norm) == 0]
    if zero and recipe.precision != "fp16":
        return f"the gradient norm of step {zero[0]} is 0"
    return ""


def numbers(outcome: Outcome) -> bool:
    """Whether all that is compared are finite numbers; equal NaNs would say nothing."""
    return all(loss != "None" and abs(float(loss)) < float("inf") for loss, _ in outcome.steps.values())


def compare(runner: Runner, recipe: Recipe, baseline: Realisation, other: Realisation, folder: Path,
            number: str = "1", want: Outcome | None = None) -> Result:
    """Runs a realisation, and the baseline unless its outcome is there."""
    if want is None:
        recipe.write(folder)
        want = run(runner, recipe, baseline, "0", folder)
        if want.status != "done":
            return Result(want.status, want.message, recipe, "base", baseline, baseline, want, set())
    have = run(runner, recipe, other, number, folder)
    features = recipe.features() | other.features()
    result = Result(have.status, have.message, recipe, number, other, baseline, have, features)
    if have.status == "done":
        result.what = difference(recipe, want, have, other)
        result.verdict = "different" if result.what else "equal"
    return result


def _baseline(runner: Runner, recipe: Recipe, folder: Path) -> tuple[Result, Outcome]:
    """The first baseline that is accepted, or the first that is not."""
    tried = []
    for chosen in layout.baselines(recipe):
        tried.append((chosen, run(runner, recipe, chosen, "base", folder)))
        if tried[-1][1].status != "refused":
            break
    chosen, outcome = tried[0] if tried[-1][1].status == "refused" else tried[-1]
    result = Result(outcome.status, outcome.message, recipe, "base", chosen, chosen, outcome, recipe.features())
    if re.search(r"the loss is -?(nan|inf)|NaN among the scores of|no finite logit to draw", outcome.message):
        result.verdict = "unusable"
    if outcome.status == "done":
        result.what = suspicious(outcome, recipe)
        result.verdict = "zero norm" if result.what else "baseline"
        if not numbers(outcome):
            result.verdict, result.what = "unusable", "the loss is no finite number"
    return result, outcome


@dataclass
class Plan:
    """Which realisations a recipe gets."""

    count: int
    launchers: list[str]  # of a fifth of them
    only: str = ""  # the name of one of them

    def names(self, recipe: Recipe) -> list[str]:
        """As layout.draw takes them."""
        if self.only:
            return [] if self.only == "base" else [self.only]
        rng = random.Random(f"launchers {recipe.seed}")
        started = [bool(self.launchers) and rng.random() < 0.2 for _ in range(self.count)]
        return [f"{i}-{rng.choice(self.launchers)}" if on else str(i) for i, on in enumerate(started)]


def check(runner: Runner, recipe: Recipe, plan: Plan, stop: Callable[[], bool]) -> Iterator[Result]:
    """All verdicts on a recipe, the baseline's first. A realisation that was refused is not generated for."""
    folder = Path(tempfile.mkdtemp(prefix="generator-"))
    try:
        recipe.write(folder)
        base, want = _baseline(runner, recipe, folder)
        yield base
        if base.verdict not in ("baseline", "zero norm"):
            return
        for name in plan.names(recipe):
            if stop():
                return
            yield compare(runner, recipe, base.realisation, layout.draw(recipe, name), folder, name, want)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Deadline:
    """Whether the seconds of a run of the generator are over; 0 seconds are no limit."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.monotonic()
        self.seconds = seconds
        self.ended = False

    def over(self) -> bool:
        return self.ended or (bool(self.seconds) and time.monotonic() - self.begin > self.seconds)

    def end(self) -> None:
        self.ended = True

# SPDX-License-Identifier: Apache-2.0
"""Outcomes of runs in a file, so that two builds of the program can be compared run by run."""

import json
from pathlib import Path
from typing import Any

from running import Outcome

Saved = dict[str, Any]


def of(outcome: Outcome) -> Saved:
    """What must not change between builds: how a run ended, its weights and every number that it printed. Messages
    may change."""
    return {"status": outcome.status, "weights": outcome.hash, "ends": outcome.ends, "evals": outcome.evals,
            "steps": {str(step): list(numbers) for step, numbers in outcome.steps.items()}}


def change(before: Saved | None, now: Saved) -> str:
    """The first part in which two outcomes are not the same."""
    if before is None:
        return "a run that the saved outcomes do not have"
    part = next(name for name in now if before[name] != now[name])
    return f"status {before[part]}, now {now[part]}" if part == "status" else f"other {part} than the saved outcomes"


def load(path: Path) -> dict[str, Saved]:
    saved: dict[str, Saved] = json.loads(path.read_text())
    return saved


def save(path: Path, outcomes: dict[str, Saved]) -> None:
    path.write_text(json.dumps(dict(sorted(outcomes.items())), indent=0) + "\n")

# SPDX-License-Identifier: Apache-2.0
"""Counts verdicts, prints progress and the summary."""

import json
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import outcomes
from checking import FAILURES, Result


class Summary:
    """What came of all realisations so far. Its methods may be called from several threads."""

    def __init__(self, expected: dict[str, outcomes.Saved] | None = None) -> None:
        self.expected = expected or {}
        self.outcomes: dict[str, outcomes.Saved] = {}  # of all runs, by case
        self.lock = threading.Lock()
        self.begin = self.last = time.monotonic()
        self.recipes = 0
        self.verdicts: Counter[str] = Counter()
        self.groups: dict[str, Counter[str]] = defaultdict(Counter)
        self.example: dict[tuple[str, str], str] = {}
        self.features: dict[str, Counter[str]] = defaultdict(Counter)
        self.shrunk: Counter[tuple[str, str]] = Counter()
        self.causes: Counter[str] = Counter()  # failures that were made small, by what they still need
        self.folders: dict[str, str] = {}

    def to_shrink(self, result: Result, most: int) -> bool:
        """Whether a failure is to be made small: so many in all, and two of a kind for each recipe."""
        with self.lock:
            key = (result.recipe.seed, result.verdict)
            if self.shrunk.total() >= most or self.shrunk[key] >= 2:
                return False
            self.shrunk[key] += 1
            return True

    def folder_of(self, result: Result, signature: str) -> str:
        """The folder's name for failures that are alike when they are small."""
        name = f"{result.verdict.replace(' ', '_')}-{result.case.replace(':', '-')}"
        with self.lock:
            self.causes[signature] += 1
            return self.folders.setdefault(signature, name)

    def add(self, result: Result) -> None:
        saved = outcomes.of(result.outcome)
        with self.lock:
            self.outcomes[result.case] = saved
            if self.expected and saved != self.expected.get(result.case):
                result.verdict, result.what = "changed", outcomes.change(self.expected.get(result.case), saved)
            self.recipes += result.number == "base"
            self.verdicts[result.verdict] += 1
            self.example.setdefault((result.verdict, result.what), result.case)
            if result.verdict not in ("equal", "baseline"):
                self.groups[result.verdict][result.what] += 1
            for name in result.features:
                self.features[name][result.verdict] += 1
            if time.monotonic() - self.last > 15:
                self.last = time.monotonic()
                print(self._counts(), flush=True)

    @property
    def failed(self) -> int:
        return sum(self.verdicts[verdict] for verdict in FAILURES)

    @property
    def passed(self) -> int:
        return self.verdicts["equal"]

    def _counts(self) -> str:
        seconds = time.monotonic() - self.begin
        compared = sum(self.verdicts.values()) - self.verdicts["baseline"]
        words = [f"{self.verdicts[v]} {v}" for v in ("equal", "refused", "unusable", "zero norm", *FAILURES) if self.verdicts[v]]
        return f"{seconds:.0f} s: {self.recipes} recipes, {compared} realisations: {', '.join(words)}"

    def lines(self) -> list[str]:
        """The summary, but for its last line."""
        result = [self._counts()]
        for verdict in ("refused", "unusable", "zero norm", *FAILURES):
            for what, count in self.groups[verdict].most_common():
                result.append(f"{verdict} {count:5d}  {what}  (case {self.example[verdict, what]})")
        result.append("feature: equal, refused, failed")
        for name in sorted(self.features):
            counts = self.features[name]
            failed = sum(counts[verdict] for verdict in FAILURES)
            result.append(f"  {name:44s} {counts['equal']:6d} {counts['refused']:6d} {failed:6d}")
        for cause, count in self.causes.most_common():
            result.append(f"made small {count:4d}  {cause}: {self.folders[cause]}")
        seconds = max(0.001, time.monotonic() - self.begin)
        runs = sum(self.verdicts.values())
        result.append(f"{runs} runs in {seconds:.0f} s, {60 * runs / seconds:.0f} a minute")
        return result

    def report(self, path: Path) -> None:
        """The same as JSON."""
        document: dict[str, Any] = {
            "recipes": self.recipes, "verdicts": dict(self.verdicts), "features": self.features,
            "groups": {v: [{"what": w, "count": n, "case": self.example[v, w]} for w, n in c.most_common()]
                       for v, c in self.groups.items()},
            "causes": self.causes, "reproductions": self.folders}
        path.write_text(json.dumps(document, indent=1) + "\n")

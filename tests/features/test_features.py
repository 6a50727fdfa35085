#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tries every feature of docs/features.md with commands, and prints a table of three states.

usage: test_features.py PROGRAM [TEXT]    (in the source root; TEXT: only features whose title contains it)

  works     the commands print and compute what the feature says
  refused   the program knows the feature's keys and refuses them by name, with what would make them work
  missing   neither

docs/features.md lists the same titles with the same states; a difference fails the test.
"""
import concurrent.futures
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from feature import FEATURES, Check  # noqa: E402
import mesh_and_tensors, execution, overlap_and_numerics  # noqa: E402,F401
import collectives, parallel_modes, determinism, reliability  # noqa: E402,F401
import training, conversations, classifiers, fine_tuning, parallel_training, generation, exports, serving, sweeps  # noqa: E402,F401
import devices, device_runs, experts, model_families, reports  # noqa: E402,F401

DOCUMENT = "docs/features.md"


def try_one(program, title, state, function):
    with tempfile.TemporaryDirectory() as folder:
        check = Check(program, folder)
        try:
            function(check)
        except Exception as error:
            return "missing", f"{type(error).__name__}: {error}"
        return (state, "") if check.commands else ("missing", "no command was run")


def listed_features():
    """{title: state} of the document's lines `- title` (it works) and `- title *(refused)*`."""
    states = {}
    with open(DOCUMENT) as f:
        sections = f.read().partition("\n## ")[2]
        for match in re.finditer(r"^- (.*?)( \*\((refused|missing)\)\*)?$", sections, re.MULTILINE):
            states[match[1]] = match[3] or "works"
    return states


def main():
    program, text = os.path.abspath(sys.argv[1]), "".join(sys.argv[2:3])
    tried = [f for f in FEATURES if text in f[0]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda f: try_one(program, *f), tried))
    counts = {"works": 0, "refused": 0, "missing": 0}
    for number, ((title, _, _), (state, why)) in enumerate(zip(tried, results), 1):
        counts[state] += 1
        print(f"{number:4} {state:8} {title}")
        if why:
            print("     " + why.replace("\n", "\n     "))
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    wrong = not tried
    if not text:
        listed, found = listed_features(), {f[0]: r[0] for f, r in zip(tried, results)}
        for title in sorted(listed.keys() | found.keys()):
            if listed.get(title) != found.get(title):
                print(f"{DOCUMENT} says {listed.get(title)}, the commands {found.get(title)}: {title}")
                wrong = True
    sys.exit(wrong)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules that faults_*.c and test_verify_{casts,fused,host_tasks,rounding}.c are for are those of the verifier's sources.

A rule is the format of a message of tsr_verify_say*. usage: check_rules.py ROOT
"""

import re
import sys
from pathlib import Path

STRINGS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
SAID = re.compile(r"tsr_verify_say(?:_task|_node|_value)?\(\s*(?:[^;\"]*?,\s*)?" + STRINGS)
FAULT = re.compile(r"^    \{" + STRINGS + r",\s*\w+,\s*ON_", re.MULTILINE)
TEST_FAULT = re.compile(r"^    \{" + STRINGS + r',\s*\w+,\s*"', re.MULTILINE)


def formats(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in paths:
        for match in pattern.finditer(path.read_text(encoding="utf-8")):
            found.append("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])))
    return found


def main() -> int:
    root = Path(sys.argv[1])
    said = formats(sorted(root.glob("src/schedule/verify*.c")), SAID)
    faults = formats(sorted(root.glob("tests/schedule/faults_*.c")), FAULT)
    of_tests = [root / f"tests/schedule/test_verify_{name}.c" for name in ("casts", "fused", "host_tasks", "rounding")]
    faults += [rule for rule in formats(of_tests, TEST_FAULT) if rule]
    wrong = [f"without a fault: {rule}" for rule in said if rule not in faults]
    wrong += [f"not in the verifier: {rule}" for rule in faults if rule not in said]
    wrong += [f"twice in the verifier: {rule}" for rule in sorted(set(said)) if said.count(rule) > 1]
    calls = sum(
        len(re.findall(r"(?<!bool )tsr_verify_say\w*\(", path.read_text(encoding="utf-8")))
        for path in root.glob("src/schedule/verify*.c")
    )
    if calls != len(said):
        wrong.append(f"{calls} calls of tsr_verify_say*, formats of {len(said)}")
    print("\n".join(wrong) or f"{len(said)} rules, each with a fault")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

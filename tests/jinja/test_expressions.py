# SPDX-License-Identifier: Apache-2.0
"""Compares random expressions and statements with Jinja, in the environment of transformers.

Each is made of values of all types, operators, filters, tests and methods, also in combinations that make no sense. The
interpreter must render what Jinja renders, and refuse what Jinja refuses. It may refuse more, which is counted.

usage: test_expressions.py RENDER_TEMPLATE [COUNT [SEED]]"""

import collections
import concurrent.futures
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from chat_templates import reference

VARIABLES = {
    "text": "Hé llo wörld", "empty": "", "lines": "a\n\n b\r\nc\x0bd\n", "blanks": "  a b\tc\n d ", "html": "<a & 'b'>", "wide": "日本🙂",
    "three": 3, "half": 2.5, "zero": 0, "yes": True, "nothing": None, "numbers": [3, 1, 2], "letters": ["b", "a", "C"],
    "dict": {"a": 1, "b": "x", "c": [1, 2]}, "rows": [{"k": "u", "v": 1}, {"k": "a", "v": 2}, {"k": "u", "v": 3}]}
VALUES = [*VARIABLES, "missing", "1", "0", "-2", "2.0", '"x"', "'a,b,c'", "true", "none", "[]", "{}", '[1, "a", 2.5]', "(1, 2)", '{"k": 1}',
          "dict.a", 'dict["b"]', "rows[0].k", "numbers[0]", "text[1:4]", "numbers[::-1]", "range(4)", "loop"]
FILTERS = """upper lower title capitalize trim length first last list string int float abs round tojson tojson(indent=2) join(",") join
 sort sort(reverse=true) reverse reverse|list unique|list default("D") default("D",true) items|list dictsort replace("a","Z") replace("l","")
 indent indent(2,true) indent(1,blank=true) safe escape e map("upper")|list map(attribute="k")|list selectattr("k","equalto","u")|list
 select|list reject|list select("odd")|list select("string")|list rejectattr("v")|list max min sum count sort(attribute="k")
 map("string")|join("-") round(1) round(1,"floor") int(7) select("in",[1,2])|list map("length")|list items unique select""".split()
METHODS = """.upper() .lower() .strip() .lstrip() .rstrip() .split() .split(",") .split(none,1) .rsplit("l",1) .splitlines() .startswith("H")
 .endswith("d") .find("l") .replace("l","L") .title() .capitalize() .items() .keys() .values() .get("a") .get("q",0) .count("l") .index(1)
 .join(letters) .format(1,2) .isdigit() .isalpha() .isspace() .copy() [0] [-1] ["a"] .a .k [1:] [:2] [::-1] [5] .partition("l") .rfind("l")
 .removeprefix("H") .zfill(5) .items .append(1)""".split()
TESTS = """defined undefined none string number integer float boolean mapping sequence iterable true false odd even eq(3) lower upper
 in([1,2,3]) sameas(none) gt(1) divisibleby(2) callable ne("x")""".split()
OPERATORS = "+ - * / // % ** ~ == != < <= > >= and or".split() + ["in", "not in"]


class Generator:
    def __init__(self, seed: str):
        self.random = random.Random(seed)

    def expression(self, depth: int = 3) -> str:
        choose, kind = self.random.choice, self.random.random()
        if depth == 0 or kind < 0.25:
            return choose(VALUES)
        inner = self.expression(depth - 1)
        if kind < 0.45:
            return f"{choose(VALUES)} | {choose(FILTERS)}" if kind < 0.35 else f"({inner}) | {choose(FILTERS)}"
        if kind < 0.6:
            return f"({inner}){choose(METHODS)}"
        if kind < 0.7:
            return f"({inner}) is {choose(['', '', 'not '])}{choose(TESTS)}"
        if kind < 0.9:
            return f"({inner}) {choose(OPERATORS)} ({self.expression(depth - 1)})"
        if kind < 0.94:
            return f"({inner}) if ({self.expression(depth - 1)}) else ({self.expression(depth - 1)})"
        return f"not ({inner})" if kind < 0.97 else f"[{inner}, {self.expression(depth - 1)}]"

    def template(self) -> str:
        return self.random.choice([
            "{{ %s }}", "{{ %s }}", "{{ %s }}", "{%% if %s %%}T{%% else %%}F{%% endif %%}", "{%% set y = %s %%}{{ y }}|{{ y | length }}",
            "{%% for x in (%s) %%}{{ x }};{{ loop.index }}{%% else %%}none{%% endfor %%}"]) % self.expression()


def compare(program: str, folder: Path, index: int, template: str) -> str:
    """What is wrong, or a kind of success."""
    path = folder / f"{index}.jinja"
    path.write_text(template, encoding="utf-8")
    result = subprocess.run([program, path, folder / "variables.json"], capture_output=True, timeout=60)
    path.unlink()
    if result.returncode:
        return f"WRONG {template}: the program ends with {result.returncode}"
    got = json.loads(result.stdout)
    try:
        want = reference._compile_jinja_template(template).render(**copy.deepcopy(VARIABLES))
    except Exception as error:  # an expression may fail in any way
        return "refused by both" if "error" in got else f"WRONG {template}: {got['text']!r}, where Jinja fails: {error}"
    if "error" in got:
        return "refused alone"
    return "equal" if got["text"] == want else f"WRONG {template}: {got['text']!r} should be {want!r}"


def main() -> None:
    program = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    warnings.simplefilter("ignore")
    found: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(name)
        (folder / "variables.json").write_text(json.dumps(VARIABLES), encoding="utf-8")
        templates = [Generator(f"{seed} {i}").template() for i in range(count)]
        found.update(pool.map(lambda item: compare(program, folder, *item), enumerate(templates)))
    for what, number in found.most_common(40):
        print(f"{number} x {what}"[:400])
    sys.exit(any(what.startswith("WRONG") for what in found) or found["equal"] < count // 4)


main()

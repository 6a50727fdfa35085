# SPDX-License-Identifier: Apache-2.0
"""Compares the interpreter of chat templates with transformers, on the templates of published packages (chat_templates.py).

For each template conversations are generated; transformers renders them, and so does the interpreter. Both must give the
same text and the same {% generation %} spans, or both must refuse. A rendering that only the interpreter refuses is
counted by its message and fails the test. The texts of cases.txt must be those of transformers, too.

usage: test_templates.py RENDER_TEMPLATE PACKAGES [CONVERSATIONS [SEED]]"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from chat_templates import Generator, published_templates, reference

TEMPLATES_MIN = 60

# ---- cases.txt ----


def check_cases(path: Path) -> list[str]:
    """The cases whose expected text is not what transformers renders."""
    wrong = []
    cases = re.findall(r"^%%% (?!with|spans)([^\n]*)\n(.*?)\n%%% with ([^\n]*)\n(.*?)(?:\n%%% spans ([^\n]*))?(?=\n%%% |\n\Z)",
                       path.read_bytes().decode(), re.DOTALL | re.MULTILINE)
    for name, template, variables, text, spans in cases:
        context = {"tools": None, "documents": None, "add_generation_prompt": False, **json.loads(variables)}
        want = reference_rendering(template, context if spans else json.loads(variables))
        got = {"text": text, "spans": json.loads(spans or "[]")}
        what = f"{want}" if isinstance(want, Exception) else difference(want, got)
        if what:
            wrong.append(f"{name}: {what}")
    print(f"{len(cases)} cases in {path.name}, {len(wrong)} of them wrong")
    return wrong if cases else [f"no cases in {path}"]


# ---- comparison ----


def reference_rendering(text: str, context: dict):
    """(text, spans or None), or the exception."""
    try:
        compiled = reference._compile_jinja_template(text)
        if re.search(r"\{\%-?\s*generation\s*-?\%\}", text):
            return reference._render_with_assistant_indices(compiled_template=compiled, **context)
        return compiled.render(**context), None
    except Exception as error:  # a template may fail in any way
        return error


def difference(want, got: dict) -> str:
    """What differs; "" where nothing does, "refused" where both refuse."""
    if isinstance(want, Exception):
        return "refused" if "error" in got else f"rendered, but transformers raises {type(want).__name__}: {want}"
    if "error" in got:
        return "refused: " + got["error"]
    text, spans = want
    if got["text"] != text:
        at = len(os.path.commonprefix([got["text"], text]))
        return f"text differs: {got['text'][max(0, at - 30):at + 30]!r} should be {text[max(0, at - 30):at + 30]!r}"
    if spans is not None:
        data = text.encode()
        own = [[len(data[:begin].decode()), len(data[:end].decode())] for begin, end in got["spans"]]
        if own != [list(span) for span in spans]:
            return f"spans differ: {own} should be {spans}"
    return ""


def compare(program: str, folder: Path, name: str, text: str, count: int, seed: int, found: collections.Counter) -> None:
    contexts = [Generator(f"{seed} {name} {i}").context() for i in range(count)]
    template = folder / "template.jinja"
    with open(template, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    files = []
    for i, context in enumerate(contexts):
        files.append(folder / f"{i}.json")
        files[-1].write_text(json.dumps(context), encoding="utf-8")
    result = subprocess.run([program, template, *files], capture_output=True, timeout=600)
    lines = result.stdout.splitlines()
    if result.returncode or len(lines) != count:
        found[(name, f"the program ends with {result.returncode}: {result.stderr.decode()[-500:]}")] += 1
        return
    for context, line in zip(contexts, lines):
        what = difference(reference_rendering(text, context), json.loads(line))
        found[("", what) if what in ("", "refused") else (name, what[:400])] += 1


def main() -> None:
    program = os.path.abspath(sys.argv[1])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    wrong = check_cases(Path(__file__).with_name("cases.txt"))
    print("\n".join(wrong))
    found: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        templates = published_templates(Path(sys.argv[2]))
        if len(templates) < TEMPLATES_MIN:
            sys.exit(f"only {len(templates)} templates found")
        for path, text in templates.items():
            compare(program, Path(name), path, text, count, seed, found)
    same, refused = found.pop(("", ""), 0), found.pop(("", "refused"), 0)
    print(f"{len(templates)} templates, {count} conversations each: {same} renderings are equal, {refused} are refused by "
          f"both, {sum(found.values())} differ")
    for (path, what), number in found.most_common(40):
        print(f"{number} x {path}: {what}")
    sys.exit(bool(found or wrong) or not same)


main()

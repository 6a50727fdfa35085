# SPDX-License-Identifier: Apache-2.0
"""Compares the interpreter of chat templates with transformers, on the templates of published packages.

The templates are those of PyPI's llama-cpp-python (its sdist) and trl (its wheel), which pip downloads into a temporary
folder, and any further .jinja files below the folder TESSERA_TEMPLATES. For each of them conversations are generated;
transformers renders them, and so does the interpreter. Both must give the same text and the same {% generation %} spans,
or both must refuse. A rendering that only the interpreter refuses is counted by its message and fails the test.

usage: test_templates.py RENDER_TEMPLATE [CONVERSATIONS [SEED]]"""

import collections
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

NOW = 1700000000  # the time of render_template
TEMPLATES_MIN = 60


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(77)


# The packages may be in another interpreter's environment.
python = os.environ.get("TESSERA_PYTHON")
if python and Path(python) != Path(sys.executable):
    os.execv(python, [python, *sys.argv])
try:
    from transformers.utils import chat_template_utils as reference
except ImportError as error:
    skip(f"{error} (TESSERA_PYTHON: a python3 that has transformers and jinja2)")


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


reference.datetime = FixedTime

# ---- templates ----


def download(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    # What llama-cpp-python's sdist needs to tell pip its name.
    subprocess.run([*pip, "install", "--target", folder / "build", "scikit-build-core"], capture_output=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(folder / "build")}
    for options in (["--no-binary", ":all:", "--no-build-isolation", "llama-cpp-python"], ["trl"]):
        result = subprocess.run([*pip, "download", "--no-deps", "-d", folder, *options], capture_output=True, text=True,
                                timeout=600, env=environment)
        if result.returncode:
            skip(f"pip cannot download {options[-1]}: {result.stderr.strip()[-300:]}")


def unpack(folder: Path) -> dict[str, str]:
    """Templates by their path in the package."""
    templates = {}
    for archive in sorted(folder.iterdir()):
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as tar:
                for member in tar:
                    if member.name.endswith(".jinja") and member.isfile():
                        templates[member.name] = tar.extractfile(member).read().decode()
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for name in wheel.namelist():
                    if name.endswith(".jinja"):
                        templates[name] = wheel.read(name).decode()
    for file in sorted(Path(os.environ.get("TESSERA_TEMPLATES", "/nonexistent")).rglob("*.jinja")):
        with open(file, encoding="utf-8", newline="") as opened:
            templates[str(file)] = opened.read()
    return templates


# ---- conversations ----

PIECES = ["Hello", "what's up?", "  lead", "trail  ", "line\nbreak", "\n\nparagraph\n", "ünïcode ✓", "日本語\u3000", "<think>x</think> y",
          "</think>", "a < b & c", '"quoted"', "it's \\ back\\n", "", "{}", "{{ x }}", "{% if %}", "1.5", "\t tab", "<|im_end|>", "[INST]",
          "🙂", "\u00a0nbsp\u00a0", "null", "True", "%s %d"]


class Generator:
    def __init__(self, seed: str):
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        return self.random.choice(["", " ", "\n"]).join(self.random.choice(PIECES) for _ in range(self.random.randint(0, 5)))

    def content(self):
        if self.chance(0.97):
            return self.text()
        return [{"type": "text", "text": self.text()} for _ in range(self.random.randint(0, 2))]

    def value(self, depth: int = 0):
        scalars = [1, -7, 2.0, 1e20, 0.1, None, True, False, self.text()]
        if depth > 2 or self.chance(0.7):
            return self.random.choice(scalars)
        if self.chance(0.5):
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        return {self.random.choice(["a", "key", "ü", "x y"]): self.value(depth + 1) for _ in range(self.random.randint(0, 3))}

    def tool(self) -> dict:
        types = ["string", ["integer", "null"], "array", "object", "boolean", "number"]
        properties = {}
        for name in self.random.sample(["city", "n", "flags", "when", "options"], self.random.randint(0, 4)):
            schema = {"type": self.random.choice(types)}
            if self.chance(0.7):
                schema["description"] = self.text()
            if self.chance(0.3):
                schema["enum"] = ["a", "b"]
            if self.chance(0.3):
                schema["default"] = self.value()
            if schema["type"] == "array":
                schema["items"] = {"type": self.random.choice(["string", "number"])}
            if schema["type"] == "object":
                schema["properties"] = {"inner": {"type": "string", "description": self.text()}}
            properties[name] = schema
        parameters = {"type": "object", "properties": properties}
        if self.chance(0.6):
            parameters["required"] = [name for name in properties if self.chance(0.5)]
        function = {"name": self.random.choice(["get_weather", "f"]), "description": self.text(), "parameters": parameters}
        if self.chance(0.2):
            function["return"] = {"type": "string", "description": self.text()}
        return {"type": "function", "function": function}

    def call(self, number: int) -> dict:
        arguments = {name: self.value() for name in self.random.sample(["city", "n", "when"], self.random.randint(0, 3))}
        return {"id": f"call{number:05}", "type": "function",
                "function": {"name": self.random.choice(["get_weather", "f"]),
                             "arguments": json.dumps(arguments) if self.chance(0.2) else arguments}}

    def messages(self) -> list[dict]:
        messages = []
        if self.chance(0.45):
            messages.append({"role": "developer" if self.chance(0.1) else "system", "content": self.content()})
        for turn in range(self.random.randint(1, 4)):
            messages.append({"role": "user", "content": self.content()})
            if self.chance(0.02):
                messages.append({"role": "user", "content": self.text()})
            answer = {"role": "assistant", "content": self.content()}
            if self.chance(0.3):
                answer[self.random.choice(["reasoning_content", "thinking", "reasoning"])] = self.text()
            if self.chance(0.25):
                answer["tool_calls"] = [self.call(10 * turn + i) for i in range(self.random.choice([1, 1, 1, 2]))]
                if self.chance(0.3):
                    answer["content"] = self.random.choice([None, ""])
                messages.append(answer)
                for call in answer["tool_calls"]:
                    messages.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"],
                                     "content": self.text() if self.chance(0.8) else json.dumps(self.value())})
                answer = {"role": "assistant", "content": self.text()}
            messages.append(answer)
        if self.chance(0.3):
            messages.pop()
        # As transformers' tokenizers pass them to templates.
        return reference._alias_reasoning_fields(reference._normalize_chat_messages(messages))

    def context(self) -> dict:
        context = {"messages": self.messages(), "tools": None, "documents": None,
                   "add_generation_prompt": self.chance(0.5), "bos_token": "<s>", "eos_token": "</s>"}
        if self.chance(0.4):
            context["tools"] = [self.tool() for _ in range(self.random.randint(1, 3))]
        if self.chance(0.05):
            context["documents"] = [{"title": self.text(), "text": self.text()}]
        if self.chance(0.3):
            context["enable_thinking"] = self.chance(0.5)
        if self.chance(0.1):
            context["reasoning_effort"] = self.random.choice(["low", "high"])
        if self.chance(0.05):
            context["date_string"] = "26 Jul 2024"
        return context


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
    lines = result.stdout.decode().splitlines()
    if result.returncode or len(lines) != count:
        found[(name, f"the program ends with {result.returncode}: {result.stderr.decode()[-500:]}")] += 1
        return
    for context, line in zip(contexts, lines):
        what = difference(reference_rendering(text, context), json.loads(line))
        found[("", what) if what in ("", "refused") else (name, what[:400])] += 1


def main() -> None:
    program = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    wrong = check_cases(Path(__file__).with_name("cases.txt"))
    print("\n".join(wrong))
    found: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        download(folder)
        templates = unpack(folder)
        if len(templates) < TEMPLATES_MIN:
            sys.exit(f"only {len(templates)} templates found")
        for path, text in templates.items():
            compare(program, folder, path, text, count, seed, found)
    same, refused = found.pop(("", ""), 0), found.pop(("", "refused"), 0)
    print(f"{len(templates)} templates, {count} conversations each: {same} renderings are equal, {refused} are refused by "
          f"both, {sum(found.values())} differ")
    for (path, what), number in found.most_common(40):
        print(f"{number} x {path}: {what}")
    sys.exit(bool(found or wrong) or not same)


main()

# SPDX-License-Identifier: Apache-2.0
"""Chat templates of published packages, and conversations to render with them.

The templates are those of PyPI's llama-cpp-python (its sdist) and trl (its wheel), which pip downloads, and any further
.jinja files below the folder TESSERA_TEMPLATES. Importing this module ends a test as skipped where there is no
transformers; TESSERA_PYTHON names a python3 that has it."""

import datetime
import fcntl
import json
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

NOW = 1700000000  # the time of render_template


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
    """Into a folder of the build, once."""
    if (folder / "complete").exists():
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    # What llama-cpp-python's sdist needs to tell pip its name.
    subprocess.run([*pip, "install", "--target", folder / "build", "scikit-build-core"], capture_output=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(folder / "build")}
    for options in (["--no-binary", ":all:", "--no-build-isolation", "llama-cpp-python"], ["trl"]):
        result = subprocess.run([*pip, "download", "--no-deps", "-d", folder, *options], capture_output=True, text=True,
                                timeout=600, env=environment)
        if result.returncode:
            skip(f"pip cannot download {options[-1]}: {result.stderr.strip()[-300:]}")
    (folder / "complete").touch()


def published_templates(folder: Path) -> dict[str, str]:
    """Templates by their path in the package; the packages are kept in the folder."""
    templates = {}
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        download(folder)
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
        self.lists = self.chance(0.15)  # content as lists of parts, as processors of images have it

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        return self.random.choice(["", " ", "\n"]).join(self.random.choice(PIECES) for _ in range(self.random.randint(0, 5)))

    def content(self):
        if self.chance(0.1 if self.lists else 0.98):
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
        if self.chance(0.1):
            context["functions"] = self.text()
            context["datetime"] = "2024-07-26"
        if self.chance(0.05):
            context["date_string"] = "26 Jul 2024"
        return context

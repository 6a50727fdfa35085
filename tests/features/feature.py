# SPDX-License-Identifier: Apache-2.0
"""What a check of a feature is made of: commands in a folder of its own, and what they must print.

A module of checks is a list of functions under @feature(title). A function runs commands with `c.run` and tests what
they print with the methods of `Result`; it fails with an exception, which makes the feature missing.
A feature that the program knows and refuses by name has state="refused": its function tests the refusal's text.
"""
import json
import os
import re
import subprocess

FEATURES = []  # in the order of the modules

class Missing(Exception):
    """The program does not do what the feature says."""


class Result:
    def __init__(self, words, process):
        self.words, self.code = words, process.returncode
        self.out, self.err = process.stdout, process.stderr
        self.text = self.out + self.err

    def fail(self, why):
        raise Missing(f"{why}\n$ {' '.join(self.words)}\n{self.text[-3000:]}")

    def ends(self, code):
        if self.code != code:
            self.fail(f"exit code {self.code}, not {code}")
        return self

    def says(self, *texts):
        """Each text stands in what was printed, byte for byte."""
        for text in texts:
            if text not in self.text:
                self.fail(f"does not print: {text}")
        return self

    def never_says(self, text):
        if text in self.text:
            self.fail(f"prints: {text}")
        return self

    def matches(self, pattern):
        """The match of a regular expression (multi-line) in what was printed."""
        match = re.search(pattern, self.text, re.MULTILINE)
        if not match:
            self.fail(f"does not print anything like: {pattern}")
        return match


class Check:
    """One feature's folder and its commands."""

    def __init__(self, program, folder):
        self.program, self.folder, self.commands = program, folder, 0
        self.source_root = os.getcwd()
        self.write("text.txt", " ".join(f"word {i * 7919 % 1000} of a text." for i in range(400)))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        return path

    def read(self, name):
        with open(os.path.join(self.folder, name)) as f:
            return f.read()

    def run(self, *words, code=0, env=None, stdin=""):
        """Runs the program in the check's folder; `code` is the exit code that it must end with, None for any."""
        return self.command(self.program, *words, code=code, env=env, stdin=stdin)

    def command(self, *words, code=0, env=None, stdin=""):
        self.commands += 1
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "TT_"))}
        process = subprocess.run(words, cwd=self.folder, env={**clean, **(env or {})}, input=stdin, text=True,
                                 capture_output=True, timeout=120, errors="replace")
        result = Result(words, process)
        return result if code is None else result.ends(code)

    def with_keys(self, *words, code=0, env=None, **keys):
        """`run` with --config run.yaml and one --set for each key; dots in keys are written as two underscores."""
        sets = []
        for key, value in keys.items():
            sets += ["--set", f"{key.replace('__', '.')}={value if isinstance(value, str) else json.dumps(value)}"]
        return self.run(*words, "--config", "run.yaml", *sets, code=code, env=env)

    def metrics(self, name):
        """The objects of a metrics file."""
        return [json.loads(line) for line in self.read(name).split("\n") if line]


def feature(title, state="works"):
    def add(function):
        FEATURES.append((title, state, function))
        return function
    return add

# SPDX-License-Identifier: Apache-2.0
"""Runs a realisation and says what came of it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import refusals
import yamltext
from layout import Layout, Realisation
from recipe import Recipe

# Messages that no user can be blamed for: the program's own checks of what it has made.
INTERNAL = [re.compile(text, re.MULTILINE) for text in (
    r"whose bytes hold", r"reads '", r"replicas .*differ", r"\binternal\b", r"task \d+ \(", r"assertion", r"\bbug\b",
    r"stage \d+ sends '", r"outside the plan", r"^mesh: error")]
_SANITIZER = re.compile(r"AddressSanitizer|UndefinedBehavior|ThreadSanitizer|runtime error:|LeakSanitizer")
_LAUNCHERS = {
    "openmpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"],
    "mpich": ["mpirun.mpich", "-n"],
}


@dataclass
class Outcome:
    """What a realisation ended with. status: done, refused, internal, silent, crash, hang."""

    status: str
    message: str = ""  # of what is not done: its first line, with numbers as N
    said: str = ""
    hash: str = ""
    steps: dict[int, tuple[str, str]] = field(default_factory=dict)  # loss and gradient norm as printed
    evals: dict[str, str] = field(default_factory=dict)  # "evaluation after step 3", "text after step 3"
    ends: list[str] = field(default_factory=list)  # hashes of first runs that went to the end too


@dataclass
class Runner:
    """How the program is started."""

    program: str
    time_limit: float = 120.0

    def start(self, command: list[str], folder: Path) -> tuple[int | None, str]:
        """Exit status, None when the time was over, and all that was printed."""
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_orte_tmpdir_base": str(folder)}  # jobs that start together would share a folder
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=self.time_limit)
                return process.returncode, output.decode(errors="replace")
            except subprocess.TimeoutExpired:
                for sign in (signal.SIGTERM, signal.SIGKILL):
                    try:
                        os.killpg(process.pid, sign)
                        output, _ = process.communicate(timeout=10)
                        break
                    except ProcessLookupError:
                        break
                    except subprocess.TimeoutExpired:
                        output = b""
                return None, (output or b"").decode(errors="replace")


def commands(program: str, realisation: Realisation, number: str) -> list[list[str]]:
    """The command lines of a realisation; its files are called by its number."""
    def line(layout: Layout, part: str, more: list[str]) -> list[str]:
        start = [*_LAUNCHERS[layout.launcher], str(layout.processes)] if layout.launcher else []
        return [*start, program, "--config", f"run{part}.yaml", "--metrics", f"run{part}.jsonl", *more]

    if not realisation.after:
        return [line(realisation.first, number, [])]
    kept = f"kept{number}"
    checkpoint = f"{kept}/checkpoints/step-{realisation.step:08d}"
    again = ["--out", kept, "--resume"] if realisation.kind == "stop" else \
        ["--out", f"again{number}", "--resume", checkpoint]
    return [line(realisation.first, f"{number}a", ["--out", kept]), line(realisation.after, f"{number}b", again)]


def write(recipe: Recipe, realisation: Realisation, number: str, folder: Path) -> None:
    """The configurations of a realisation."""
    layouts = [(realisation.first, number)] if not realisation.after else \
        [(realisation.first, f"{number}a"), (realisation.after, f"{number}b")]
    for layout, part in layouts:
        config = yamltext.merge(recipe.config(), layout.config(recipe, part))
        if realisation.after and part.endswith("a"):
            keys: dict[str, Any] = {"max_steps": realisation.step} if realisation.kind == "stop" else \
                {"model_save_interval": realisation.step}
            config = yamltext.merge(config, {"checkpoint": {"keep_last": 0}})
            config = yamltext.merge(config, {"training_config": keys})
        layout.write(folder, part)
        title = f"# recipe {recipe.seed}, realisation {number}\n"
        (folder / f"run{part}.yaml").write_text(title + yamltext.block(config) + "\n")


def first_error(said: str) -> str:
    """The line that says why, without its place; numbers are N."""
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()[-1:]
    text = re.sub(r"^\S*?:\d+:\d+: ", "", lines[0].strip()) if lines else ""
    text = re.sub(r"^error: ", "", text)
    text = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "N", text)
    # Names of nodes are another thing in every graph.
    return re.sub(r"'[^' ]*[N@][^' ]*'|\S+@\S+|^vN(?= )", "'…'", text)[:200]


def _judge(code: int | None, said: str) -> Outcome | None:
    """What a run that is not simply done is; None when it is done."""
    if code is None:
        return Outcome("hang", "no end within the time limit", said)
    if _SANITIZER.search(said):
        found = _SANITIZER.search(said)
        return Outcome("crash", "sanitizer: " + (found.group() if found else ""), said)
    if code == 0:
        return None
    message = first_error(said)
    if any(pattern.search(said) for pattern in INTERNAL):
        return Outcome("internal", message, said)
    if code == 2:
        return Outcome("refused", message, said) if "error" in said else Outcome("silent", "exit code 2 alone", said)
    if code < 0 or code in (134, 136, 139):  # of a launcher's process: 128 and the signal
        return Outcome("crash", f"signal {signal.Signals(-code if code < 0 else code - 128).name}", said)
    return Outcome("crash", f"exit code {code}: {message}", said)


def _read(path: Path) -> tuple[dict[int, tuple[str, str]], dict[str, str], str]:
    """Steps, evaluations and the hash of a run's metrics; numbers stay as they are printed."""
    steps, evals, found = {}, {}, ""
    # splitlines would cut a sampled text at U+0085 and U+2028, which are characters in JSON
    for line in filter(None, path.read_text().split("\n")) if path.exists() else []:
        event = json.loads(line, parse_float=str)
        if event["event"] == "step":
            steps[int(event["step"])] = (str(event["loss"]), str(event["grad_norm"]))
        elif event["event"] == "eval":
            evals[f"evaluation after step {event['step']}"] = str(event["loss"])
        elif event["event"] == "sample":
            evals[f"text after step {event['step']}"] = event["text"]
        elif event["event"] == "end":
            found = event["weights_sha256"]
    return steps, evals, found


def run(runner: Runner, recipe: Recipe, realisation: Realisation, number: str, folder: Path) -> Outcome:
    """Runs it in the folder, where the recipe's files are."""
    write(recipe, realisation, number, folder)
    for name in (f"kept{number}", f"again{number}"):
        shutil.rmtree(folder / name, ignore_errors=True)
    result = Outcome("done")
    lines = commands(runner.program, realisation, number)
    for index, command in enumerate(lines):
        metrics = folder / command[command.index("--metrics") + 1]
        metrics.unlink(missing_ok=True)
        code, said = runner.start(command, folder)
        bad = _judge(code, said)
        if bad:
            if "a stage begins at" in bad.message and not any("stages" in cut for cut in realisation.cuts()):
                bad.status = "internal"  # nobody named that node
            layout = realisation.after if index and realisation.after else realisation.first
            if bad.status == "refused" and refusals.is_wrong(bad.said, recipe, layout):
                bad.status = "internal"
            return bad
        steps, evals, found = _read(metrics)
        if not found:
            return Outcome("crash", "exit code 0, but no hash at the end of the metrics", said)
        last = index == len(lines) - 1
        if last and realisation.after and steps and min(steps) != realisation.step + 1:
            return Outcome("crash", f"goes on at step {min(steps)} instead of after step {realisation.step}", said)
        if not last and realisation.kind == "stop":
            evals = {}  # there is one at a run's end, too
        elif not last:
            result.ends.append(found)
        result.steps |= steps
        result.evals |= evals
        result.hash = found
    return result


def difference(recipe: Recipe, want: Outcome, have: Outcome, realisation: Realisation) -> str:
    """In what a realisation differs from the baseline; empty when in nothing."""
    for step in range(1, recipe.steps + 1):
        if step not in have.steps:
            return "a step is missing"
        for what, a, b in zip(("loss", "gradient norm"), want.steps[step], have.steps[step]):
            if a != b:
                return f"{what} of step {step}"
    if have.hash != want.hash:
        return "weights, not losses"
    if any(found != want.hash for found in have.ends):
        return "weights of the run that was not resumed"
    for what, found in want.evals.items():
        if realisation.kind == "stop" and int(what.split()[-1]) <= realisation.step:
            continue
        if have.evals.get(what) != found:
            return what
    return ""


def script(program: str, wanted: Realisation, other: Realisation) -> str:
    """A shell script that runs both and prints the ends of their metrics."""
    lines = ["#!/usr/bin/env bash", "# usage: run.sh [PROGRAM]", f"program=${{1:-{shlex.quote(program)}}}",
             'cd "$(dirname "$0")"', "rm -rf kept* again* *.jsonl"]
    for realisation, number in ((wanted, "0"), (other, "1")):
        for command in commands("PROGRAM", realisation, number):
            lines.append(" ".join('"$program"' if w == "PROGRAM" else shlex.quote(w) for w in command)
                         + ' >/dev/null; echo "exit code $?"')
    lines.append("tail -qn 1 *.jsonl | cut -c1-200")
    lines.append("grep -ho '\"step\":.*\"grad_norm\":[^,]*' *.jsonl")
    return "\n".join(lines) + "\n"

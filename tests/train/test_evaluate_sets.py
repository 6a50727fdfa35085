# SPDX-License-Identifier: Apache-2.0
"""`evaluate --eval-set`: the figures of EleutherAI's lm-evaluation-harness (tests/train/evaluate_sets, which
scripts/check_evaluate has written), standard errors by their formulas, the same bytes on every mesh, located errors.
usage: test_evaluate_sets.py PROGRAM"""

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURE = Path(__file__).resolve().parent / "evaluate_sets"
ALL = ["hellaswag", "arc_3_shots", "lambada", "text_short"]  # of each kind one
MESHES = [{"dp": 2}, {"dp": 3}, {"tp": 2}, {"cp": 2}, {"pp": 2}, {"dp": 2, "cp": 2}]
CHOICE = {"question": "q", "choices": ["a", "b"], "answer": 0}


class Checks:
    """Runs the program in a folder with the sets and the imported model."""

    def __init__(self, program, folder):
        self.program, self.folder = str(Path(program).resolve()), Path(folder)
        self.count = self.wrong = 0

    def say(self, what):
        self.wrong += 1
        print(what)

    def run(self, *words, code=0):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=120)
        self.count += 1
        if done.returncode != code:
            self.say(f"{words}: exit code {done.returncode}, not {code}\n{done.stderr}")
        return done

    def evaluate(self, *words, model="in"):
        """The results and the samples, as bytes."""
        for name in ("out.json", "samples.jsonl"):
            (self.folder / name).unlink(missing_ok=True)
        self.run("evaluate", "--checkpoint", model, "--quiet", "--out", "out.json", "--log-samples", "samples.jsonl", *words)
        try:
            return (self.folder / "out.json").read_bytes(), (self.folder / "samples.jsonl").read_bytes()
        except OSError as error:
            self.say(f"{words}: {error}")
            return b'{"sets": []}', b""

    def near(self, what, value, known, bound):
        self.count += 1
        if value is None or not abs(value - known) <= bound:
            self.say(f"{what}: {value}, not {known}")


def lines_of(data):
    return [json.loads(line) for line in data.splitlines()]


def error_of_quotient(above, below):
    n, ratio = len(above), sum(above) / sum(below)
    return math.sqrt(n / (n - 1) * sum((a - ratio * b) ** 2 for a, b in zip(above, below))) / sum(below)


def check_errors_of(c, name, metrics, samples):
    """Standard errors from the samples, by the formulas."""
    for key in ("acc", "acc_norm", "acc_bytes"):
        if key in metrics:
            c.near(f"{name} {key} stderr", metrics[key]["stderr"],
                   error_of_quotient([s[key] for s in samples], [1] * len(samples)), 1e-9)
    losses = [-sum(s["log_likelihoods"]) for s in samples]
    for key, sizes in (("perplexity", [1] * len(samples)), ("word_perplexity", [s.get("words") for s in samples]),
                       ("byte_perplexity", [s.get("bytes") for s in samples])):
        if key in metrics:
            value = math.exp(sum(losses) / sum(sizes))
            c.near(f"{name} {key}", metrics[key]["value"], value, 1e-9 * value)
            c.near(f"{name} {key} stderr", metrics[key]["stderr"], value * error_of_quotient(losses, sizes), 1e-6 * value)


def check_harness(c):
    expected = json.loads((FIXTURE / "expected.json").read_text())
    for name, case in expected.items():
        out, samples = c.evaluate(*case["arguments"])
        metrics = json.loads(out)["sets"][0]["metrics"]
        for key, known in case["metrics"].items():
            exact = key.startswith("acc")
            c.near(f"{name} {key}", metrics[key]["value"], known["value"], 1e-6 if exact else 1e-5 * known["value"])
            if known["stderr"] is not None:
                bound = 1e-6 if exact else 0.15 * known["stderr"]  # the harness resamples
                c.near(f"{name} {key} stderr", metrics[key]["stderr"], known["stderr"], bound)
        check_errors_of(c, name, metrics, lines_of(samples))
    return expected


def check_meshes(c, expected):
    units = ("--set", "numerics={units: {sequence: 4, tp: 2}, threads: 1}")
    cases = {name: expected[name]["arguments"] for name in ALL}
    cases["two programs"] = ["--eval-set", "hellaswag.jsonl", "--eval-set", "text.jsonl"]
    graphs = c.run("evaluate", "--checkpoint", "in", "--quiet", "--dump", "graph", *cases["two programs"]).stdout
    if re.findall(r"input tokens i32 \(\d+, (\d+)\)", graphs) != ["64", "96"]:
        c.say(f"the programs are not of 64 and 96 tokens:\n{graphs[:2000]}")
    for name, arguments in cases.items():
        words = [*arguments, *units]
        one = c.evaluate(*words)
        ways = [("--set", f"mesh={{axes: [{', '.join(mesh)}], shape: {list(mesh.values())}}}") for mesh in MESHES]
        ways.append(("--set", "training_config.validation_batch_size=3"))
        ways.append(("--set", "numerics={units: {sequence: 4, tp: 2}, threads: 2}"))
        for way in ways:
            if c.evaluate(*words, *way) != one:
                c.say(f"{name}: other bytes with {way}")
    zigzag = ("--set", "device_config.cp_layout=zigzag")
    words = [*expected["lambada"]["arguments"], *units, *zigzag]
    if c.evaluate(*words) != c.evaluate(*words, "--set", "mesh={axes: [cp], shape: [2]}"):
        c.say("lambada: other bytes with zigzag over cp")


def check_shots(c):
    """The examples are a function of the seed; an example with the line's own context is left out."""
    words = ["--eval-set", "mmlu.jsonl", "--shots", "2", "--shots-file", "mmlu.jsonl"]
    first, again, other = c.evaluate(*words), c.evaluate(*words), c.evaluate(*words, "--seed", "6")
    if first != again:
        c.say("the same seed gives other examples")
    if first[1] == other[1]:
        c.say("another seed gives the same examples")
    (c.folder / "two.jsonl").write_text("".join(json.dumps({**CHOICE, "question": q}) + "\n" for q in "ab"))
    c.evaluate("--eval-set", "two.jsonl", "--shots", "1", "--shots-file", "two.jsonl")
    fewer = ("--eval-set", "two.jsonl", "--shots", "2", "--shots-file", "two.jsonl")
    c.run("evaluate", "--checkpoint", "in", *fewer, code=2)


# Choices, an answer, and the choice that it is: a string is a label, then a text, a letter, a number.
ANSWERS = [
    (["1", "0"], "0", 1), (["1", "0"], 0, 0), (["B", "A"], "A", 1), (["B", "c"], "A", 0), (["a", "b"], "B", 1), (["a", "b"], "1", 1),
    (["a", "a"], "B", 1), (["a", "a"], 1, 1), ({"text": ["B", "A"], "label": ["A", "B"]}, "A", 0),
    ({"text": ["x", "0"], "label": ["1", "2"]}, "0", 1), ({"text": ["x", "y"], "label": ["1", "2"]}, "1", 0),
]


def check_answers(c):
    lines = [json.dumps({"question": "q", "choices": choices, "answer": answer}) for choices, answer, _ in ANSWERS]
    (c.folder / "answers.jsonl").write_text("\n".join(lines))
    c.run("evaluate", "--checkpoint", "in", "--eval-set", "answers.jsonl", "--log-samples", "answers.out.jsonl")
    found = [json.loads(line)["answer"] for line in (c.folder / "answers.out.jsonl").open()]
    if found != [choice for _, _, choice in ANSWERS]:
        c.say(f"answers are other choices: {found}")


# What stands in a set, and what the error should have.
HOSTILE = [
    ('{"question": "q", "choices": ["a", "b"], "answer": 2}', ":1:52: error: answer 2 is none of the 2 choices"),
    ('{"question": "q", "choices": ["a", "b"], "answer": "C"}', ":1:52: error: 'C' is neither the number"),
    ('{"question": "q", "choices": ["a", "b", "a"], "answer": "a"}', ":1:57: error: two choices are 'a'"),
    ('{"question": "q", "choices": ["a", "b"], "answer": 0.5}', ":1:52: error: key 'answer' should be the number"),
    ('{"question": "q", "choices": ["a", "b"]}', ":1:1: error: the line has no answer"),
    ('{"question": "q", "choices": ["a", 7], "answer": 0}', ":1:36: error: an item of 'choices' should be a string"),
    ('{"question": "q", "choices": ["a", ""], "answer": 0}', ":1:36: error: the choice is empty"),
    ('{"question": "q", "choices": ["a"], "answer": 0}', ":1:30: error: 'choices' should be a list of at least two"),
    ('{"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answer": 0}', ":1:30: error: an object"),
    ('{"question": "q", "choices": {"text": ["a", "b", "c"], "label": ["A", "B", "A"]}, "answer": "A"}',
     ":1:76: error: two choices have the label 'A'"),
    ('{"question": "q", "choices": {"text": ["a", "b"], "label": ["", ""]}, "answer": 0}', ":1:65: error: two choices have the label ''"),
    ('{"question": "q", "choices": {"label": ["B", "B", "A"], "text": ["a", "b", "c"]}, "answer": "A"}',
     ":1:46: error: two choices have the label 'B'"),
    ('{"question": "q", "context": "c", "choices": ["a", "b"], "answer": 0}', "error: the line has context twice"),
    ('{"choices": ["a", "b"], "answer": 0}', ":1:1: error: the line has no context"),
    ('{"question": 5, "choices": ["a", "b"], "answer": 0}', ":1:14: error: key 'question' should be a string"),
    ('{"question": "q"}', ":1:1: error: the line has neither choices, a completion nor a text"),
    ('{"text": "a"}\n ["q"]', ":2:1: error: a line should be an object"),
    ('["q"]', "error: 'bad.jsonl' holds a JSON array"),
    ('{"question": "q", "choices": ["a", "b"], "answer": 0', ":1:53: error:"),
    ('{"text": "a b"}\n\n{"prompt": "p", "completion": "c"}', ":3:1: error: the line is a completion, and those before"),
    ('{"text": "a\\u0000b"}', ":1:12: error:"),
    ("\n \n", ": error: the file has no line"),
    ('{"prompt": "p", "completion": "%s"}' % ("ka " * 200), ":1:1: error: choice 0 has"),
]


def check_hostile(c):
    for text, said in HOSTILE:
        (c.folder / "bad.jsonl").write_text(text + "\n", encoding="utf-8")
        done = c.run("evaluate", "--checkpoint", "in", "--eval-set", "bad.jsonl", code=2)
        if said not in done.stderr:
            c.say(f"{text!r}: no '{said}' in\n{done.stderr}")
    (c.folder / "bad.jsonl").write_bytes(b'{"text": "\xff"}\n')
    c.run("evaluate", "--checkpoint", "in", "--eval-set", "bad.jsonl", code=2)
    for words, said in (
            (("--last-word",), "--last-word goes with --eval-set"),
            (("--eval-set", "text.jsonl", "--shots", "1"), "--shots and --shots-file go with each other"),
            (("--eval-set", "text.jsonl", "--shots", "1", "--shots-file", "arc_train.jsonl"),
             "--shots goes with choices and completions"),
            (("--eval-set", "completion.jsonl", "--shots", "1", "--shots-file", "arc_train.jsonl"),
             "'completion.jsonl' has lines of the kind completion"),
            (("--eval-set", "text.jsonl", "--max-length", "97"), "the model reads 96 tokens at most"),
            (("--eval-set", "missing.jsonl"), "missing.jsonl"),
            (("--eval-set", "mmlu.jsonl", "--context-template", "{{ a"), "--context-template:1:"),
            (("--eval-set", "mmlu.jsonl", "--context-template", "{{ question.missing() }}"), "mmlu.jsonl:1:1: error:"),
            (("--eval-set", "mmlu.jsonl", "--out", "mmlu.jsonl"), "mmlu.jsonl"),
            (("--eval-set", "mmlu.jsonl", "--log-samples", "no/folder.jsonl"), "'no' is no folder"),
            (("--eval-set", "lambada.jsonl", "--data", "lambada.jsonl"), "use one of the two")):
        done = c.run("evaluate", "--checkpoint", "in", *words, code=2)
        if said not in done.stderr:
            c.say(f"{words}: no '{said}' in\n{done.stderr}")


def check_several(c):
    """The mistakes of all files and outputs are reported together."""
    (c.folder / "bad.jsonl").write_text('{"text": 5}\n')
    (c.folder / "worse.jsonl").write_text('["q"]\n{"question": "q"}\n')
    done = c.run("evaluate", "--checkpoint", "in", "--eval-set", "missing.jsonl", "--eval-set", "bad.jsonl", "--eval-set", "none/*",
                 "--eval-set", "text.jsonl", "--shots", "1", "--shots-file", "worse.jsonl", "--out", "no/out.json", "--log-samples",
                 "neither/samples.jsonl", code=2)
    for said in ("cannot read 'missing.jsonl'", "no file matches 'none/*'", "bad.jsonl:1:10: error: key 'text' should be a string",
                 "worse.jsonl", "'no' is no folder", "'neither' is no folder"):
        if said not in done.stderr:
            c.say(f"several mistakes: no '{said}' in\n{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as name:
        c = Checks(sys.argv[1], name)
        for path in FIXTURE.glob("*.jsonl"):
            shutil.copy(path, name)
        c.run("import", FIXTURE / "model", "--out", "in", "--quiet")
        expected = check_harness(c)
        check_meshes(c, expected)
        check_shots(c)
        check_answers(c)
        check_hostile(c)
        check_several(c)
        print(f"{c.count} checks, {c.wrong} complaints")
        return 1 if c.wrong or c.count < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

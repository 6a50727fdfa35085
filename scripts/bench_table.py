# SPDX-License-Identifier: Apache-2.0
"""The table of scripts/bench; docs/speed.md says how it measures and what it counts."""
import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import bench_stats as stats
import bench_work
from bench_process import Failed, Process, Training
from bench_row import Row, put_share, put_torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPTS = os.path.join(ROOT, "scripts")
DERIVED = {
    "ranks": "GPT-2 124M, 4 × 256, as 4 ranks (dp 2 × tp 2)",
    "policy": "GPT-2 124M, 4 × 256, policy: fast",
    "generate": "GPT-2 124M, one text, generated with the cache",
}
ROWS = [work.name for work in bench_work.WORKS] + list(DERIVED)
BASE = "gpt2-4x256"  # what the derived rows of training go beside
FOUR_RANKS = "device_config={enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]}"
TOKENS = 300_001
PEAK_ROUNDS = 20  # of 50 ms, before and after each process that is compared with the peak
NEW_TOKENS = 96


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    """Starts each program on its share of the machine, with its own files in a scratch folder."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.program = os.path.join(options.dir, "tessera-train")
        self.machine = os.path.join(options.dir, "tests/kernels/bench_machine")
        self.dropped = 1 if options.quick else 2
        self.checked, self.llmc_program = set(), None
        self.env = {"TESSERA_SHARE": ROOT}

    def steps(self, work):
        return self.dropped + (1 if self.options.quick else work.steps)

    def tokens(self, shape):
        path = os.path.join(self.scratch, f"tokens_{shape.vocab}.bin")
        if not os.path.exists(path):
            bench_work.write_tokens(path, shape.vocab, TOKENS)
        return path

    def configuration(self, name, shape, batch, sequence, steps):
        path = os.path.join(self.scratch, f"{name}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(bench_work.configuration(
                shape, batch, sequence, steps, self.options.threads, self.tokens(shape)))
        return path

    def limit(self, kind, *more):
        """1e9 FLOP or bytes a second, several times."""
        command = [self.machine, kind, str(self.options.threads), str(PEAK_ROUNDS), *more]
        lines = Process(command).output.decode().split("\n")
        self.level = lines[0]
        return [float(line) for line in lines[1:] if line]

    def check(self, config, shape):
        """That the program means the same model."""
        if shape in self.checked:
            return
        text = Process([self.program, "check", "--config", config], env=self.env).output.decode()
        found = re.findall(r"^model: \S+, ([\d,]+) parameters$", text, re.MULTILINE)
        counts = [int(number.replace(",", "")) for number in found]
        if counts != [shape.parameters()]:
            raise Failed(f"check counts {counts} parameters, not {shape.parameters()}")
        self.checked.add(shape)

    def train(self, process, work):
        run = Training(process, self.steps(work), self.dropped)
        if not abs(run.loss - math.log(work.shape.vocab)) < 2:
            raise Failed(f"{process.command[0]}: a loss of {run.loss}")
        return run

    def ours(self, work, *sets):
        config = self.configuration(work.name, work.shape, work.batch, work.sequence, self.steps(work))
        self.check(config, work.shape)
        command = [self.program, "--config", config, "--quiet", "--metrics", "METRICS", "--set",
                   f"training_config.precision={work.precision}"]
        for text in sets:
            command += ["--set", text]
        return self.train(Process(command, metrics=True, env=self.env), work)

    def torch(self, work, mode, threads):
        shape = json.dumps(work.shape.as_dict())
        command = [self.options.python, os.path.join(SCRIPTS, "bench_torch.py"), shape, str(work.batch),
                   str(work.sequence), str(self.steps(work)), str(threads), mode, self.tokens(work.shape), work.precision]
        env = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
               "TORCHINDUCTOR_CACHE_DIR": os.path.join(self.scratch, "inductor")}
        process = Process(command, env=env, cwd=self.scratch)
        counted = process.events()[0][1]["parameters"]
        if counted != work.shape.parameters():
            raise Failed(f"PyTorch's model has {counted} parameters, not {work.shape.parameters()}")
        return self.train(process, work)

    def build_llmc(self):
        """Its Makefile compiles the driver in place of test_gpt2.c, in a copy."""
        copy = os.path.join(self.scratch, "llmc")
        shutil.copytree(self.options.llmc, copy, ignore=shutil.ignore_patterns(".git"))
        shutil.copy(os.path.join(SCRIPTS, "bench_llmc.c"), os.path.join(copy, "test_gpt2.c"))
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(copy, "test_gpt2"))
        Process(["make", "test_gpt2"], cwd=copy)
        self.llmc_program = os.path.join(copy, "test_gpt2")

    def llmc(self, work):
        if not self.llmc_program:
            self.build_llmc()
        model = os.path.join(self.scratch, f"llmc_{work.shape.vocab}.bin")
        if not os.path.exists(model):
            bench_work.write_llmc_model(model, work.shape)
        command = [self.llmc_program, model, self.tokens(work.shape), str(work.batch), str(work.sequence),
                   str(self.steps(work))]
        process = Process(command, env={"OMP_NUM_THREADS": str(self.options.threads)})
        return self.train(process, work)

    def make_checkpoint(self, shape):
        folder = os.path.join(self.scratch, "generate")
        if not os.path.exists(folder):
            config = self.configuration("generate", shape, 1, 64, 1)
            Process([self.program, "--config", config, "--quiet", "--out", folder], env=self.env)
        return folder

    def generate(self, shape):
        """The seconds of each token after the first two, by when its text arrived."""
        count = 16 if self.options.quick else NEW_TOKENS
        command = [self.program, "generate", "--checkpoint", self.make_checkpoint(shape), "--prompt",
                   "1 2 3 4 5 6 7 8", "--max-new-tokens", str(count), "--temperature", "0"]
        chunks = [chunk for chunk in Process(command, env=self.env).chunks if b" " in chunk[1]]
        seconds = []
        for (before, _), (at, text) in zip(chunks, chunks[1:]):
            tokens = text.count(b" ")
            seconds += [(at - before) / tokens] * tokens
        if len(seconds) < count // 2:
            raise Failed(f"generate: {len(seconds)} tokens arrived one after the other, of {count}")
        return seconds[2:]


class Contender:
    """One side of a comparison: what all its processes gave."""

    def __init__(self, name, run):
        self.name, self.run = name, run
        self.rounds, self.starts, self.first_steps, self.peaks, self.failure = [], [], [], [], None

    def add(self, training):
        self.rounds.append(training.steps)
        self.starts.append(training.first_step)
        self.first_steps.append(training.first_step_done)
        self.peaks.append(training.peak_bytes)

    def go(self):
        """Whether it ended well."""
        try:
            self.add(self.run())
        except Failed as error:
            self.failure = str(error)
            say(f"  {self.name}: {error}")
            return False
        say(f"  {self.name}: {stats.median(self.rounds[-1]):.3f} s a step")
        return True

    def is_there(self):
        return bool(self.rounds) and not self.failure

    def step(self):
        return stats.median(stats.pooled(self.rounds))


def tune_torch(bench, work):
    """PyTorch's ways to run, each once: the first with all threads and with half of them, and the other one
    with what was better. Returns the quickest as a contender, and all that were tried."""
    options = bench.options
    tried = {}

    def attempt(mode, threads):
        name = f"PyTorch {mode}, {threads} thread{'s' if threads > 1 else ''}"
        contender = Contender(name, lambda: bench.torch(work, mode, threads))
        if contender.go():
            tried[mode, threads] = contender

    first, second = work.shape.torch_modes()
    counts = {options.threads} if options.quick else {options.threads, max(1, options.threads // 2)}
    for threads in sorted(counts, reverse=True):
        attempt(first, threads)
    best = min(tried, key=lambda key: tried[key].step(), default=(first, options.threads))
    attempt(second, best[1])
    if not tried:
        return None, []
    best = min(tried, key=lambda key: tried[key].step())
    return Contender(tried[best].name, tried[best].run), list(tried.values())


def alternate(bench, contenders, kind, first):
    """All of them in turn, so many times as there are pairs; every second time backwards, so that a machine that
    slowly changes favours nobody. The limit is measured around `first`. Returns its rounds."""
    limits = []
    more = ["512"] if kind == "read" else []
    pairs = 1 if bench.options.quick else bench.options.pairs
    for number in range(pairs):
        say(f"  round {number + 1} of {pairs}")
        for contender in contenders if number % 2 == 0 else contenders[::-1]:
            if contender.failure:
                continue
            around = contender is first
            before = bench.limit(kind, *more) if around else []
            if contender.go() and around:
                limits.append(before + bench.limit(kind, *more))
    return limits


def training_row(work, ours, limits, peer, tried, llmc):
    row = Row(work.title)
    row.put_speed(work.tokens(), ours.rounds)
    put_share(row, ours.rounds, work.flops(), limits, "flops")
    row.details.append(f"{ours.step():.3f} s a step, {1e-9 * work.flops():.1f} GFLOP")
    if peer and peer.is_there():
        put_torch(row, ours, peer, tried, work.shape is bench_work.GPT2_124M)
    if llmc and llmc.is_there():
        row.put_ratio("× llm.c", llmc.rounds, ours.rounds)
        row.details.append(f"llm.c: {llmc.step():.3f} s a step")
    row.details += [f"{one.name} failed: {one.failure}" for one in (peer, llmc) if one and one.failure]
    return row


def beside_row(work, name, contender, base, text, limits, turned):
    """`turned`: the cell is the base's speed over this one's."""
    row = Row(DERIVED[name])
    row.put_speed(work.tokens(), contender.rounds)
    put_share(row, contender.rounds, work.flops(), limits, "flops")
    pair = (contender.rounds, base.rounds) if turned else (base.rounds, contender.rounds)
    row.put_ratio("beside", *pair, text)
    row.details.append(f"peak memory {stats.median(contender.peaks) / 2**20:,.0f} MiB")
    return row


def measure_training(bench, work, rows):
    """The row of this work, and those that go beside it."""
    say(f"{work.name}:")
    wanted = work.name in rows
    options = bench.options
    ours = Contender("tessera-train", lambda: bench.ours(work))
    ranks = fast = peer = llmc = None
    tried = []
    if wanted and options.python:
        peer, tried = tune_torch(bench, work)
    if wanted and options.llmc and work.llmc:
        llmc = Contender("llm.c", lambda: bench.llmc(work))
    if work.name == BASE and "ranks" in rows:
        ranks = Contender("tessera-train, 4 ranks", lambda: bench.ours(work, FOUR_RANKS))
    if work.name == BASE and "policy" in rows:
        fast = Contender("tessera-train, fast", lambda: bench.ours(work, "numerics.policy=fast"))
    contenders = [one for one in (fast, ours, ranks, peer, llmc) if one]
    limits = alternate(bench, contenders, "dot" if work.precision == "bf16" else "flops", ours)
    if not ours.is_there():
        raise Failed(f"{work.name}: {ours.failure}")
    made = [training_row(work, ours, limits, peer, tried, llmc)] if wanted else []
    for name, one, text, turned in (
            ("ranks", ranks, "{:.2f} × one rank", False), ("policy", fast, "deterministic {:.2f} ×", True)):
        if one and one.is_there():
            made.append(beside_row(work, name, one, ours, text, limits, turned))
        elif one:
            raise Failed(f"{name}: {one.failure}")
    return made


class Text:
    """A generated text, in the form of a training."""

    def __init__(self, seconds):
        self.steps, self.first_step, self.first_step_done, self.peak_bytes = seconds, 0, 0, 0


def measure_generation(bench):
    say("generate:")
    shape = bench_work.GPT2_124M
    bench.make_checkpoint(shape)
    texts = Contender("tessera-train generate", lambda: Text(bench.generate(shape)))
    limits = alternate(bench, [texts], "read", texts)
    if not texts.is_there():
        raise Failed(f"generate: {texts.failure}")
    row = Row(DERIVED["generate"])
    row.put_speed(1, texts.rounds)
    put_share(row, texts.rounds, shape.bytes_of_a_token(), limits, "read")
    row.details.append(f"{1000 * texts.step():.1f} ms a token, {shape.bytes_of_a_token() / 1e6:.1f} MB of parameters")
    return row


def first_line(command, default):
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return found.stdout.strip().split("\n")[0] or default
    except (OSError, subprocess.SubprocessError):
        return default


def cpu_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def describe(bench):
    """What was measured, on what and when."""
    options = bench.options
    ours = first_line([bench.program, "--version"], "tessera-train")
    commit = first_line(["git", "-C", ROOT, "describe", "--always", "--dirty"], "")
    lines = [
        f"date: {datetime.date.today().isoformat()}",
        f"machine: {cpu_name()}, {options.threads} of {os.cpu_count()} CPUs, {bench.level}; "
        f"{platform.system()} {platform.release()}",
        f"versions: {ours}{' ' + commit if commit else ''}"]
    if options.python:
        lines.append(f"  PyTorch {bench.torch_version} of Python {first_line([options.python, '-V'], '')[7:]}")
    else:
        lines.append(f"  no PyTorch: {options.no_torch}")
    if options.llmc:
        llmc = first_line(["git", "-C", options.llmc, "rev-parse", "--short", "HEAD"], "of unknown commit")
        lines.append(f"  llm.c {llmc}, {first_line(['cc', '--version'], 'cc')}")
    else:
        lines.append(f"  no llm.c: {options.no_llmc}")
    pairs = 1 if options.quick else options.pairs
    lines += [
        f"all: f32 unless named, AdamW, no dropout, no clipping, {options.threads} threads; {pairs} round{'s' * (pairs > 1)}, each program "
        f"once in each; a process's first {bench.dropped} step{'s' * (bench.dropped > 1)} left out; medians",
        "limit: FLOP are 6 N + 6 L T C a token (N: elements of the matrices that a token is multiplied by; L layers, "
        "T tokens of a sequence, C features of the queries), over what multiply-adds in registers reach on "
        "all threads; generating reads each parameter once a token, over what all threads read",
        "spread: the middle half of the steps over their median; ?: worthless, for a spread above "
        f"{100 * stats.SPREAD_MAX:.0f} % or a ratio whose 95 % interval is wider than {100 * stats.INTERVAL_MAX:.0f} %"]
    return lines


def print_table(lines, markdown):
    """The first line has the columns' names."""
    if markdown:
        for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]]:
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def show(bench, rows):
    markdown = bench.options.markdown
    print_table([Row.COLUMNS] + [[row.cells[name] for name in Row.COLUMNS] for row in rows], markdown)
    print()
    for line in describe(bench):
        print(("- " if markdown and not line.startswith(" ") else "") + line)
    if markdown:
        return
    print()
    for row in rows:
        print(row.cells["work"] + ":")
        for line in row.details:
            print("  " + line)


def find_peers(options):
    """Sets what is not there to None, with the reason beside it."""
    options.no_torch = options.no_llmc = "--no-peers"
    if options.no_peers:
        options.python = options.llmc = None
        return None
    version = None
    if options.python:
        options.python = shutil.which(options.python) or options.python
        command = [options.python, os.path.join(SCRIPTS, "bench_torch.py"), "version"]
        version = first_line(command, None)
        options.no_torch = f"'{options.python}' has none that can be imported"
    else:
        options.no_torch = "neither --python nor $PYTHON_WITH_TORCH names an interpreter that has it"
    if not version:
        options.python = None
    if not options.llmc:
        options.no_llmc = "--llmc names no checkout of it"
    elif not os.path.exists(os.path.join(options.llmc, "train_gpt2.c")):
        options.no_llmc, options.llmc = f"'{options.llmc}' has no train_gpt2.c", None
    return version


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures whole training steps beside this machine's limits and other "
        "programs, and prints a table. docs/speed.md says how.")
    parser.add_argument("--dir", default=os.path.join(ROOT, "build"), help="the build folder (build)")
    parser.add_argument("--threads", type=int, default=2, help="of each program (2)")
    parser.add_argument("--rows", default=",".join(ROWS), help="which of " + ",".join(ROWS))
    parser.add_argument("--pairs", type=int, default=5, help="how often each program runs (5)")
    parser.add_argument("--quick", action="store_true", help="a step each: only whether all runs")
    parser.add_argument("--no-peers", action="store_true", help="neither PyTorch nor llm.c")
    parser.add_argument("--python", default=os.environ.get("PYTHON_WITH_TORCH"),
                        help="a Python interpreter that has PyTorch ($PYTHON_WITH_TORCH)")
    parser.add_argument("--llmc", metavar="FOLDER", help="a checkout of llm.c")
    parser.add_argument("--markdown", action="store_true", help="the table as the README has it")
    options = parser.parse_args(arguments)
    options.rows = options.rows.split(",")
    for name in options.rows:
        if name not in ROWS:
            parser.error(f"there is no row '{name}'; valid: {', '.join(ROWS)}")
    cpus = os.sched_getaffinity(0)
    if not 1 <= options.threads <= len(cpus):
        parser.error(f"--threads {options.threads}: this process may use {len(cpus)} CPUs")
    if options.pairs < 1:
        parser.error("--pairs needs a number above 0")
    os.sched_setaffinity(0, sorted(cpus)[: options.threads])
    options.dir = os.path.abspath(options.dir)
    options.llmc = options.llmc and os.path.abspath(options.llmc)
    return options


def build(bench):
    """As far as it is not there yet."""
    if not all(os.access(path, os.X_OK) for path in (bench.program, bench.machine)):
        subprocess.run([os.path.join(SCRIPTS, "build"), "--dir", bench.options.dir], check=True, stdout=sys.stderr)


def finish(bench, rows):
    """With what is said of their noise; also said at once, for the table comes at the end alone."""
    rows = [row.finish(bench.options.quick) for row in rows]
    for row in rows:
        say("  " + "; ".join(f"{name} {cell}" for name, cell in row.cells.items() if cell != "–"))
    return rows


def measure(bench):
    """The rows that could be measured, and whether all could."""
    rows, whole, wanted = [], True, bench.options.rows
    for work in bench_work.WORKS:
        beside = work.name == BASE and ("ranks" in wanted or "policy" in wanted)
        if work.name not in wanted and not beside:
            continue
        try:
            rows += finish(bench, measure_training(bench, work, wanted))
        except Failed as error:
            say(f"failed: {error}")
            whole = False
    if "generate" in wanted:
        try:
            rows += finish(bench, [measure_generation(bench)])
        except Failed as error:
            say(f"failed: {error}")
            whole = False
    return rows, whole


def main(arguments):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    version = find_peers(options)
    with tempfile.TemporaryDirectory(prefix="tessera_bench_") as scratch:
        bench = Bench(options, scratch)
        bench.torch_version = version
        build(bench)
        bench.limit("flops")  # also warms the machine up
        rows, whole = measure(bench)
        show(bench, rows)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

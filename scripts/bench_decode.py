# SPDX-License-Identifier: Apache-2.0
"""The table of scripts/bench --decode: how fast texts are generated, one and several at once, with weights of each
type; docs/speed.md says how it measures."""
import argparse
import os
import re
import signal
import sys
import tempfile

import bench_stats as stats
import bench_work
from bench_process import Failed, Process
from bench_table import ROOT, cpu_name, first_line, print_table, say

WEIGHTS = {
    "f32": ["--set", "training_config.precision=f32"],
    "bf16": ["--set", "training_config.precision=bf16"],
    "int8": ["--set", "training_config.precision=bf16", "--weights", "int8"],
    "nf4": ["--set", "training_config.precision=bf16", "--weights", "nf4"],
}
TEXTS = 16
COLUMNS = ["weights", "1 text, tokens/s", f"{TEXTS} texts, tokens/s", f"{TEXTS} texts ÷ 1", "1 text ÷ f32", "÷ bf16",
           f"{TEXTS} texts ÷ f32", "÷ bf16"]
PROMPT, NEW_TOKENS = "1 2", 16


def model(blocks):
    return bench_work.Shape("llama", blocks, 2048, 16, 4, 8192, 4096, 512)


def speed(text):
    """What `generate` says of the tokens that it has drawn, a second."""
    found = re.search(r"new: [\d,]+ tokens, ([\d.]+)/s", text)
    if not found:
        raise Failed("generate: no speed in " + repr(text))
    return float(found[1])


def cell(over, under):
    """The median and the middle half of the rounds' ratios."""
    ratios = [a / b for a, b in zip(over, under)]
    low, high = stats.quantile(ratios, 0.25), stats.quantile(ratios, 0.75)
    return f"{stats.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def table(speeds):
    """Of speeds[weights, texts], a list of rounds; types that were not measured are left out."""
    names = [name for name in WEIGHTS if (name, 1) in speeds]

    def row(name):
        one, many = speeds[name, 1], speeds[name, TEXTS]
        cells = [name, f"{stats.median(one):.4g}", f"{stats.median(many):.4g}", cell(many, one)]
        for texts in (1, TEXTS):
            for other in ("f32", "bf16"):
                beside = other != name and other in names
                cells.append(cell(speeds[name, texts], speeds[other, texts]) if beside else "–")
        return cells

    return [row(name) for name in names]


class Decoding:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.program = os.path.join(options.dir, "tessera-train")
        self.env = {"TESSERA_SHARE": ROOT}
        self.shape = model(options.blocks)
        self.checkpoint = os.path.join(scratch, "model")

    def make_model(self):
        """A step of training makes a checkpoint with random weights."""
        tokens, config = (os.path.join(self.scratch, name) for name in ("tokens.bin", "model.yaml"))
        bench_work.write_tokens(tokens, self.shape.vocab, 20_001)
        text = bench_work.configuration(self.shape, 1, 8, 1, self.options.threads, tokens)
        with open(config, "w", encoding="utf-8") as file:
            file.write(re.sub(r"optimizer: \{.*\}", "optimizer: {type: SGD, lr: 0.0001}", text))
        Process([self.program, "--config", config, "--quiet", "--out", self.checkpoint], env=self.env)

    def generate(self, weights, texts):
        command = [self.program, "generate", "--checkpoint", self.checkpoint, "--max-batch", str(texts), "--max-new-tokens",
                   str(4 if self.options.quick else NEW_TOKENS), "--temperature", "0", *WEIGHTS[weights]]
        command += ["--set", f"numerics.threads={self.options.threads}"]
        if self.options.isa:
            command += ["--set", f"numerics.isa={self.options.isa}"]
        command += ["--prompt", PROMPT] * texts
        return speed(Process(command, env=self.env).errors.decode())

    def measure(self):
        """Every second round goes backwards, so that a machine that slowly changes favours nobody."""
        turns = [(name, texts) for name in self.options.weights for texts in (1, TEXTS)]
        speeds = {turn: [] for turn in turns}
        rounds = 1 if self.options.quick else self.options.rounds
        for number in range(rounds):
            say(f"  round {number + 1} of {rounds}")
            for name, texts in turns if number % 2 == 0 else turns[::-1]:
                speeds[name, texts].append(self.generate(name, texts))
                say(f"  {name}, {texts}: {speeds[name, texts][-1]:.4g} tokens/s")
        return speeds


def show(bench, rows):
    print_table([COLUMNS, *rows], bench.options.markdown)
    options = bench.options
    cache = first_line(["getconf", "LEVEL3_CACHE_SIZE"], "")
    size = f"; last-level cache of {int(cache) >> 20} MiB" if cache.isdigit() else ""
    print(f"\nmachine: {cpu_name()}, {options.threads} thread{'s' * (options.threads > 1)}, "
          f"{options.isa or 'its best instruction set'}{size}")
    print(f"model: Llama of {options.blocks} blocks × 2,048, {bench.shape.parameters():,} parameters; {NEW_TOKENS} new "
          f"tokens of each text; medians of {1 if options.quick else options.rounds} rounds")


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/bench --decode", description="Measures how fast one text and 16 texts at once are generated, with "
        "weights of each type, and prints a table. docs/speed.md says how.")
    parser.add_argument("--dir", default=os.path.join(ROOT, "build"), help="the build folder (build)")
    parser.add_argument("--threads", type=int, default=1, help="of each program (1)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (5)")
    parser.add_argument("--weights", default=",".join(WEIGHTS), help="which of " + ",".join(WEIGHTS))
    parser.add_argument("--blocks", type=int, default=4, help="of the model, each of 63 million parameters (4)")
    parser.add_argument("--isa", help="the instruction-set level, such as x86-64-v3 (the best)")
    parser.add_argument("--quick", action="store_true", help="few tokens, once: only whether all runs")
    parser.add_argument("--markdown", action="store_true", help="the table as a page has it")
    options = parser.parse_args(arguments)
    options.weights = options.weights.split(",")
    for name in options.weights:
        if name not in WEIGHTS:
            parser.error(f"there are no weights '{name}'; valid: {', '.join(WEIGHTS)}")
    cpus = os.sched_getaffinity(0)
    if not 1 <= options.threads <= len(cpus):
        parser.error(f"--threads {options.threads}: this process may use {len(cpus)} CPUs")
    if options.rounds < 1 or options.blocks < 1:
        parser.error("--rounds and --blocks need numbers above 0")
    options.dir = os.path.abspath(options.dir)
    return options


def main(arguments):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="tessera_bench_") as scratch:
        bench = Decoding(options, scratch)
        try:
            bench.make_model()
            speeds = bench.measure()
        except Failed as error:
            say(f"failed: {error}")
            return 1
        show(bench, table(speeds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

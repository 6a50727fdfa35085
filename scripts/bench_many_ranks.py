# SPDX-License-Identifier: Apache-2.0
"""The table of scripts/bench --many-ranks: the same steps on 16 to 1,024 ranks of one process; docs/speed.md says what they
are."""
import argparse
import os
import re
import sys
import tempfile

import bench_stats as stats
import bench_work
from bench_process import Failed, Process, Training
from bench_table import ROOT, cpu_name, print_table, say

RANKS = (16, 64, 256, 1024)
SAMPLES, SEQUENCE, STEPS = 1024, 16, 6
COLUMNS = ["ranks (dp)", "whole run, s", "step, ms", "memory"]
SHAPE = bench_work.Shape("gpt2", 2, 32, 2, 2, 128, 65, SEQUENCE)


def run(program, config, ranks):
    """Seconds, milliseconds a step and bytes."""
    process = Process(
        [program, "--config", config, "--quiet", "--metrics", "METRICS", "--set",
         f"device_config={{enable_ddp: true, mesh_shape: [{ranks}]}}"], metrics=True, env={"TESSERA_SHARE": ROOT})
    training = Training(process, STEPS, 1)
    return process.seconds, 1000 * stats.median(training.steps), training.peak_bytes


def row(ranks, runs):
    seconds, step, peak = (stats.median(column) for column in zip(*runs))
    return [f"{ranks:,}", f"{seconds:.2f}", f"{step:.0f}", f"{peak / 1e6:.0f} MB"]


def measure(options, scratch):
    """Every second round goes backwards, so that a machine that slowly changes favours nobody."""
    tokens, config = (os.path.join(scratch, name) for name in ("tokens.bin", "run.yaml"))
    bench_work.write_tokens(tokens, SHAPE.vocab, SAMPLES * (SEQUENCE + 1))
    text = bench_work.configuration(SHAPE, SAMPLES, SEQUENCE, STEPS, options.threads, tokens)
    text = re.sub(r"numerics: \{", f"numerics: {{units: {{batch: {SAMPLES}}}, ", text)
    with open(config, "w", encoding="utf-8") as file:
        file.write(text)
    runs = {ranks: [] for ranks in RANKS}
    for number in range(options.rounds):
        say(f"  round {number + 1} of {options.rounds}")
        for ranks in RANKS if number % 2 == 0 else RANKS[::-1]:
            runs[ranks].append(run(os.path.join(options.dir, "tessera-train"), config, ranks))
    return [row(ranks, runs[ranks]) for ranks in RANKS]


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="scripts/bench --many-ranks", description="Measures the same steps on 16 to 1,024 ranks of one process, and "
        "prints a table. docs/speed.md says how.")
    parser.add_argument("--dir", default=os.path.join(ROOT, "build"), help="the build folder (build)")
    parser.add_argument("--threads", type=int, default=2, help="of each run (2)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each run is made (5)")
    parser.add_argument("--markdown", action="store_true", help="the table as a page has it")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or not 1 <= options.threads <= len(os.sched_getaffinity(0)):
        parser.error("--rounds needs a number above 0, and --threads as many as there are CPUs at most")
    return options


def main(arguments):
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="tessera_bench_") as scratch:
            lines = measure(options, scratch)
    except Failed as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    print_table([COLUMNS, *lines], options.markdown)
    print(f"\nmachine: {cpu_name()}, {options.threads} threads; medians of {options.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""Random recipes and realisations: every accepted realisation of a recipe must give the same bits.

A recipe is what fixes the bits (model, data, precision, optimizer, units), a realisation is how it is run (threads,
mesh, ZeRO, pipeline order, resume, processes). Both are functions of a seed. What is known of the program is what its
documentation says."""

import argparse
import dataclasses
import itertools
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import comparing
import layout
import misfits
import outcomes
import proving
import recipe
import selftest
from checking import Deadline, Plan, check
from proving import Proofs
from running import Runner
from shrinking import keep, shrink, signature
from summary import Summary


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="generator", description=__doc__)
    parser.add_argument("program", nargs="?", help="tessera-train")
    parser.add_argument("--seed", type=int, default=1, help="of the first recipe; the others follow it")
    parser.add_argument("--recipes", type=int, default=0, help="so many, unless --seconds are over before")
    parser.add_argument("--seconds", type=float, default=0, help="begin no run after so many; 60 without --recipes")
    parser.add_argument("--realisations-per-recipe", type=int, default=8, dest="realisations")
    parser.add_argument("--mpi", action="store_true", help="a fifth of the realisations under mpirun, mpirun.mpich")
    parser.add_argument("--case", help="SEED[:REALISATION]: only this one, with what the program says")
    parser.add_argument("--model", default="", choices=recipe.MODELS, help="instead of one that is drawn")
    parser.add_argument("--isa", default="", help="numerics.isa of all runs; the machine's best unless given")
    parser.add_argument("--first", action="store_true", help="ends with the first failure")
    parser.add_argument("--misfits", type=float, default=layout.MISFITS,
                        help="how often a recipe, a mesh, or an order is drawn that may be refused, between 0 and 1")
    parser.add_argument("--jobs", type=int, default=2, help="recipes at the same time")
    parser.add_argument("--time-limit", type=float, default=120, help="seconds after which a run hangs")
    parser.add_argument("--keep", type=Path, help="a folder for the reproductions of failures, made small")
    parser.add_argument("--shrink", type=int, default=100, help="at most so many failures are made small")
    parser.add_argument("--shrink-runs", type=int, default=300, help="at most so many runs to make a failure small")
    parser.add_argument("--report", type=Path, help="the summary as JSON")
    parser.add_argument("--device", default="", help="device_config.device of all runs; the CPU unless given")
    parser.add_argument("--save-outcomes", type=Path, help="a file for the outcome of every run, as JSON")
    parser.add_argument("--expect-outcomes", type=Path, help="such a file: an outcome that is not the same fails")
    parser.add_argument("--prove", type=int, default=0, metavar="N", help="`check --prove` over so many recipes instead")
    parser.add_argument("--compare", type=int, default=0, metavar="N", help="`compare` over so many recipes instead")
    parser.add_argument("--self-test", action="store_true", help="checks the generator itself with false programs")
    return parser.parse_args()


def launchers(program: str) -> list[str]:
    """Those of mpirun and mpirun.mpich that are there, with the program's plugin for them."""
    found = []
    for name, word in (("openmpi", "mpirun"), ("mpich", "mpirun.mpich")):
        if shutil.which(word) and Path(program).with_name(f"libtessera-{name}.so").exists():
            found.append(name)
    return found


def draw(seed: str, options: argparse.Namespace) -> recipe.Recipe:
    return dataclasses.replace(misfits.draw(seed, options.model, options.isa), device=options.device)


def work(options: argparse.Namespace, seeds: Iterator[str], plan: Plan, summary: Summary, deadline: Deadline) -> None:
    """One recipe after the other, until there are none or the time is over."""
    runner = Runner(options.program, options.time_limit)
    while not deadline.over():
        with summary.lock:
            seed = next(seeds, None)
        if seed is None:
            return
        for result in check(runner, draw(seed, options), plan, deadline.over):
            summary.add(result)
            if result.failed and options.first:
                deadline.end()
            if options.case:
                print(f"{result.case}: {result.verdict} {result.what}\n{result.outcome.said}")
            if result.failed and options.keep and summary.to_shrink(result, options.shrink):
                small = shrink(runner, result, options.shrink_runs)
                folder = options.keep / summary.folder_of(result, signature(small))
                if not folder.exists():
                    keep(small, options.program, folder)
                    print(f"{result.case}: {signature(small)}: {folder}", flush=True)


def run_threads(count: int, target: Callable[[], None]) -> list[str]:
    """Runs a function on several threads; what each of them failed with."""
    broken: list[str] = []

    def guarded() -> None:
        try:
            target()
        except Exception:
            broken.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return broken


def prove(options: argparse.Namespace) -> int:
    """Proofs of recipes, each in its first realisation."""
    proofs = Proofs()
    runner = Runner(options.program, options.time_limit)
    seeds = iter(range(options.seed, options.seed + options.prove))

    def target() -> None:
        while True:
            with proofs.lock:
                seed = next(seeds, None)
            if seed is None:
                return
            proving.prove(runner, str(seed), "0", proofs)

    broken = run_threads(options.jobs, target)
    print("\n".join(proofs.lines() + broken))
    return 0 if proofs.ok and not broken else 1


def compare(options: argparse.Namespace) -> int:
    """Comparisons of recipes in some realisations each."""
    comparisons = comparing.Comparisons()
    runner = Runner(options.program, options.time_limit)
    seeds = iter(range(options.seed, options.seed + options.compare))

    def target() -> None:
        while True:
            with comparisons.lock:
                seed = next(seeds, None)
            if seed is None:
                return
            comparing.compare(runner, str(seed), options.realisations, comparisons)

    broken = run_threads(options.jobs, target)
    print("\n".join(comparisons.lines() + broken))
    return 0 if comparisons.ok and not broken else 1


def main() -> int:
    options = arguments()
    if options.self_test:
        return selftest.main()
    if not options.program:
        sys.exit("which program? (--help)")
    options.program = os.path.abspath(options.program)
    layout.MISFITS = options.misfits
    if options.prove:
        return prove(options)
    if options.compare:
        return compare(options)
    plan = Plan(options.realisations, launchers(options.program) if options.mpi else [])
    if not options.recipes and not options.seconds:
        options.seconds = 60
    count = options.recipes or sys.maxsize
    seeds = (str(options.seed + i) for i in itertools.count() if i < count) if not options.recipes else \
        iter([str(options.seed + i) for i in range(count)])
    if options.case:
        seed, _, plan.only = options.case.partition(":")
        seeds, options.jobs = iter([seed]), 1
    summary = Summary(outcomes.load(options.expect_outcomes) if options.expect_outcomes else {})
    deadline = Deadline(options.seconds)
    broken = run_threads(options.jobs, lambda: work(options, seeds, plan, summary, deadline))
    print("\n".join(summary.lines()))
    if options.report:
        summary.report(options.report)
    if options.save_outcomes:
        outcomes.save(options.save_outcomes, summary.outcomes)
    for text in broken:
        print(f"the generator itself failed:\n{text}")
    if not summary.passed:
        print("nothing was compared")
    print(f"{summary.passed} passed, {summary.failed} failed")
    return 1 if summary.failed or broken or not summary.passed else 0


if __name__ == "__main__":
    sys.exit(main())

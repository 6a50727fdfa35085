# SPDX-License-Identifier: Apache-2.0
"""Makes a failing case small: tries simpler recipes and realisations, keeps those that still fail alike, and writes
what is left as a folder that can be run by itself."""

import dataclasses
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import checking
import running
from building import Options
from checking import Result
from data import Data
from layout import Layout, Realisation
from owngraph import OwnGraph
from pieces import Piece
from recipe import Recipe
from running import Runner


@dataclass(frozen=True)
class Case:
    """What is made smaller: a recipe with two realisations, of which the second one fails."""

    recipe: Recipe
    baseline: Realisation
    other: Realisation


def _simpler_pieces(pieces: tuple[Piece, ...]) -> Iterator[tuple[Piece, ...]]:
    """Without one of them; with a wrapper's children in its place; with one simpler."""
    for i, piece in enumerate(pieces):
        rest = (pieces[:i], pieces[i + 1:])
        yield rest[0] + rest[1]
        if piece.children:
            yield rest[0] + piece.children + rest[1]
            for children in _simpler_pieces(piece.children):
                if children:
                    yield rest[0] + (replace(piece, children=children),) + rest[1]
        for options in _simpler_options(piece.options):
            yield rest[0] + (replace(piece, options=options),) + rest[1]


def _simpler_options(options: Options) -> Iterator[Options]:
    plain = type(options)()
    if options != plain:
        yield plain
    for item in dataclasses.fields(Options):
        if getattr(options, item.name) != getattr(plain, item.name):
            yield replace(options, **{item.name: getattr(plain, item.name)})


def _simpler_graphs(own: OwnGraph) -> Iterator[OwnGraph]:
    for part in ("before", "body", "after"):
        if getattr(own, part):
            yield replace(own, **{part: ()})
        for pieces in _simpler_pieces(getattr(own, part)):
            yield replace(own, **{part: pieces})
    if own.times:
        yield replace(own, times=0)
        for times in (1, 2):
            if times < own.times:
                yield replace(own, times=times)
    for part in ("entry", "head"):
        for options in _simpler_options(getattr(own, part)):
            yield replace(own, **{part: options})
    for part in ("tied", "flat_loss", "all_logits", "uneven"):
        if getattr(own, part):
            yield replace(own, **{part: False})
    for width in (2, 4, 6, 8):
        if width < own.width:
            yield replace(own, width=width)


def _simpler_sizes(sizes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Sizes of a shipped architecture."""
    plain = {"dropout_prob": 0.0, "weight_tying": "disabled", "bias": False, "attention_bias": False, "num_blocks": 1,
             "intermediate_dim": sizes.get("num_heads", 1), "hidden_features": []}
    for key, value in plain.items():
        if key in sizes and sizes[key] != value:
            yield sizes | {key: value}
    for key in ("rope_scaling", "head_dim"):
        if key in sizes:
            yield {k: v for k, v in sizes.items() if k != key}
    blocks = sizes.get("num_blocks", 1)
    if blocks > 2:
        yield sizes | {"num_blocks": blocks - 1}
    if "num_heads" in sizes:
        per_head = sizes["embedding_dim"] // sizes["num_heads"]
        for heads in (1, 2, 3, 4):
            for each in (2, 4, per_head):
                if heads * each < sizes["embedding_dim"]:
                    less = {"num_heads": heads, "embedding_dim": heads * each}
                    if "num_groups" in sizes:
                        less["num_groups"] = heads
                    yield sizes | less


def _simpler_recipes(r: Recipe) -> Iterator[Recipe]:
    """All that a recipe can lose."""
    plain: dict[str, Any] = {
        "eval_every": 0, "sample_tokens": 0, "scheduler": {}, "lora": {}, "clip": 0.0, "precision": "f32", "zigzag": False, "units_sequence": 1,
        "units_tp": 1, "optimizer": {"type": "SGD", "lr": 0.05}}
    for key, value in plain.items():
        if getattr(r, key) != value:
            yield replace(r, **{key: value})
    for key in [key for key in r.optimizer if key not in ("type", "lr")]:
        yield replace(r, optimizer={k: v for k, v in r.optimizer.items() if k != key})
    for steps in (1, 2, 3):
        if steps < r.steps:
            yield replace(r, steps=steps)
    if r.leaf > 1:
        yield replace(r, leaf=1)
    for what in ("units_tp", "units_sequence"):
        if getattr(r, what) > 2:
            yield replace(r, **{what: getattr(r, what) // 2})
    if r.sequence > 2:
        yield replace(r, sequence=r.sequence // 2)
    for key, value in {"separate": False, "mixed": False, "ignored": -1, "packs": True}.items():
        if getattr(r.data, key) != value and (key, r.data.kind) != ("separate", "chat"):
            yield replace(r, data=replace(r.data, **{key: value}))
    if not r.data.is_table and (r.data.kind != "nanogpt" or r.data.vocabulary > 97):
        data = Data("nanogpt", vocabulary=8, seed=r.data.seed)
        yield replace(r, data=data, sizes=r.sizes | ({"vocab_size": 8} if r.sizes else {}))
    if r.own:
        for own in _simpler_graphs(r.own):
            yield replace(r, own=own)
    for sizes in _simpler_sizes(r.sizes):
        yield replace(r, sizes=sizes)


def _simpler_layouts(layout: Layout) -> Iterator[Layout]:
    """All that a layout can lose."""
    plain = Layout()
    for item in dataclasses.fields(Layout):
        if item.name != "sizes" and getattr(layout, item.name) != getattr(plain, item.name):
            yield replace(layout, **{item.name: getattr(plain, item.name)})
    if layout.launcher and layout.processes > 2:
        yield replace(layout, processes=2)
    for axis, size in layout.sizes.items():
        rest = {a: s for a, s in layout.sizes.items() if a != axis}
        yield replace(layout, sizes=rest)
        if axis == "pp":
            yield replace(layout, sizes=rest, schedule="", order=None, virtual=0, cut={})
        if axis == "fsdp" and "dp" not in rest:
            yield replace(layout, sizes=rest | {"dp": size}, style="mesh", zero=3)
        for less in (2, size // 2):
            if 1 < less < size:
                yield replace(layout, sizes={a: less if a == axis else s for a, s in layout.sizes.items()})
    if layout.order:
        yield replace(layout, order=None, schedule="")


def _simpler_cases(case: Case) -> Iterator[Case]:
    """Every case that is one change simpler; the large changes first."""
    other = case.other
    if other.after:
        yield replace(case, other=Realisation(other.first))
        yield replace(case, other=Realisation(other.after))
        yield replace(case, other=replace(other, first=Layout(accumulation=case.baseline.first.accumulation)))
        for layout in _simpler_layouts(other.after):
            yield replace(case, other=replace(other, after=layout))
    for layout in _simpler_layouts(other.first):
        yield replace(case, other=replace(other, first=layout))
    for recipe in _simpler_recipes(case.recipe):
        yield replace(case, recipe=recipe)
    yield from _fewer_samples(case)


def _fewer_samples(case: Case) -> Iterator[Case]:
    """Fewer samples and units; the microbatches may go along."""
    recipe, layout = case.recipe, case.other.first
    for units in sorted({1, recipe.units_batch // 2, recipe.units_batch}):
        for samples in sorted({units, recipe.samples // 2, recipe.samples}):
            if not 1 <= units <= samples or (units, samples) == (recipe.units_batch, recipe.samples):
                continue
            less = replace(recipe, samples=samples, units_batch=units)
            yield replace(case, recipe=less)
            for key in ("accumulation", "pipelined"):
                count = getattr(layout, key)
                if count > 1 and not case.other.after and not layout.order:
                    yield replace(case, recipe=less, other=Realisation(replace(layout, **{key: count // 2})))


def _fails_alike(runner: Runner, case: Case, kind: str, what: str, is_base: bool) -> Result | None:
    """The result of a case, if it is of the same verdict."""
    folder = Path(tempfile.mkdtemp(prefix="generator-"))
    try:
        if is_base:
            case.recipe.write(folder)
            outcome = running.run(runner, case.recipe, case.baseline, "0", folder)
            verdict, found = outcome.status, outcome.message
            if outcome.status == "done":
                found = checking.suspicious(outcome, case.recipe)
                verdict = "zero norm" if found else "equal"
            result = Result(verdict, found, case.recipe, "base", case.baseline, case.baseline, outcome)
        else:
            result = checking.compare(runner, case.recipe, case.baseline, case.other, folder)
            if result.number == "base":
                return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    alike = result.verdict == kind and (kind != "crash" or result.what.split(":")[0] == what.split(":")[0])
    return result if alike else None


def shrink(runner: Runner, result: Result, runs: int, seconds: float = 120) -> Result:
    """The smallest failing case found within so many runs."""
    is_base = result.number == "base"
    best, small = Case(result.recipe, result.baseline, result.realisation), result
    begin, tried, seen = time.monotonic(), 0, {repr(best)}
    cases, index, progress = list(_simpler_cases(best)), 0, False
    while index < len(cases) and tried < runs and time.monotonic() - begin < seconds:
        case = cases[index]
        if is_base:
            case = replace(case, baseline=case.other)
        found = None
        if repr(case) not in seen:
            seen.add(repr(case))
            tried += 1
            try:
                found = _fails_alike(runner, case, result.verdict, result.what, is_base)
            except (AssertionError, ZeroDivisionError, KeyError, IndexError):
                pass  # the change made no sense
        if found:
            best, small, progress = case, replace(found, number=result.number), True
            cases = list(_simpler_cases(best))
        else:
            index += 1
        if index >= len(cases) and progress:
            index, progress = 0, False
    return small


_NEEDED = {"axis", "zero.stage", "enable_sp", "schedule", "accumulation", "resume", "piece", "clipping", "overlap",
           "pipeline.microbatches", "hybrid", "launcher", "cp_layout", "units.sequence", "offload", "cut", "threads",
           "recompute", "documents", "partition", "ignore_index", "batch_size_per_rank", "mixture,",
           "reduce_tree", "tp_reductions", "uneven", "vocabulary"}


def signature(result: Result) -> str:
    """What a small case still needs, to count failures of one cause together."""
    recipe = result.recipe
    names = recipe.features() | result.realisation.features()
    words = [name for name in names if name.split()[0] in _NEEDED and name != "zero.stage 0"
             or name in ("precision bf16", "precision fp16", "precision fp8") or (name.startswith("model") and not recipe.own)]
    what = re.sub(r" (of|after) step \d+|,.*", "", result.what) if result.verdict == "different" else ""
    return f"{result.verdict}{' ' + what if what else ''}: {', '.join(sorted(words))}"


def keep(result: Result, program: str, folder: Path) -> None:
    """A folder with configurations, graph, data, and run.sh, which runs both realisations."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result.recipe.write(folder)
    running.write(result.recipe, result.baseline, "0", folder)
    running.write(result.recipe, result.realisation, "1", folder)
    script = folder / "run.sh"
    script.write_text(running.script(program, result.baseline, result.realisation))
    script.chmod(0o755)
    (folder / "README").write_text(
        f"{result.verdict}: {result.what}\nfrom case {result.case}\n{signature(result)}\n\n{result.outcome.said}\n")

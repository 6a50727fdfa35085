# SPDX-License-Identifier: Apache-2.0
"""A realisation: how a recipe is run. A layout is what one run of the program gets; a realisation is one layout, or
two with a checkpoint between them."""

import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orders
import units
from recipe import Recipe

MOST_RANKS = 16
MISFITS = 0.02  # how often a recipe, a mesh, a number of microbatches or an order is drawn that may be refused


@dataclass(frozen=True)
class Layout:
    """The keys that must change no bit."""

    sizes: dict[str, int] = field(default_factory=dict)  # of dp, fsdp, cp, tp, pp, ep: those it has
    style: str = "mesh"  # mesh: named axes; device: tt-train's switches; processes: pp around the mesh
    sp: bool = False
    zero: int = -1  # -1: not said
    partition: str = ""  # zero.partition; "": not said
    per_rank: bool = False  # batch_size_per_rank instead of batch_size
    accumulation: int = 1
    pipelined: int = 0  # pipeline.microbatches; 0: not said
    schedule: str = ""  # a word, or file
    order: orders.Order | None = None
    virtual: int = 0
    cut: dict[str, Any] = field(default_factory=dict)  # keys of pipeline that say where stages begin
    recompute: dict[str, Any] = field(default_factory=dict)
    overlap: str = ""  # true, false or auto; "": not said
    bucket: str = ""
    offload: bool = False
    ring: bool = False  # numerics.reduce_tree is ring where the recipe's is flat
    threads: int = 1
    launcher: str = ""  # openmpi, mpich, or none
    processes: int = 1

    @property
    def ranks(self) -> int:
        count = 1
        for size in self.sizes.values():
            count *= size
        return count

    @property
    def owners(self) -> int:
        """Ranks of dp, over which ZeRO splits what it splits."""
        return self.sizes.get("dp", 1) * self.sizes.get("fsdp", 1)

    @property
    def shards(self) -> int:
        """Ranks that share out the samples."""
        return self.owners * self.sizes.get("ep", 1)

    @property
    def stage(self) -> int:
        """ZeRO's."""
        return self.zero if self.zero >= 0 else 3 if "fsdp" in self.sizes else 0

    def features(self) -> set[str]:
        """What the summary counts it under."""
        names = {f"axis {axis}" for axis, size in self.sizes.items() if size > 1}
        names |= {"axis of 3" for size in self.sizes.values() if size == 3}
        if self.owners > 1 or self.stage:
            names.add(f"zero.stage {self.stage}" + ("" if self.owners > 1 else " without dp"))
        if self.sizes.get("pp", 1) > 1:
            names.add(f"schedule {self.order.kind if self.order else self.schedule or '1f1b'}")
        names |= {name for name, on in (
            (f"partition {self.partition}", self.partition), ("hybrid sharding", {"dp", "fsdp"} <= set(self.sizes)), ("enable_sp", self.sp),
            ("accumulation", self.accumulation > 1), ("pipeline.microbatches", self.pipelined > 1),
            ("batch_size_per_rank", self.per_rank), ("reduce_tree ring", self.ring),
            (f"overlap {self.overlap}", self.overlap), ("offload", self.offload), ("threads above 1", self.threads > 1),
            (f"launcher {self.launcher}", self.launcher),
            (f"cut by {'/'.join(self.cut)}", self.cut),
            (f"recompute {self.recompute.get('recompute')}", self.recompute)) if on}
        return names

    def _mesh(self) -> dict[str, Any]:
        if not self.sizes:
            return {"device_config": {"enable_sp": True}} if self.sp else {}
        if self.style == "mesh":
            config: dict[str, Any] = {"mesh": {"axes": list(self.sizes), "shape": list(self.sizes.values())}}
            if self.sp:
                config["device_config"] = {"enable_sp": True}
            return config
        words = {"dp": "enable_ddp", "fsdp": "enable_fsdp", "cp": "enable_cp", "tp": "enable_tp",
                 "pp": "enable_pp", "ep": "enable_ep"}
        device: dict[str, Any] = {}
        shape = []
        for axis, word in words.items():
            if axis in self.sizes and not (axis == "pp" and self.style == "workers"):
                device[word] = True
                shape.append(self.sizes[axis])
        device["mesh_shape"] = shape or [1]
        if self.sp:
            device["enable_sp"] = True
        config = {"device_config": device}
        if self.style == "workers" and "pp" in self.sizes:
            config["pipeline"] = {"workers": self.sizes["pp"]}
        return config

    def config(self, recipe: Recipe, number: str) -> dict[str, Any]:
        """Its part of the configuration."""
        config = self._mesh()
        samples = max(1, recipe.samples // self.accumulation)
        if self.per_rank and samples % self.shards == 0:
            config["training_config"] = {"batch_size_per_rank": samples // self.shards}
        else:
            config["training_config"] = {"batch_size": samples}
        if self.accumulation > 1:
            config["training_config"]["gradient_accumulation_steps"] = self.accumulation
        config["numerics"] = {"threads": self.threads}
        if self.ring and recipe.flat:
            config["numerics"]["reduce_tree"] = "ring"
        pipeline = dict(config.get("pipeline", {})) | self.cut
        if self.pipelined:
            pipeline["microbatches"] = self.pipelined
        if self.order:
            pipeline["schedule"] = f"file:order{number}.sched"
        elif self.schedule:
            pipeline["schedule"] = self.schedule
        if self.virtual:
            pipeline["virtual_stages"] = self.virtual
        if pipeline:
            config["pipeline"] = pipeline
        schedule = dict(self.recompute)
        if self.overlap:
            schedule["all_reduce_overlap"] = {"true": True, "false": False}.get(self.overlap, self.overlap)
        if self.bucket:
            schedule["bucket_size"] = self.bucket
        if schedule:
            config["schedule"] = schedule
        zero: dict[str, Any] = {} if self.zero < 0 else {"stage": self.zero}
        if self.partition:
            zero |= {"partition": self.partition}
        if self.offload:
            zero |= {"offload": "file", "offload_path": "."}
        if zero:
            config["zero"] = zero
        return config

    def write(self, folder: Path, number: str) -> None:
        """The files that its configuration names."""
        if self.order:
            (folder / f"order{number}.sched").write_text(self.order.text())


@dataclass(frozen=True)
class Realisation:
    """One run, or with `after` a run that resumes from the first one's checkpoint. kind: stop, where the first run
    ends after `step` steps, or middle, where it goes on to the end by itself too."""

    first: Layout
    after: Layout | None = None
    kind: str = ""
    step: int = 0

    def cuts(self) -> list[dict[str, Any]]:
        """What its layouts say of where stages begin."""
        return [layout.cut for layout in (self.first, self.after) if layout]

    def features(self) -> set[str]:
        if not self.after:
            return self.first.features()
        return self.first.features() | self.after.features() | {f"resume {self.kind}"}


def _parts(units: int, flat: bool = False) -> list[int]:
    """The numbers of ranks that so many units can be shared out to: powers of two, or one unit each; from left to
    right only one rank, or one unit each."""
    if flat:
        return [1, units]
    return [n for n in range(1, units + 1) if units % n == 0 and (n & (n - 1) == 0 or n == units)]


def _batch_parts(recipe: Recipe) -> list[int]:
    """The same of batch units, which from left to right may be any numbers of ranks and microbatches."""
    if recipe.flat:
        return [n for n in range(1, recipe.units_batch + 1) if recipe.units_batch % n == 0]
    return _parts(recipe.units_batch)


def _draw_mesh(rng: random.Random, recipe: Recipe) -> dict[str, int]:
    """Sizes of the axes, 16 ranks at most; now and then some that the units or the experts do not
    allow."""
    odd_dp, odd_cp, odd_tp, odd_ep = (rng.random() < MISFITS for _ in range(4))
    while True:
        units_tp = recipe.units_tp
        sequence_parts = _parts(recipe.units_sequence // (2 if recipe.zigzag else 1) or 1, recipe.flat)
        sizes = {
            "dp": rng.choice([1, 2, 3, 4, 5, 6] if odd_dp else _batch_parts(recipe) + [1]),
            "cp": rng.choice([1, 2, 3, 4, 8] if odd_cp else sequence_parts) if recipe.has_sequence else 1,
            "tp": rng.choice([1, 2, 3, 4, 6] if odd_tp else _parts(units_tp, recipe.flat) + [1]),
            "pp": rng.choice([1, 1, 2, 2, 3, 4]),
            "ep": rng.choice([1, 2, 3, 4, 6, 8] if odd_ep else
                             [1] if recipe.flat else [1] + 3 * _batch_parts(recipe))}
        if sizes["pp"] > max(1, recipe.blocks) and (rng.random() < 0.7 or len(recipe.node_names()) < sizes["pp"]):
            sizes["pp"] = 1  # else the stages begin at nodes
        allowed = odd_dp or odd_ep or units.batch_fits(recipe, sizes["dp"], sizes["ep"], 1, 0) or \
            recipe.samples % recipe.units_batch
        allowed = allowed and (odd_dp or units.expert_fits(recipe, sizes["dp"], 1, 0))
        allowed = allowed and (odd_cp or odd_tp or odd_ep or units.experts_fit(recipe, sizes))
        if allowed and math.prod(sizes.values()) <= MOST_RANKS:
            return sizes


def _draw_microbatches(rng: random.Random, recipe: Recipe, sizes: dict[str, int],
                       stage: int) -> int:
    """How many microbatches a step has."""
    if recipe.whole_batch and rng.random() >= MISFITS:
        return 1
    samples, dp, ep = recipe.samples, sizes["dp"], sizes["ep"]
    fits = [m for m in range(1, recipe.units_batch + 1)
            if units.batch_fits(recipe, dp, ep, m, stage)
            and units.expert_fits(recipe, dp, m, stage)]
    if rng.random() < MISFITS:
        fits = [m for m in range(1, samples + 1) if samples % (m * dp * ep) == 0]
    return rng.choice(fits or [1])


def _draw_pipeline(rng: random.Random, recipe: Recipe, stages: int, microbatches: int) -> dict[str, Any]:
    """Order, chunks and cut of a pipeline."""
    blocks = recipe.blocks
    keys: dict[str, Any] = {}
    words = ["", "gpipe", "1f1b", "zb_h1", "file", "file"]
    if blocks >= 2 * stages or rng.random() < 0.02:
        words += ["zb_v", "zb_v"] + (["interleaved"] * 3 if microbatches % stages == 0 or rng.random() < 0.03 else [])
    keys["schedule"] = rng.choice(words)
    chunks = 2 if keys["schedule"] in ("zb_v", "interleaved") else 1
    if keys["schedule"] == "interleaved" and blocks >= 3 * stages and rng.random() < 0.5:
        keys["virtual"] = chunks = 3
    if keys["schedule"] == "file":
        by_name = rng.random() < 0.3 and len(recipe.node_names()) >= 3 * stages
        chunks = rng.choice([c for c in (1, 2, 2, 3) if c * stages <= blocks or by_name] or [1])
        keys["order"] = orders.draw(rng, stages, microbatches, chunks)
        if rng.random() < MISFITS:
            keys["order"] = orders.misplace(rng, keys["order"])
        if chunks > 1:
            keys["virtual"] = rng.choice([0, chunks])
    if rng.random() < 0.3 or blocks < stages * chunks:
        if chunks == 1 and rng.random() < 0.5 and blocks >= stages and recipe.blocks_known:
            cuts = sorted(rng.sample(range(1, blocks), stages - 1))
            keys["cut"] = {"blocks_per_rank": [b - a for a, b in zip([0] + cuts, cuts + [blocks])]}
        else:
            names = recipe.node_names()
            if len(names) >= stages * chunks - 1:
                picked = sorted(rng.sample(range(len(names)), stages * chunks - 1))
                keys["cut"] = {"stages": [names[i] for i in picked]}
    elif rng.random() < 0.3:
        keys["cut"] = {"balance": "memory"}
    return keys


def _name_axes(rng: random.Random, sizes: dict[str, int]) -> tuple[dict[str, int], str]:
    """The axes that the mesh says, in an order of its own, and how it says them."""
    kept = {axis: size for axis, size in sizes.items() if size > 1 or rng.random() < 0.05}
    style = rng.choice(["mesh", "mesh", "device", "device", "workers"])
    if style == "mesh":
        names = list(kept)
        rng.shuffle(names)
        return {axis: kept[axis] for axis in names}, style
    groups = [n for n in (2, 3, 4, 8, 16) if kept.get("dp", 1) % n == 0]
    if groups and rng.random() < 0.6:
        shards = rng.choice(groups)
        rest = kept.pop("dp") // shards
        kept = ({"dp": rest} if rest > 1 or rng.random() < 0.1 else {}) | {"fsdp": shards} | kept
    if style == "workers" and kept.get("pp", 1) == 1:
        style = "device"
    if len(kept) > 4:  # which a shape cannot have; without axes of one rank there are fewer
        kept = {axis: size for axis, size in kept.items() if size > 1}
    return kept, style


def _draw_zero(rng: random.Random, sizes: dict[str, int]) -> dict[str, Any]:
    """ZeRO's stage and how it cuts."""
    keys: dict[str, Any] = {}
    if "fsdp" in sizes and rng.random() < 0.97:
        keys |= rng.choice([{}, {"zero": 3}])
    elif sizes.get("dp", 1) * sizes.get("fsdp", 1) > 1 and rng.random() < 0.8:
        keys["zero"] = rng.randrange(4)
    elif rng.random() < 0.05:
        keys["zero"] = rng.randrange(4)
    if keys.get("zero", 3 if "fsdp" in sizes else 0) > 0 and rng.random() < 0.4:
        keys["partition"] = rng.choice(["owner_hash", "owner_hash", "owner_hash", "flat"])
    return keys


def draw_layout(rng: random.Random, recipe: Recipe, launcher: str) -> Layout:
    """A random layout; with a launcher one of several processes, unless it has one rank."""
    drawn = _draw_mesh(rng, recipe)
    sizes, style = _name_axes(rng, drawn)
    keys = _draw_zero(rng, sizes)
    microbatches = _draw_microbatches(rng, recipe, drawn, Layout(sizes=sizes, **keys).stage)
    if drawn["pp"] > 1:
        keys |= _draw_pipeline(rng, recipe, drawn["pp"], microbatches)
    divisors = [n for n in range(1, microbatches + 1) if microbatches % n == 0]
    accumulation = rng.choice([1, microbatches, rng.choice(divisors)])
    if recipe.samples % accumulation:
        accumulation = 1  # else a step would have other samples
    pipelined = microbatches // accumulation
    if pipelined == 1 and rng.random() < 0.7:
        pipelined = 0
    if drawn["tp"] > 1 and recipe.has_sequence:
        divides = recipe.units_sequence % (drawn["cp"] * drawn["tp"]) == 0
        fits = divides and (not recipe.zigzag or rng.random() < 2 * MISFITS)
        keys["sp"] = (fits and rng.random() < 0.7) or rng.random() < MISFITS
    if rng.random() < 0.5:
        how = rng.choice(["none", "cheap", "full", "full", "selective", "auto"])
        keys["recompute"] = {"recompute": how}
        if how == "full" and rng.random() < 0.4:
            keys["recompute"]["recompute_every"] = 2
    if rng.random() < 0.4:
        keys |= {"overlap": rng.choice(["true", "true", "auto", "false"]),
                 "bucket": rng.choice(["", "1", "1KiB", "16KiB"])}
    keys |= {"per_rank": rng.random() < 0.1, "offload": rng.random() < 0.05,
             "threads": rng.choice([1, 1, 1, 2, 3]), "ring": recipe.flat and rng.random() < 0.3}
    layout = Layout(sizes=sizes, style=style, accumulation=accumulation, pipelined=pipelined, **keys)
    if launcher and layout.ranks > 1:
        return replace(layout, launcher=launcher, threads=1, processes=rng.randint(2, min(4, layout.ranks)))
    return layout


def baselines(recipe: Recipe) -> list[Realisation]:
    """What all others are compared to: one rank, one thread; the first that is accepted. Units that do not divide the
    samples are not for one rank, so there it may be some ranks of dp."""
    counts = [1] if recipe.whole_batch else [1, recipe.units_batch, recipe.samples]
    ranks = [] if recipe.samples % recipe.units_batch == 0 else _batch_parts(recipe)[1:]
    return [Realisation(Layout(accumulation=m)) for m in dict.fromkeys(counts) if recipe.samples % m == 0] + \
        [Realisation(Layout(sizes={"dp": n})) for n in ranks]


def draw(recipe: Recipe, name: str) -> Realisation:
    """The realisation of a recipe with a name: a number, and a launcher, as in 3-openmpi."""
    rng = random.Random(f"realisation {recipe.seed} {name}")
    launcher = name.partition("-")[2]
    first = draw_layout(rng, recipe, launcher)
    if rng.random() >= 0.15 or recipe.steps < 2:
        return Realisation(first)
    after = draw_layout(rng, recipe, launcher)
    kind = "middle" if recipe.scheduler else rng.choice(["stop", "stop", "middle"])
    return Realisation(first, after, kind, rng.randrange(1, recipe.steps))

# SPDX-License-Identifier: Apache-2.0
"""Writes the statements and parameters of a graph file: values with symbolic shapes, calls, scopes."""

from dataclasses import dataclass, field
from typing import Any

import makings


@dataclass(frozen=True)
class Dim:
    """A dimension: a number, times the batch, times the sequence."""

    number: int = 1
    batch: bool = False
    sequence: bool = False

    @property
    def text(self) -> str:
        words = ["batch"] * self.batch + ["sequence"] * self.sequence
        if self.number != 1 or not words:
            words.append(str(self.number))
        return " * ".join(words)

    def times(self, other: "Dim") -> "Dim":
        return Dim(self.number * other.number, self.batch or other.batch, self.sequence or other.sequence)


Shape = tuple[Dim, ...]
BATCH, SEQUENCE = Dim(batch=True), Dim(sequence=True)


def product(dims: Shape) -> Dim:
    result = Dim()
    for dim in dims:
        result = result.times(dim)
    return result


def shape_text(shape: Shape) -> str:
    return "[" + ", ".join(dim.text for dim in shape) + "]"


@dataclass(frozen=True)
class Value:
    """A result, an input, a parameter, or a call that stands inside another one."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Options:
    """What a piece of a graph may be drawn with; each kind uses some of these. The defaults are the simplest."""

    tp: str = "replicate"  # placement of the first weight
    tp2: str = "replicate"  # of the second one, or of a vector
    bias: str = ""  # none, or its placement
    act: str = "relu"
    k: int = 1  # a small number: a width, a number of heads
    a: bool = False
    b: bool = False
    dp: bool = False  # the first parameter is split over dp as well
    made: int = 0  # other than 0: parameters stand for values that others make, drawn by this number
    gemma: bool = False  # scores have a soft cap, weights of RMS norms are stored minus 1


@dataclass
class Builder:
    """Collects what a graph file says. A scope is the top of the file, a repeated part, or a block."""

    sequence: int  # tokens of a sample; 0 for tables
    units_tp: int
    statements: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    outer: "Builder | None" = None  # the scope around, whose parameters are seen too
    blocks: dict[str, Any] = field(default_factory=dict)
    ops: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    count: list[int] = field(default_factory=lambda: [0])
    mixes_batch: list[str] = field(default_factory=list)
    mixtures: list[tuple[int, bool]] = field(default_factory=list)  # experts; whether tp shares out
    balanced: list[Shape] = field(default_factory=list)  # scores that are counted together
    made: int = 0  # of the piece that is written
    uneven: bool = False  # tp's units need not divide what they split

    def scope(self, seen: bool) -> "Builder":
        """A scope inside this one, which sees this one's parameters or not."""
        return Builder(self.sequence, self.units_tp, outer=self if seen else None, blocks=self.blocks, ops=self.ops,
                       count=self.count, mixes_batch=self.mixes_batch, mixtures=self.mixtures,
                       balanced=self.balanced, uneven=self.uneven)

    def fresh(self, stem: str) -> str:
        self.count[0] += 1
        return f"{stem}{self.count[0]}"

    def size(self, dim: Dim) -> int:
        """A dimension's number; only of those without the batch."""
        assert not dim.batch
        return dim.number * (self.sequence if dim.sequence else 1)

    def _placement(self, shape: Shape, wanted: str) -> str:
        """The placement, or replicate where the units do not divide the dimension and must."""
        if wanted == "replicate" or not wanted:
            return "replicate"
        dim = int(wanted[6])
        if dim >= len(shape) or (self.size(shape[dim]) % self.units_tp and not self.uneven):
            return "replicate"
        return wanted

    def hidden(self, parts: int) -> Dim:
        """So many features for each unit of tp; of an uneven graph more, which the units do not divide."""
        more = 1 + parts % (self.units_tp - 1) if self.uneven and self.units_tp > 1 else 0
        return Dim(self.units_tp * parts + more)

    def parameter(self, stem: str, shape: Shape, tp: str = "", init: str = "normal(0.2)", dp: bool = False,
                  more: dict[str, Any] | None = None, shared: str = "") -> Value:
        """A new parameter, or with a name in `shared` that of an earlier call."""
        place = self
        if shared:
            while place.outer is not None:
                place = place.outer
        name = shared or self.fresh(stem)
        spec: dict[str, Any] = {"shape": [dim.text if "sequence" in dim.text else dim.number for dim in shape],
                                "init": init}
        placement = self._placement(shape, tp)
        if placement != "replicate":
            spec["tp"] = placement
        if dp and placement != "shard(0)":
            spec["dp"] = "shard(0)"
        place.parameters.setdefault(name, spec | (more or {}))
        value = Value(name, shape)
        return makings.make(self, value, tp) if self.made and not shared else value

    def call(self, op: str, *inputs: Value, shape: Shape | None = None, stem: str = "v", inline: bool = False,
             **attributes: Any) -> Value:
        """A statement, or the words of a call inside another one."""
        self.ops.add(op)
        self.ops.update(f"{op} with {key}" for key in ("soft_cap", "zero_centered") if key in attributes)
        words = [value.name for value in inputs] + [f"{key}={value}" for key, value in attributes.items()]
        text = f"{op}({', '.join(words)})"
        shape = inputs[0].shape if shape is None else shape
        if inline:
            return Value(text, shape)
        value = self.state(text, shape, stem)
        if op != "dropout":  # which is not there in an evaluation
            self.names.append(value.name)
        return value

    def state(self, text: str, shape: Shape, stem: str = "v", name: str = "",
              more: dict[str, Any] | None = None) -> Value:
        """A statement of any text."""
        name = name or self.fresh(stem)
        self.statements.append({name: text} | (more or {}))
        return Value(name, shape)

    def linear(self, x: Value, out: Dim, tp: str = "", bias: str = "", dp: bool = False, stem: str = "w",
               inline: bool = False) -> Value:
        """A linear layer with parameters of its own."""
        weight = self.parameter(stem, (out, x.shape[-1]), tp, dp=dp)
        inputs = [x, weight]
        if bias:
            inputs.append(self.parameter("bias", (out,), bias, init="normal(0.1)"))
        return self.call("linear", *inputs, shape=(*x.shape[:-1], out), inline=inline)

    def reshape(self, x: Value, shape: Shape) -> Value:
        self.ops.add("reshape")
        return self.state(f"reshape({x.name}, shape={shape_text(shape)})", shape)

    def transpose(self, x: Value, dim0: int, dim1: int) -> Value:
        shape = list(x.shape)
        shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
        return self.call("transpose", x, shape=tuple(shape), dim0=dim0, dim1=dim1)

    def split(self, x: Value, sections: int) -> list[Value]:
        """Equal parts of the last dimension."""
        self.ops.add("split")
        last = x.shape[-1]
        shape = (*x.shape[:-1], Dim(last.number // sections, last.batch, last.sequence))
        names = [self.fresh("part") for _ in range(sections)]
        self.statements.append({", ".join(names): f"split({x.name}, sections={sections})"})
        return [Value(name, shape) for name in names]

# SPDX-License-Identifier: Apache-2.0
"""Random architectures, as graph files."""

import random
from dataclasses import dataclass, field
from typing import Any

import collectives  # noqa: F401  (adds its kinds of pieces)
import experts
import mixers  # noqa: F401
import pieces
from building import BATCH, SEQUENCE, Builder, Dim, Options, Value
from data import Data
from pieces import Piece


@dataclass(frozen=True)
class OwnGraph:
    """What comes in, pieces before, inside and behind a repeated part, and a loss."""

    width: int
    before: tuple[Piece, ...] = ()
    body: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    times: int = 0  # the body's repetitions; 0: it stands there once, without `repeat`
    entry: Options = field(default_factory=Options)
    head: Options = field(default_factory=Options)
    tied: bool = False  # the table of tokens is the head's weight
    flat_loss: bool = False  # logits are computed as rows
    all_logits: bool = False  # the loss counts those of the padded rows, too
    uneven: bool = False  # tp's units need not divide features, nor rows of tables

    @property
    def blocks(self) -> int:
        return self.times if self.body else 0

    @property
    def all_pieces(self) -> tuple[Piece, ...]:
        return self.before + self.body + self.after

    @property
    def mixes_batch(self) -> bool:
        def inside(piece: Piece) -> bool:
            counts = isinstance(piece.options, experts.Mixture) and \
                piece.options.balance == "forward"
            return counts or piece.kind == "across_samples" or \
                any(inside(child) for child in piece.children)
        return any(inside(piece) for piece in self.all_pieces)

    def kinds(self) -> set[str]:
        def inside(piece: Piece) -> set[str]:
            return {piece.kind}.union(*(inside(child) for child in piece.children))
        return set().union(*(inside(piece) for piece in self.all_pieces))

    def mixture_features(self) -> set[str]:
        def inside(piece: Piece) -> set[str]:
            own = piece.options.features() if isinstance(piece.options, experts.Mixture) else set()
            return own.union(*(inside(child) for child in piece.children))
        return set().union(*(inside(piece) for piece in self.all_pieces))

    def sizes(self, data: Data) -> dict[str, Any]:
        """The keys of transformer_config."""
        if data.is_table:
            return {"input_features": data.features, "output_features": data.targets}
        return {"vocab_size": data.model_vocabulary}

    def _build(self, data: Data, sequence: int, units_tp: int) -> tuple[Builder, list[str]]:
        b = Builder(0 if data.is_table else sequence, units_tp, uneven=self.uneven)
        x = self._enter(b, data)
        x = pieces.emit(b, self.before, x)
        names = list(b.names)
        if self.times and self.body:
            x = b.state(x.name, x.shape, name="x")
            inside = b.scope(seen=True)
            y = pieces.emit(inside, self.body, x)
            if y.name == "x":
                y = inside.call("scale", y, factor=1)
            inside.state(y.name, y.shape, name="x")
            part: dict[str, Any] = {"repeat": {"times": self.times, "as": "block"}}
            if inside.parameters:
                part["parameters"] = inside.parameters
            b.statements.append(part | {"graph": inside.statements})
            names = names + [f"block.{i}.{name}" for i in range(self.times) for name in inside.names]
        else:
            x = pieces.emit(b, self.body, x)
        before = len(b.names)
        x = pieces.emit(b, self.after, x)
        self._finish(b, data, x)
        return b, names + b.names[before:]

    def _enter(self, b: Builder, data: Data) -> Value:
        o = self.entry
        width = Dim(self.width)
        if data.is_table:
            return b.linear(Value("features", (BATCH, Dim(data.features))), width, o.tp, o.bias, o.dp, "first")
        tokens = Value("tokens", (BATCH, SEQUENCE))
        shape = (BATCH, SEQUENCE, width)
        padding = {"padding": 3} if o.bias else {}  # a token that texts have
        x = b.call("embedding", tokens, self._table(b, "table", o.tp), shape=shape, **padding)
        if o.a:
            x = b.call("add", x, b.call("embedding", tokens, self._table(b, "table_2", o.tp2), shape=shape))
        if o.b and o.k < 3:
            x = b.call("add", x, b.parameter("positions", (SEQUENCE, width), o.tp2))
        elif o.b:
            rows = b.parameter("positions", (Dim(b.sequence + 3), width), o.tp2)
            some = b.call("slice", rows, shape=(SEQUENCE, width), dim=0, begin=2, end="2 + sequence")
            x = b.call("add", x, some)
        return x

    def _table(self, b: Builder, name: str, tp: str) -> Value:
        """A table of the vocabulary's size, padded where it is split and must be even."""
        rows = "vocab_padded" if (tp == "shard(0)" and not self.uneven) or self.head.k == 3 else "vocab_size"
        spec: dict[str, Any] = {"shape": [rows, self.width], "init": "normal(0.3)"}
        if rows == "vocab_padded":
            spec["valid0"] = "vocab_size"
        if tp == "shard(0)" or (tp == "shard(1)" and (self.width % b.units_tp == 0 or
                                                  (self.uneven and rows == "vocab_size"))):
            spec["tp"] = tp
        b.parameters[name] = spec
        return Value(name, ())

    def _finish(self, b: Builder, data: Data, x: Value) -> None:
        """The head and the loss."""
        o = self.head
        if o.a:
            weight = b.parameter("last_norm", x.shape[-1:], o.tp2, "zeros" if o.gemma else "ones")
            x = b.call("rmsnorm", x, weight, **({"zero_centered": 1} if o.gemma else {}))
        if data.is_table:
            shape = (BATCH, Dim(data.targets))
            logits = b.linear(x, shape[1], o.tp, o.bias, stem="head")
            if data.kind == "values":
                loss = b.call("mse", logits, Value("values", shape), shape=())
            else:
                loss = b.call("cross_entropy", logits, Value("labels", shape[:1]), shape=())
        else:
            weight = Value("table", ()) if self.tied else self._table(b, "head", o.tp)
            targets = Value("targets", (BATCH, SEQUENCE))
            if self.flat_loss:
                x = b.reshape(x, (BATCH.times(SEQUENCE), x.shape[-1]))
            logits = b.call("linear", x, weight, shape=(BATCH, SEQUENCE, Dim()))
            if self.flat_loss:
                rows = b.parameters[weight.name]["shape"][0]
                logits = b.state(f"reshape({logits.name}, shape=[batch, sequence, {rows}])", logits.shape)
            valid: dict[str, Any] = {} if self.all_logits else {"valid": "vocab_size"}
            loss = b.call("cross_entropy", logits, targets, shape=(), **valid)
        if o.k == 2 and o.b:
            loss = b.call("all_reduce", loss, axis="dp")
        b.state(loss.name, (), name="loss")
        b.state(logits.name, logits.shape, name="logits")

    def document(self, data: Data, sequence: int, units_tp: int) -> dict[str, Any]:
        """The graph file."""
        b, _ = self._build(data, sequence, units_tp)
        if data.is_table:
            sizes: dict[str, Any] = {"input_features": None, "output_features": None}
            inputs: dict[str, Any] = {"features": {"shape": ["batch", "input_features"], "dtype": "f32"}}
            if data.kind == "values":
                inputs["values"] = {"shape": ["batch", "output_features"], "dtype": "f32"}
            else:
                inputs["labels"] = {"shape": ["batch"], "dtype": "i32"}
        else:
            sizes = {"vocab_size": {"default": 0, "min": 0}}
            inputs = {name: {"shape": ["batch", "sequence"], "dtype": "i32"} for name in ("tokens", "targets")}
        result: dict[str, Any] = {"name": "drawn", "sizes": sizes, "inputs": inputs, "parameters": b.parameters}
        if b.blocks:
            result["blocks"] = b.blocks
        return result | {"graph": b.statements, "outputs": {"loss": "loss", "logits": "logits"}}

    def ops(self, data: Data, sequence: int, units_tp: int) -> set[str]:
        return self._build(data, sequence, units_tp)[0].ops

    def mixtures(self, data: Data, sequence: int, units_tp: int) -> list[tuple[int, bool]]:
        """The experts of each mixture, and whether tp shares them out."""
        return self._build(data, sequence, units_tp)[0].mixtures

    def node_names(self, data: Data, sequence: int, units_tp: int) -> list[str]:
        return self._build(data, sequence, units_tp)[1]


def draw(rng: random.Random, data: Data, units_tp: int, sequence: int, mixture: bool) -> OwnGraph:
    """A random architecture for such data, with a mixture of experts or only maybe."""
    width = units_tp * rng.choice([3, 4, 5, 6, 9, 12] if units_tp < 4 else [1, 2, 3, 4])
    if rng.random() < 0.1:
        width = rng.choice([7, 10, 12, 36])
    times = rng.choice([0, 1, 2, 2, 3, 4])
    tied = not data.is_table and rng.random() < 0.3
    body = pieces.draw(rng, rng.randint(1, 3))
    if mixture:
        body = body[1:] + (pieces.draw_one(rng, "mixture"),)
    return OwnGraph(
        width=max(2, width), before=pieces.draw(rng, rng.randrange(3)), body=body,
        after=pieces.draw(rng, rng.randrange(3)), times=times, entry=pieces.draw_options(rng),
        head=pieces.draw_options(rng), tied=tied, flat_loss=not data.is_table and rng.random() < 0.08)

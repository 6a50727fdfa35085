# SPDX-License-Identifier: Apache-2.0
"""Pieces of random graphs. A piece takes a value and gives one of the same shape, so that any of them can be left out
when a failure is made small. These see one row of the last dimension at a time; mixers.py has the others."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from building import BATCH, Builder, Dim, Options, Value, product

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "relu2", "silu", "tanh", "sigmoid")
GATED = ("swiglu", "geglu")
DrawOptions = Callable[[random.Random], Options]
Emit = Callable[[Builder, "Piece", Value], Value]


@dataclass(frozen=True)
class Piece:
    """One part of a graph. Wrappers have children, which they apply to the value in another shape."""

    kind: str
    options: Options = field(default_factory=Options)
    children: tuple["Piece", ...] = ()


@dataclass(frozen=True)
class Kind:
    """How a piece is written, and how often it is drawn."""

    emit: Emit
    often: int
    wraps: bool = False
    draw: DrawOptions | None = None  # its options, where they are of its own


KINDS: dict[str, Kind] = {}


def kind(name: str, often: int, wraps: bool = False,
         draw: DrawOptions | None = None) -> Callable[[Emit], Emit]:
    """Makes a function the writer of a kind of pieces."""
    def register(emit: Emit) -> Emit:
        KINDS[name] = Kind(emit, often, wraps, draw)
        return emit
    return register


def emit(b: Builder, pieces: tuple[Piece, ...], x: Value) -> Value:
    """One piece after the other."""
    for piece in pieces:
        # What would mix the samples of a microbatch in the last dimension makes no sense for rows.
        if x.shape[-1].batch and piece.kind not in ("act", "scale", "dropout", "swap_first", "self_product"):
            continue
        outer, b.made = b.made, piece.options.made
        x = KINDS[piece.kind].emit(b, piece, x)
        b.made = outer
    return x


def draw_options(rng: random.Random) -> Options:
    places = ["replicate", "replicate", "shard(0)", "shard(0)", "shard(1)"]
    return Options(tp=rng.choice(places), tp2=rng.choice(places), bias=rng.choice(["", "replicate", "shard(0)"]),
                   act=rng.choice(ACTIVATIONS), k=rng.choice([1, 2, 3]), a=rng.random() < 0.5, b=rng.random() < 0.5,
                   dp=rng.random() < 0.03, made=rng.randrange(1, 1 << 20) if rng.random() < 0.12 else 0,
                   gemma=rng.random() < 0.25)


def draw(rng: random.Random, count: int, depth: int = 0) -> tuple[Piece, ...]:
    """So many random pieces; wrappers get one or two children."""
    names = [name for name, value in KINDS.items() if depth < 2 or not value.wraps]
    result = []
    for _ in range(count):
        name = rng.choices(names, [KINDS[n].often for n in names])[0]
        children = draw(rng, rng.choice([1, 1, 2]), depth + 1) if KINDS[name].wraps else ()
        result.append(draw_one(rng, name, children))
    return tuple(result)


def draw_one(rng: random.Random, name: str, children: tuple[Piece, ...] = ()) -> Piece:
    return Piece(name, (KINDS[name].draw or draw_options)(rng), children)


@kind("pair", 6)
def _pair(b: Builder, piece: Piece, x: Value) -> Value:
    """A layer to some hidden features and one back, as in a feed-forward block."""
    o = piece.options
    h = b.linear(x, b.hidden(2 * o.k + 1), "shard(0)" if o.a else o.tp, o.bias, o.dp, "up", inline=o.b)
    h = b.call(o.act, h)
    return b.linear(h, x.shape[-1], "shard(1)" if o.a else o.tp2, "replicate" if o.bias else "", stem="down")


@kind("one", 6)
def _one(b: Builder, piece: Piece, x: Value) -> Value:
    """A square layer, placed in any way, with or without what goes round it."""
    o = piece.options
    y = b.linear(x, x.shape[-1], o.tp, o.bias, o.dp)
    return b.call("add", x, y) if o.a else y


@kind("norm", 6)
def _norm(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    weight = b.parameter("norm", x.shape[-1:], o.tp, "ones" if o.b else "normal(1.0, 0.1)", o.dp,
                         {"decay": True} if o.k == 3 else None)
    if o.a:
        return b.call("rmsnorm", x, weight, **({"zero_centered": 1} if o.gemma else {}))
    return b.call("layernorm", x, weight, b.parameter("shift", x.shape[-1:], o.tp2, "uniform(-0.1, 0.1)"))


@kind("act", 3)
def _act(b: Builder, piece: Piece, x: Value) -> Value:
    return b.call(piece.options.act, x)


@kind("scale", 2)
def _scale(b: Builder, piece: Piece, x: Value) -> Value:
    return b.call("scale", x, factor=["0.7", "1 / sqrt(3)", "-1.25"][piece.options.k - 1])


@kind("dropout", 2)
def _dropout(b: Builder, piece: Piece, x: Value) -> Value:
    return b.call("dropout", x, p=piece.options.k / 10)


@kind("softmax", 2)
def _softmax(b: Builder, piece: Piece, x: Value) -> Value:
    y = b.call("softmax", x)
    return b.call("add", x, y) if piece.options.a else b.call("scale", y, factor=4)


@kind("vector", 5)
def _vector(b: Builder, piece: Piece, x: Value) -> Value:
    """A product with or a sum of a parameter of the last dimension, or of the last two."""
    o = piece.options
    matrix = o.k == 3 and len(x.shape) > 2 and not x.shape[-2].batch
    shape = x.shape[-2:] if matrix else x.shape[-1:]
    if o.a:
        return b.call("mul", x, b.parameter("factor", shape, o.tp, "normal(1.0, 0.2)", o.dp))
    return b.call("add", x, b.parameter("term", shape, o.tp, "normal(0.3)", o.dp))


@kind("self_product", 3)
def _self_product(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    y = b.call(o.act, x, inline=o.b)
    return b.call("mul" if o.a else "sub", x, y)


@kind("gated", 4)
def _gated(b: Builder, piece: Piece, x: Value) -> Value:
    """A gated op of two layers, or of the halves of one."""
    o = piece.options
    hidden = b.hidden(o.k + 1)
    if o.a:
        gate, up = b.split(b.linear(x, hidden.times(Dim(2)), o.tp, o.bias, stem="gate_up"), 2)
    else:
        gate = b.linear(x, hidden, o.tp, stem="gate", inline=o.b)
        up = b.linear(x, hidden, o.tp, stem="up", inline=o.b)
    h = b.call(GATED[ACTIVATIONS.index(o.act) % len(GATED)], gate, up, shape=(*x.shape[:-1], hidden))
    return b.linear(h, x.shape[-1], "shard(1)" if o.b else o.tp2, stem="down")


@kind("sliced", 4)
def _sliced(b: Builder, piece: Piece, x: Value) -> Value:
    """A layer of a part of the features, of what another layer made or of the value itself."""
    o = piece.options
    y = b.linear(x, x.shape[-1], o.tp) if o.a else x
    size = b.size(y.shape[-1])
    begin, end = (size // 3, size - size // 4) if o.b else (0, max(1, size // o.k))
    y = b.call("slice", y, shape=(*y.shape[:-1], Dim(end - begin)), dim=len(y.shape) - 1, begin=begin, end=end)
    return b.linear(y, x.shape[-1], o.tp2, o.bias)


@kind("joined", 4)
def _joined(b: Builder, piece: Piece, x: Value) -> Value:
    """The value joined with what is made of it, along the last dimension or the one before."""
    o = piece.options
    last, size = x.shape[-1], b.size(x.shape[-1])
    if o.a and len(x.shape) > 2 and x.shape[-2].text.isdigit():
        rows, dim = x.shape[-2].number, len(x.shape) - 2
        y = b.call("concat", b.call(o.act, x, inline=o.b), x, shape=(*x.shape[:-2], Dim(2 * rows), last), dim=dim)
        begin = rows // o.k
        return b.call("slice", y, shape=x.shape, dim=dim, begin=begin, end=begin + rows)
    wide = b.hidden(o.k)
    side = b.linear(x, wide, o.tp, stem="side")
    first, second = (side, x) if o.b else (x, side)
    y = b.call("concat", first, second, shape=(*x.shape[:-1], Dim(size + wide.number)))
    return b.linear(y, last, o.tp2, o.bias)


@kind("three", 3)
def _three(b: Builder, piece: Piece, x: Value) -> Value:
    """Thirds of a wide layer, put together again."""
    o = piece.options
    last = x.shape[-1]
    p, q, r = b.split(b.linear(x, last.times(Dim(3)), o.tp, o.bias), 3)
    y = b.call("mul" if o.a else "add", p, b.call(o.act, q, inline=True))
    return b.call("sub" if o.b else "add", y, r)


@kind("shared", 4)
def _shared(b: Builder, piece: Piece, x: Value) -> Value:
    """A layer whose weight all pieces of this kind and width use, now and then transposed."""
    last = x.shape[-1]
    name = "shared_" + last.text.replace(" * ", "_")
    weight = b.parameter("", (last, last), piece.options.tp, shared=name)
    if piece.options.a:
        weight = b.transpose(weight, 0, 1)
    y = b.call("linear", x, weight)
    return b.call("add", x, y) if piece.options.b else y


@kind("made_weight", 3)
def _made_weight(b: Builder, piece: Piece, x: Value) -> Value:
    """A layer whose weight is computed from parameters."""
    o = piece.options
    last = x.shape[-1]
    if o.k == 1:
        first, second = (b.parameter("w", (last, last), tp) for tp in (o.tp, o.tp2))
        weight = b.call("mul" if o.a else "add", first, second)
    elif o.k == 2:
        weight = b.call("tanh" if o.a else "scale", b.parameter("w", (last, last), o.tp),
                        **({} if o.a else {"factor": 2}))
    else:
        big = b.parameter("w", (last.times(Dim(2)), last), o.tp)
        size = b.size(last)
        begin = size if o.a else size // 2
        weight = b.call("slice", big, shape=(last, last), dim=0, begin=begin, end=begin + size)
    return b.call("linear", x, weight)


@kind("residual", 4, wraps=True)
def _residual(b: Builder, piece: Piece, x: Value) -> Value:
    y = emit(b, piece.children, x)
    return x if y.name == x.name else b.call("add", x, y)


@kind("heads", 4, wraps=True)
def _heads(b: Builder, piece: Piece, x: Value) -> Value:
    """The last dimension as several heads."""
    last = x.shape[-1]
    counts = [n for n in (b.units_tp * piece.options.k, b.units_tp, piece.options.k + 1, 2, 3) if last.number % n == 0]
    if not counts or len(x.shape) > 3:
        return emit(b, piece.children, x)
    inner = Dim(last.number // counts[0], last.batch, last.sequence)
    y = emit(b, piece.children, b.reshape(x, (*x.shape[:-1], Dim(counts[0]), inner)))
    return b.reshape(y, x.shape)


@kind("flat", 5, wraps=True)
def _flat(b: Builder, piece: Piece, x: Value) -> Value:
    """All dimensions but the last one as rows."""
    if len(x.shape) < 3:
        return emit(b, piece.children, x)
    y = emit(b, piece.children, b.reshape(x, (product(x.shape[:-1]), x.shape[-1])))
    return b.reshape(y, x.shape)


@kind("wide", 2, wraps=True)
def _wide(b: Builder, piece: Piece, x: Value) -> Value:
    """All dimensions but the batch as one."""
    if len(x.shape) < 3 or x.shape[0] != BATCH:
        return emit(b, piece.children, x)
    y = emit(b, piece.children, b.reshape(x, (BATCH, product(x.shape[1:]))))
    return b.reshape(y, x.shape)


@kind("swap_first", 4, wraps=True)
def _swap_first(b: Builder, piece: Piece, x: Value) -> Value:
    """The first two dimensions in the other order."""
    y = emit(b, piece.children, b.transpose(x, 0, 1))
    return b.transpose(y, 0, 1)


@kind("swap_last", 4, wraps=True)
def _swap_last(b: Builder, piece: Piece, x: Value) -> Value:
    """The last two dimensions in the other order: layers over positions."""
    if len(x.shape) < 3:
        return emit(b, piece.children, x)
    rank = len(x.shape)
    y = emit(b, piece.children, b.transpose(x, rank - 2, rank - 1))
    return b.transpose(y, rank - 2, rank - 1)


@kind("called", 2, wraps=True)
def _called(b: Builder, piece: Piece, x: Value) -> Value:
    """The children as a block of the file's section `blocks`."""
    if b.outer is not None or len(x.shape) != 3:
        return emit(b, piece.children, x)
    inside = b.scope(seen=False)
    y = emit(inside, piece.children, Value("inner", x.shape))
    if y.name == "inner":
        return x
    name = b.fresh("part_of")
    b.blocks[name] = {"inputs": ["inner"], "graph": inside.statements, "result": y.name}
    if inside.parameters:
        b.blocks[name]["parameters"] = inside.parameters
    more = {"depth": piece.options.k, "as": b.fresh("called")} if piece.options.a else {"as": b.fresh("called")}
    return b.state(f"{name}({x.name})", x.shape, more=more)

# SPDX-License-Identifier: Apache-2.0
"""Recipes of which some realisations, or all, make no sense: samples or positions that the units do not divide, and
graphs whose sums a mesh would make in another order. Whether the program refuses them is its own business; what it
accepts must give the same bits. Misfits of a realisation alone are drawn by layout.py."""

import random
from collections.abc import Callable
from dataclasses import replace

import layout
import recipe
from building import BATCH, SEQUENCE, Builder, Dim, Options, Value
from pieces import Piece, draw_options, kind
from recipe import Recipe

Change = Callable[[random.Random, Recipe], Recipe]
CHANGES: dict[Change, int] = {}  # how often each is drawn
OF_ANY: set[Change] = set()  # those of any recipe; the others are of graphs of their own over tokens


def change(often: int, of_any: bool = False) -> Callable[[Change], Change]:
    """Makes a function one of the changes."""
    def register(function: Change) -> Change:
        CHANGES[function] = often
        OF_ANY.update([function] if of_any else [])
        return function
    return register


def _put(drawn: Recipe, *pieces: Piece, **fields: object) -> Recipe:
    """The recipe with these pieces alone as its graph, so that nothing else is refused."""
    assert drawn.own
    return replace(drawn, own=replace(drawn.own, before=(), body=pieces, after=()), **fields)  # type: ignore[arg-type]


@change(3, of_any=True)
def _samples(rng: random.Random, drawn: Recipe) -> Recipe:
    """Samples that the batch units do not divide, so that no number of ranks shares them out evenly."""
    units = rng.choice([4, 4, 8])
    return replace(drawn, units_batch=units, samples=units * rng.choice([1, 2]) + rng.choice([1, 1, 1, 2]))


@change(10, of_any=True)
def _batch_units(rng: random.Random, drawn: Recipe) -> Recipe:
    """Batch units that microbatches can share out evenly, though not in the order of their tree."""
    units = rng.choice([6, 6, 12])
    return replace(drawn, units_batch=units, samples=units * rng.choice([1, 1, 2]), units_sequence=1, zigzag=False)


@change(1)
def _positions(rng: random.Random, drawn: Recipe) -> Recipe:
    """Positions that the sequence units do not divide."""
    return replace(drawn, sequence=rng.choice([5, 6, 10]), units_sequence=4, zigzag=rng.random() < 0.5)


@change(8)
def _zigzag(rng: random.Random, drawn: Recipe) -> Recipe:
    """Positions in zigzag, of which sequence parallelism would split what a rank has."""
    pieces = [Piece(name, replace(draw_options(rng), a=True)) for name in ("norm", "pair", "dropout", "norm")]
    drawn = _put(drawn, *pieces, sequence=8, units_sequence=8, units_tp=2, units_batch=4, samples=4, zigzag=True)
    assert drawn.own  # with a table of positions, of which each rank needs its own
    return replace(drawn, own=replace(drawn.own, entry=replace(drawn.own.entry, b=True, k=1)))


def _put_rows(rng: random.Random, drawn: Recipe, piece: Piece) -> Recipe:
    """The piece where the samples lie behind the positions, in the same dimension."""
    for wrapper in ("flat", "swap_first", "residual"):
        piece = Piece(wrapper, children=(piece,))
    units = rng.choice([2, 4, 8])
    return _put(drawn, piece, units_batch=units, samples=units * rng.choice([1, 2]))


@change(3)
def _dropout_of_rows(rng: random.Random, drawn: Recipe) -> Recipe:
    """Dropout of samples that lie along no dimension."""
    return _put_rows(rng, drawn, Piece("dropout", Options(k=rng.choice([1, 2, 3]))))


@change(3)
def _sums_of_rows(rng: random.Random, drawn: Recipe) -> Recipe:
    """Parameters whose gradients are sums over such samples."""
    return _put_rows(rng, drawn, Piece(rng.choice(["one", "norm", "vector"]), draw_options(rng)))


@change(2)
def _tp_units(rng: random.Random, drawn: Recipe) -> Recipe:
    """Units of tp that are no power of two."""
    return _put(drawn, Piece("pair", replace(draw_options(rng), a=True)), units_tp=6)


@change(3)
def _samples_over_tp(rng: random.Random, drawn: Recipe) -> Recipe:
    """Samples that tp splits."""
    units, ranks = rng.choice([1, 1, 2, 4]), rng.choice([2, 2, 4])
    return _put(drawn, Piece("samples_over_tp", draw_options(rng)), units_tp=ranks, units_batch=units,
                samples=units * ranks, eval_every=0)


@change(3)
def _cut_heads(rng: random.Random, drawn: Recipe) -> Recipe:
    """Heads of attention or rotary positions that tp's units do not divide, though they divide the features."""
    return _put(drawn, Piece("cut_heads", draw_options(rng)), units_tp=rng.choice([2, 4]))


@change(7)
def _features_over_dp(rng: random.Random, drawn: Recipe) -> Recipe:
    """A matmul of activations whose sum goes over features that dp splits, and now and then tp as well."""
    units = rng.choice([2, 4, 8])
    return _put(drawn, Piece("features_over_dp", draw_options(rng)), units_batch=units, samples=units,
                units_tp=2)


@change(1)
def _weight_over_dp(rng: random.Random, drawn: Recipe) -> Recipe:
    """A weight that is made of others by a sum over a dimension that dp splits."""
    return _put(drawn, Piece("weight_over_dp", draw_options(rng)), units_batch=4, samples=rng.choice([4, 8]))


@change(4)
def _padding(rng: random.Random, drawn: Recipe) -> Recipe:
    """A loss that counts the logits of padded rows, which a checkpoint leaves out."""
    assert drawn.own
    own = replace(drawn.own, all_logits=True, tied=rng.random() < 0.5, head=replace(drawn.own.head, k=3))
    return replace(drawn, own=own, units_tp=rng.choice([4, 8]), steps=3, units_batch=4, samples=4)


@change(4)
def _batch_number(rng: random.Random, drawn: Recipe) -> Recipe:
    """Numbers that depend on the samples of a microbatch."""
    units = rng.choice([2, 4, 8])
    return _put(drawn, Piece("batch_number", draw_options(rng)), units_batch=units, samples=units)


@change(4)
def _of_training(rng: random.Random, drawn: Recipe) -> Recipe:
    """Parameters of which training has another placement or shape than evaluation."""
    options = replace(draw_options(rng), b=rng.random() < 0.7)
    return _put(drawn, Piece("of_training", options), units_tp=rng.choice([2, 4]), eval_every=1)


@change(8)
def _scatter_over_stages(rng: random.Random, drawn: Recipe) -> Recipe:
    """A parameter that is cut over the stages of a pipeline."""
    return _put(drawn, Piece("pair", draw_options(rng)), Piece("over_stages", draw_options(rng)),
                Piece("pair", draw_options(rng)))


@change(2)
def _some_positions(rng: random.Random, drawn: Recipe) -> Recipe:
    """Attention over a part of the positions."""
    return _put(drawn, Piece("some_positions", draw_options(rng)), sequence=8, units_sequence=4)


def _is_text(x: Value) -> bool:
    return x.shape[:2] == (BATCH, SEQUENCE) and len(x.shape) == 3


@kind("samples_over_tp", 0)
def _piece_samples(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    y = b.call("scatter", b.linear(x, x.shape[-1]), axis="tp", dim=0)
    vector = b.parameter("norm", x.shape[-1:], init="normal(1.0, 0.2)")
    y = b.call("rmsnorm" if o.a else "mul", y, vector)
    return b.call("add", x, b.call("all_gather", y, axis="tp", dim=0))


@kind("cut_heads", 0)
def _piece_heads(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    if not _is_text(x):
        return x
    head_dim, heads = 4, 3 if o.a else b.units_tp
    groups = heads if o.a else 1
    q = b.linear(x, Dim(heads * head_dim), "shard(0)", o.bias, stem="wq")
    if o.a and o.b:
        y = b.call("rope", q, head_dim=head_dim, theta=10000)
    else:
        k = b.linear(x, Dim(groups * head_dim), "shard(0)", stem="wk")
        y = b.call("attention", q, k, b.call(o.act, k), head_dim=head_dim)
    return b.call("add", x, b.linear(y, x.shape[-1], "shard(1)", stem="wo"))


@kind("features_over_dp", 0)
def _piece_features(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    if not _is_text(x):
        return x
    h = b.linear(x, Dim([6, 6, 12][o.k - 1]), "shard(0)" if o.a and o.b else "", o.bias)
    h = b.call(o.act, b.call("all_to_all", h, axis="dp", **{"from": 0, "dim": 2}))
    scores = b.call("matmul", h, h, shape=(BATCH, SEQUENCE, SEQUENCE), transpose_b=1)
    y = b.call("matmul", b.call("softmax", scores), x, shape=x.shape)
    return b.call("add", x, y)


@kind("weight_over_dp", 0)
def _piece_weight(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    last, inner = x.shape[-1], Dim([4, 6, 8][o.k - 1])
    first, second = (b.parameter("w", (inner, last), dp=on) for on in (True, o.a))
    if o.b:
        first = b.call(o.act, first)
    weight = b.call("matmul", first, second, shape=(last, last), transpose_a=1)
    return b.call("linear", x, weight)


@kind("batch_number", 0)
def _piece_batch(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    if o.k == 1:
        return b.call("scale", x, factor="0.3 * batch")
    if o.k == 2:
        return b.call("mul", x, b.parameter("v", x.shape[-1:], init="normal(0.2 * batch)"))
    return b.call(o.act, x) if o.a else b.call("add", x, b.call("scale", x, factor="sqrt(batch)"))


@kind("of_training", 0)
def _piece_training(b: Builder, piece: Piece, x: Value) -> Value:
    last, options = x.shape[-1], ["shard(0) if training else replicate", "replicate if training else shard(0)"]
    if piece.options.a:
        options.reverse()
    if piece.options.b:
        inner = Dim([4, 6, 8][piece.options.k - 1])
        size = f"{inner.number} if training else {2 * inner.number}"
        wide = b.parameter("w", (inner, last), more={"shape": [size, last.text]})
        back = b.parameter("w", (last, inner), more={"shape": [last.text, size]})
        return b.call("linear", b.call("linear", x, wide, shape=(*x.shape[:-1], inner)), back, shape=x.shape)
    for tp in options:
        x = b.call("linear", x, b.parameter("w", (last, last), more={"tp": tp}))
    return x


@kind("over_stages", 0)
def _piece_stages(b: Builder, piece: Piece, x: Value) -> Value:
    last = x.shape[-1]
    weight = b.call("scatter", b.parameter("w", (last, last)), axis="pp", dim=piece.options.k % 2, shape=(last, last))
    return b.call("linear", x, weight)


@kind("some_positions", 0)
def _piece_positions(b: Builder, piece: Piece, x: Value) -> Value:
    o = piece.options
    if not _is_text(x):
        return x
    count = Dim([2, 4, 6][o.k - 1])
    width = Dim(4 * b.units_tp)
    s = b.call("slice", b.linear(x, width), shape=(BATCH, count, width), dim=1, begin=0, end=count.number)
    y = b.call("attention", s, s, s, head_dim=4, **({} if o.a else {"causal": 0}))
    y = b.call("matmul", y, b.linear(y, x.shape[-1], o.tp), shape=(BATCH, width, x.shape[-1]), transpose_a=1)
    return b.call("add", x, b.call("matmul", b.linear(x, width, o.tp2), y, shape=x.shape))


def draw(seed: str, model: str = "", isa: str = "") -> Recipe:
    """The recipe of a seed; layout.MISFITS says how often it is changed to one of these."""
    rng = random.Random(f"misfit {seed}")
    if rng.random() >= layout.MISFITS:
        return recipe.draw(seed, model, isa)
    changes = [one for one in CHANGES if one in OF_ANY or model in ("", "own", "experts")]
    drawn_change = rng.choices(changes, [CHANGES[one] for one in changes])[0]
    if drawn_change in OF_ANY:
        return drawn_change(rng, recipe.draw(seed, model, isa))
    for i in range(100):  # of the graphs that are drawn, some are over tables
        drawn = recipe.draw(f"{seed} {i}", "own", isa)
        if drawn.has_sequence:
            return replace(drawn_change(rng, drawn), seed=seed)
    raise AssertionError("no graph over tokens")

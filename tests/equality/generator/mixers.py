# SPDX-License-Identifier: Apache-2.0
"""Pieces in which positions see each other, or the samples of a microbatch do. They take batch x sequence x features
and leave everything else alone."""

from building import BATCH, SEQUENCE, Builder, Dim, Value
from pieces import Piece, kind


def _fits(x: Value) -> bool:
    return len(x.shape) == 3 and x.shape[:2] == (BATCH, SEQUENCE) and x.shape[2].number > 1 \
        and not x.shape[2].sequence


@kind("attention", 7)
def _attention(b: Builder, piece: Piece, x: Value) -> Value:
    """Heads and groups of keys and values, with or without rotary positions and norms of heads."""
    if not _fits(x):
        return x
    o = piece.options
    groups = b.units_tp if b.units_tp > 1 else 1 + (o.k == 3)
    heads, head_dim = groups * o.k, 4 if o.b else 6
    place = "replicate" if o.tp == "replicate" else "shard(0)"
    q = b.linear(x, Dim(heads * head_dim), place, o.bias, o.dp, "wq")
    k = b.linear(x, Dim(groups * head_dim), place, o.bias, stem="wk")
    value_dim = 3 if o.act == "relu2" else head_dim
    v = b.linear(x, Dim(groups * value_dim), place, stem="wv", inline=o.a)
    if o.act in ("silu", "tanh", "gelu"):
        part = {"rotary_dim": 2, "offset": o.k - 1} if o.act == "gelu" else {}
        part |= {"interleaved": 1} if o.act != "silu" else {}
        q, k = (b.call("rope", y, head_dim=head_dim, theta=10000, **part) for y in (q, k))
    more = {} if o.act in ("silu", "relu") else {"causal": 0}
    if o.act == "silu":
        more["window"] = 2 + o.k
    if o.act == "sigmoid":
        more |= {"scale": 0.3, "dropout": "0.2 * training"}
    more |= {"v_head_dim": value_dim} if value_dim != head_dim else {}
    more |= {"soft_cap": 0.7} if o.gemma else {}
    sinks = (b.parameter("sinks", (Dim(heads),), "" if place == "replicate" else place),) if o.bias else ()
    y = b.call("attention", q, k, v, *sinks, shape=(*x.shape[:-1], Dim(heads * value_dim)), head_dim=head_dim, **more)
    return b.call("add", x, b.linear(y, x.shape[-1], "shard(1)" if place != "replicate" else o.tp2, stem="wo"))


@kind("shared_head", 3)
def _shared_head(b: Builder, piece: Piece, x: Value) -> Value:
    """Features that all heads share, times those of each head."""
    if not _fits(x):
        return x
    o = piece.options
    heads, width = b.units_tp * (1 + o.a), o.k + 1
    shape = (*x.shape[:-1], Dim(heads * width))
    one = b.linear(x, Dim(width), o.tp, stem="one")
    y = b.call("mul", b.linear(x, shape[-1], "shard(0)" if o.b else o.tp2),
               b.call("expand_heads", one, shape=shape, heads=heads))
    return b.linear(y, x.shape[-1], "shard(1)" if o.b else o.tp2, o.bias, stem="wo")


@kind("scores", 5)
def _scores(b: Builder, piece: Piece, x: Value) -> Value:
    """Attention by hand: products of activations and a softmax, over all features or by heads."""
    if not _fits(x):
        return x
    o = piece.options
    heads, width = b.units_tp * o.k, 4
    q, k, v = (b.linear(x, Dim(heads * width), "shard(0)" if o.a else o.tp, stem=s) for s in ("wq", "wk", "wv"))
    if o.a:
        q, k, v = (b.transpose(b.reshape(y, (BATCH, SEQUENCE, Dim(heads), Dim(width))), 1, 2) for y in (q, k, v))
    shape = (*q.shape[:-1], SEQUENCE)
    if o.b:
        rank = len(k.shape)
        p = b.call("matmul", q, b.transpose(k, rank - 2, rank - 1), shape=shape)
    else:
        p = b.call("matmul", q, k, shape=shape, transpose_b=1)
    p = b.call("softmax", b.call("scale", p, factor=0.5))
    y = b.call("matmul", p, v, shape=q.shape)
    if o.a:
        y = b.reshape(b.transpose(y, 1, 2), (BATCH, SEQUENCE, Dim(heads * width)))
    return b.linear(y, x.shape[-1], "shard(1)" if o.a else o.tp2, o.bias, stem="wo")


@kind("linear_attention", 4)
def _linear_attention(b: Builder, piece: Piece, x: Value) -> Value:
    """A product of activations whose sum goes over the positions."""
    if not _fits(x):
        return x
    o = piece.options
    last = x.shape[-1]
    k = b.call(o.act, b.linear(x, last, o.tp, stem="wk"))
    kv = b.call("matmul", k, x, shape=(BATCH, last, last), transpose_a=1)
    kv = b.call("scale", kv, factor="1 / sequence")
    if o.a:
        y = b.call("matmul", x, kv, shape=x.shape)
    else:
        y = b.call("matmul", x, kv, shape=x.shape, transpose_b=1)
    return b.call("add", x, y) if o.b else y


@kind("times_weight", 3)
def _times_weight(b: Builder, piece: Piece, x: Value) -> Value:
    """matmul of rows with a parameter."""
    o = piece.options
    if x.shape[-1].batch:
        return x
    last = x.shape[-1]
    rows = x if len(x.shape) == 2 else b.reshape(x, (_product(x), last))
    weight = b.parameter("w", (last, last), o.tp, dp=o.dp)
    more = {"transpose_b": 1} if o.a else {}
    y = b.call("matmul", rows, weight, shape=rows.shape, **more)
    return y if len(x.shape) == 2 else b.reshape(y, x.shape)


def _product(x: Value) -> Dim:
    result = Dim()
    for dim in x.shape[:-1]:
        result = result.times(dim)
    return result


@kind("across_samples", 1)
def _across_samples(b: Builder, piece: Piece, x: Value) -> Value:
    """A product of activations whose sum goes over samples and positions. What the loss then is depends on how many
    samples a microbatch has."""
    if not _fits(x):
        return x
    o = piece.options
    last = x.shape[-1]
    b.mixes_batch.append("across_samples")
    rows = b.reshape(x, (_product(x), last))
    other = b.call(o.act, rows) if o.a else b.linear(rows, last, o.tp)
    together = b.call("matmul", rows, other, shape=(last, last), transpose_a=1)
    together = b.call("tanh", b.call("scale", together, factor=0.1))
    y = b.call("matmul", rows, together, shape=rows.shape, **({"transpose_b": 1} if o.b else {}))
    return b.call("add", x, b.reshape(y, x.shape))

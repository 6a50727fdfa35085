# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts as pieces of random graphs."""

import random
from dataclasses import dataclass
from typing import Any

from building import BATCH, SEQUENCE, Builder, Dim, Options, Value
from pieces import ACTIVATIONS, GATED, Piece, kind

EXPERTS = (2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Mixture(Options):
    """What a mixture is drawn with, besides the options of any piece: `tp` is its router's
    placement, `k` the width of its experts. What does not go together is left out when it is
    written."""

    experts: int = 2
    chosen: int = 1
    scores: str = "softmax"  # sigmoid; chosen: a softmax over the chosen
    normalize: bool = False
    scale: float = 1.0
    groups: int = 1
    kept: int = 1
    top: int = 1
    choice: str = ""  # a bias of it: small, or large, and all tokens choose alike
    rate: float = 0.0  # by which a step changes the bias
    centre: bool = False
    balance: str = ""  # sequence, step, forward
    z_loss: bool = False
    capacity: float = 0.0
    priority: bool = False
    gated: bool = False
    shared: bool = False  # an ordinary MLP is added
    place: str = ""  # over tp: shared experts out, split each; else every rank has all
    stored: str = ""  # weights are made of parameters, or are whole on every rank of ep; else neither

    def features(self) -> set[str]:
        """What the summary counts it under."""
        names = {f"mixture of {self.experts}", f"mixture, scores {self.scores}"}
        return names | {f"mixture, {name}" for name, on in (
            ("normalize", self.normalize), ("groups", self.groups > 1), ("z loss", self.z_loss),
            (f"{self.choice} bias", self.choice), ("bias_rate", self.choice and self.rate),
            (f"balance per {self.balance}", self.balance), ("capacity", self.capacity),
            ("priority", self.capacity and self.priority), ("gated", self.gated),
            ("shared expert", self.shared), (f"tp: {self.place}", self.place),
            (f"weights {self.stored}", self.stored),
            ("all chosen", self.chosen == self.experts)) if on}


def draw_options(rng: random.Random) -> Mixture:
    experts = rng.choice(EXPERTS)
    balance = rng.choices(["", "sequence", "step", "forward"], [4, 3, 3, 1])[0]
    return Mixture(
        tp=rng.choice(["replicate"] * 8 + ["shard(0)", "shard(1)"]), act=rng.choice(ACTIVATIONS),
        k=rng.choice([1, 2, 3]), made=rng.randrange(1, 1 << 20) if rng.random() < 0.05 else 0,
        experts=experts, chosen=min(experts, rng.choice([1, 2, 2, 3, experts, rng.randint(1, 12)])),
        scores=rng.choice(["softmax", "softmax", "sigmoid", "chosen"]),
        normalize=rng.random() < 0.5, scale=rng.choice([1.0, 1.0, 2.5, 0.3]),
        groups=rng.choice([1, 1, 2, 3, 4]), kept=rng.choice([1, 2, 3]), top=rng.choice([1, 2]),
        choice=rng.choice(["", "", "small", "large"]), rate=rng.choice([0.0, 0.01, 0.5]),
        centre=rng.random() < 0.4, balance=balance, z_loss=rng.random() < 0.3,
        capacity=rng.choice([0.0, 0.0, 0.0, 0.5, 1.0, 1.25, 3.0]), priority=rng.random() < 0.5,
        gated=rng.random() < 0.5, shared=rng.random() < 0.25,
        place=rng.choice(["", "share out", "share out", "split", "split"]),
        stored=rng.choice(["", "", "", "made", "whole"]))


def _choose(b: Builder, o: Mixture, scores: Value) -> Value:
    """The choice, with as many groups as fit."""
    groups = o.groups if o.experts % o.groups == 0 else 1
    each, kept = o.experts // groups, min(o.kept, groups)
    more: dict[str, Any] = {"k": min(o.chosen, kept * each)}
    if groups > 1:
        more |= {"groups": groups, "kept_groups": kept, "group_top": min(o.top, each)}
    inputs = [scores]
    if o.choice:
        init = "normal(0.05)" if o.choice == "small" else "normal(100)"
        inputs.append(b.parameter("choice", (Dim(o.experts),), init=init))
        if o.rate:
            more |= {"bias_rate": o.rate} | ({"bias_centre": 1} if o.centre else {})
    return b.call("choose_experts", *inputs, shape=(*scores.shape[:-1], Dim(more["k"])), **more)


def _balance(b: Builder, o: Mixture, scores: Value, chosen: Value) -> Value:
    per = o.balance
    if per == "forward" and b.balanced and b.balanced[0] != scores.shape:
        per = ""  # the choices of all layers are counted together
    if per == "sequence" and (scores.shape[:2] != (BATCH, SEQUENCE) or len(scores.shape) != 3):
        per = ""
    if not per:
        return scores
    if per == "forward":
        b.balanced.append(scores.shape)
    load = [b.parameter("load", scores.shape[-1:], init="zeros")] if per == "step" else []
    more = {"normalize": 1} if o.scores == "sigmoid" else {}
    return b.call("balance_loss", scores, chosen, *load, coefficient=0.05, per=per, **more)


def _weight(b: Builder, o: Mixture, stem: str, out: Dim, inside: Dim, dim: int) -> Value:
    """The weights of all experts, of which tp splits this dimension, or shares them out."""
    more = {} if o.stored == "whole" else {"ep": "shard(0)"}
    more |= {"tp": "shard(0)"} if o.place == "share out" else {}
    tp = f"shard({dim})" if o.place == "split" else ""
    shape = (Dim(o.experts), out, inside)
    if o.stored != "made":
        return b.parameter(stem, shape, tp, more=more)
    turned = (shape[0], inside, out)
    tp = f"shard({3 - dim})" if tp else ""
    return b.call("transpose", b.parameter(stem, turned, tp, more=more), shape=shape, dim0=1, dim1=2)


def _bias(b: Builder, o: Mixture, stem: str, out: Dim, tp: str = "") -> tuple[Value, ...]:
    """The biases of all experts, of some mixtures, whose features tp splits as given where it splits experts."""
    if o.act not in ("relu", "silu", "gelu"):
        return ()
    more = {"ep": "shard(0)"} | ({"tp": "shard(0)"} if o.place == "share out" else {})
    return (b.parameter(stem, (Dim(o.experts), out), tp if o.place == "split" else "", more=more),)


@kind("mixture", 8, draw=draw_options)
def _mixture(b: Builder, piece: Piece, x: Value) -> Value:
    o, last = piece.options, x.shape[-1]
    assert isinstance(o, Mixture)
    if last.batch or last.sequence:
        return x
    b.mixtures.append((o.experts, o.place == "share out"))
    router = b.parameter("router", (Dim(o.experts), last), o.tp, "normal(0.5)")
    b.made = 0  # the other parameters are what they are
    scores = b.call("router", x, router, shape=(*x.shape[:-1], Dim(o.experts)))
    if o.z_loss:
        scores = b.call("router_z_loss", scores, coefficient=0.1)
    if o.scores != "chosen":
        scores = b.call(o.scores, scores)
    chosen = _choose(b, o, scores)
    scores = _balance(b, o, scores, chosen)
    more: dict[str, Any] = {"softmax": 1} if o.scores == "chosen" else \
        {"normalize": 1} if o.normalize else {}
    more |= {"scale": o.scale} if o.scale != 1 else {}
    weights = b.call("expert_weights", scores, chosen, shape=chosen.shape, **more)
    return _experts(b, o, x, chosen, weights)


def _experts(b: Builder, o: Mixture, x: Value, chosen: Value, weights: Value) -> Value:
    """What the experts make of their rows, added to the value."""
    last, hidden = x.shape[-1], b.hidden(2 * o.k)
    up = _weight(b, o, "experts_up", hidden, last, 1)
    capacity = {"capacity": o.capacity} if o.capacity else {}
    first = [chosen, weights] if capacity and o.priority else [chosen]
    rows, row = (Dim(), Dim(2)), (Dim(), hidden)
    plan = b.call("expert_plan", *first, up, shape=rows, **capacity)
    r = b.call("permute_experts", x, plan, shape=(Dim(), last))
    h = b.call("expert_linear", r, up, plan, *_bias(b, o, "experts_up_bias", hidden, "shard(1)"), shape=row)
    if o.gated:
        gate = _weight(b, o, "experts_gate", hidden, last, 1)
        g = b.call("expert_linear", r, gate, plan, shape=row, inline=True)
        gated = "clamped_swiglu" if o.act == "relu" else GATED[ACTIVATIONS.index(o.act) % len(GATED)]
        h = b.call(gated, g, h, **({"limit": 0.1} if o.act == "relu" else {}))
    else:
        h = b.call(o.act, h)
    down = _weight(b, o, "experts_down", last, hidden, 2)
    h = b.call("expert_linear", h, down, plan, *_bias(b, o, "experts_down_bias", last), shape=(Dim(), last))
    y = b.call("combine_experts", h, weights, plan, shape=x.shape)
    if o.shared:
        wide = b.call(o.act, b.linear(x, hidden, "shard(0)", stem="shared_up"))
        y = b.call("add", y, b.linear(wide, last, "shard(1)", stem="shared_down"))
    return b.call("add", x, y)

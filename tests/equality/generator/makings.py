# SPDX-License-Identifier: Apache-2.0
"""What parameters alone make: values that stand where a piece has a parameter."""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from building import Builder, Value

UNARY = ("tanh", "sigmoid", "gelu", "softmax", "softmax")


def make(b: "Builder", first: "Value", tp: str) -> "Value":
    """A value of the parameter's shape that it makes, alone or with others; drawn by the builder's number."""
    rng = random.Random(f"{b.made} {first.name}")
    made, b.made = b.made, 0  # what it is made of are parameters
    value = first
    for _ in range(rng.choice([1, 1, 2])):
        value = _step(b, rng, value, tp)
    b.made = made
    return value


def _step(b: "Builder", rng: random.Random, value: "Value", tp: str) -> "Value":
    shape = value.shape
    numbers = not any(dim.sequence for dim in shape)
    other = rng.choice([tp, "replicate", "shard(0)", "shard(1)"])
    ways = ["unary", "dropout", "with_another", "with_another"]
    if numbers:
        ways += ["part", "part"]
    if len(shape) == 2:
        ways += ["gain", "product", "product", "biased"]
    elif numbers and shape[0].number % 2 == 0:
        ways += ["reshaped", "reshaped"]
    way = rng.choice(ways)
    if way == "unary":
        return b.call(rng.choice(UNARY), value)
    if way == "dropout":
        return b.call("dropout", value, p=rng.choice([0.1, 0.25]))
    if way == "with_another":
        return b.call(rng.choice(["add", "mul"]), value, b.parameter("made", shape, other))
    if way == "gain":
        return b.call("rmsnorm", value, b.parameter("gain", shape[-1:], other, "normal(1.0, 0.2)"))
    if way == "biased":
        wide = b.parameter("made", (shape[-1], shape[-1]), other)
        return b.call("linear", value, wide, b.parameter("bias", shape[-1:], other, "normal(0.1)"))
    if way == "product":
        wide = b.parameter("made", (shape[-1], shape[-1]), other)
        return b.call("matmul", value, wide, shape=shape, transpose_b=rng.randrange(2))
    return b.call("add", value, _other_shape(b, rng, value, way, other))


def _other_shape(b: "Builder", rng: random.Random, value: "Value", way: str, tp: str) -> "Value":
    """A parameter of another shape, of which a value of this one is made."""
    shape = value.shape
    if way == "part":
        extra = rng.choice([1, 2, shape[0].number])
        rows = type(shape[0])(shape[0].number + extra)
        begin = rng.randrange(extra + 1)
        return b.call("slice", b.parameter("made", (rows, *shape[1:]), tp), shape=shape, dim=0, begin=begin,
                      end=begin + shape[0].number)
    halves = (type(shape[0])(2), type(shape[0])(shape[0].number // 2))
    turned = rng.randrange(2)
    matrix = b.parameter("made", halves[::-1] if turned else halves, tp)
    return b.reshape(b.transpose(matrix, 0, 1) if turned else matrix, shape)

# SPDX-License-Identifier: Apache-2.0
"""Pieces with collectives that the file writes out. Over an axis that splits nothing they change nothing."""

from building import BATCH, SEQUENCE, Builder, Dim, Value
from pieces import Piece, kind


def _has_positions(x: Value) -> bool:
    return x.shape[:2] == (BATCH, SEQUENCE) and len(x.shape) == 3 and not x.shape[2].sequence


@kind("written_sum", 3)
def _written_sum(b: Builder, piece: Piece, x: Value) -> Value:
    """A pair of layers whose sum over tp is completed by name: on all ranks, or each rank's slice of the sequence, which
    is gathered behind a norm."""
    o = piece.options
    h = b.linear(x, Dim(b.units_tp * 2 * o.k), "shard(0)", "shard(0)" if o.bias else "", stem="up")
    y = b.linear(b.call(o.act, h), x.shape[-1], "shard(1)", stem="down")
    if not o.a or not _has_positions(x) or b.sequence % b.units_tp:
        return b.call("all_reduce", y, axis="tp")
    y = b.call("reduce_scatter", y, axis="tp", dim=1)
    if o.b:
        y = b.call("rmsnorm", y, b.parameter("norm", x.shape[-1:], init="normal(1.0, 0.1)"))
    return b.call("all_gather", b.call("tanh", y), axis="tp", dim=1)


@kind("written_gather", 2)
def _written_gather(b: Builder, piece: Piece, x: Value) -> Value:
    """Features that tp splits, gathered by name, or moved to positions first."""
    o = piece.options
    h = b.call(o.act, b.linear(x, Dim(b.units_tp * 2 * o.k), "shard(0)", stem="up"))
    if o.a and _has_positions(x) and b.sequence % b.units_tp == 0:
        h = b.call("tanh", b.call("all_to_all", h, axis="tp", dim=1, **{"from": 2}))
    return b.linear(b.call("all_gather", h, axis="tp"), x.shape[-1], o.tp, stem="down")


@kind("positions_moved", 2)
def _positions_moved(b: Builder, piece: Piece, x: Value) -> Value:
    """What each rank of cp has of the positions: gathered and cut again, or changed for features."""
    o = piece.options
    if not _has_positions(x):
        return x
    if o.a:
        y = b.call(o.act, b.call("all_gather", x, axis="cp", dim=1))
        return b.call("scatter", y, axis="cp", dim=1)
    y = b.linear(x, Dim(4 * o.k), stem="up")
    y = b.call(o.act, b.call("all_to_all", y, axis="cp", dim=2, **{"from": 1}))
    y = b.call("all_to_all", y, axis="cp", dim=1, **{"from": 2})
    return b.linear(y, x.shape[-1], o.tp, stem="down")

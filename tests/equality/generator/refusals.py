# SPDX-License-Identifier: Apache-2.0
"""Refusals that follow from a recipe and a layout: where they do not, they are failures."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import units

if TYPE_CHECKING:
    from layout import Layout
    from recipe import Recipe


def _dp(layout: "Layout") -> tuple[int, int, int]:
    """As units takes them: ranks of dp, microbatches, ZeRO's stage."""
    # An order of actions has as many as its file says.
    pipelined = layout.order.microbatches if layout.order else layout.pipelined or 1
    return layout.owners, layout.accumulation * pipelined, layout.stage


def _expert_units(recipe: "Recipe", layout: "Layout") -> bool:
    return not units.expert_fits(recipe, *_dp(layout))


def _experts(recipe: "Recipe", layout: "Layout") -> bool:
    return not units.experts_fit(recipe, layout.sizes)


def _flat(recipe: "Recipe", layout: "Layout") -> bool:
    return recipe.flat and layout.sizes.get("ep", 1) > 1


def _forward(recipe: "Recipe", layout: "Layout") -> bool:
    return recipe.whole_batch and (recipe.flat or _dp(layout)[1] > 1)


# What the program says, and when it may.
LEGAL: list[tuple[re.Pattern[str], Callable[["Recipe", "Layout"], bool]]] = [
    (re.compile(r"'reduce_tree' must be binary with ep"), _flat),
    (re.compile(r"experts of '\S+' cannot be shared out over"), _experts),
    (re.compile(r"units of expert gradients do not fit dp"), _expert_units),
    (re.compile(r"balance_loss per forward pass needs one microbatch"), _forward)]


def is_wrong(said: str, recipe: "Recipe", layout: "Layout") -> bool:
    """Whether the program refuses for a reason that is not there."""
    return any(pattern.search(said) and not legal(recipe, layout) for pattern, legal in LEGAL)

# SPDX-License-Identifier: Apache-2.0
"""Which meshes the reduction units of a recipe allow, as the documentation says it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recipe import Recipe


def is_subtree(units: int, local: int) -> bool:
    """Whether each aligned run of so many units is a subtree of the binary tree over all."""
    odd = units
    while odd % 2 == 0:
        odd //= 2
    return units % local == 0 and (local in (1, units) or local % odd == 0)


def microbatch_first(recipe: "Recipe", dp: int, stage: int) -> bool:
    """Whether a step's samples are shared out over microbatches before dp."""
    return dp > 1 and (recipe.flat or stage >= 2)


def batch_fits(recipe: "Recipe", dp: int, ep: int, microbatches: int, stage: int) -> bool:
    """Whether blocks of batch units, those of ep's ranks, and with those of dp's ranks or of the
    microbatches, are subtrees."""
    units, parts = recipe.units_batch, dp * ep * microbatches
    if units % parts or recipe.flat:
        return units % parts == 0 and (ep == 1 or not recipe.flat)
    together = dp if microbatch_first(recipe, dp, stage) else microbatches
    block = units // parts
    return all(is_subtree(units, n) for n in (block, block * ep, block * ep * together))


def expert_fits(recipe: "Recipe", dp: int, microbatches: int, stage: int) -> bool:
    """Whether the leaves of experts' gradients can be shared out over dp."""
    units = recipe.units_expert
    if not recipe.mixtures:
        return True
    parts = dp * (microbatches if microbatch_first(recipe, dp, stage) else 1)
    if recipe.flat:
        parts = recipe.units_batch
    return units % parts == 0 and recipe.units_batch % units == 0 and \
        is_subtree(units, units // parts)


def experts_fit(recipe: "Recipe", sizes: dict[str, int]) -> bool:
    """Whether ep, cp and, where it has whole experts, tp can share out all mixtures' experts.

    Each of them shares out what those before it leave, and what its ranks have together is added first.
    """
    for experts, over_tp in recipe.mixtures:
        members = 1
        for axis in ("ep", "cp", "tp"):
            members *= sizes.get(axis, 1) if axis != "tp" or over_tp else 1
            if experts % members or not is_subtree(experts, experts // members):
                return False
    return True

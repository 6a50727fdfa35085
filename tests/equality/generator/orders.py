# SPDX-License-Identifier: Apache-2.0
"""Pipeline orders drawn at random. They are valid because they are made by a simulation: an action joins its
stage's order only when all that it waits for has been done."""

import random
from dataclasses import dataclass, replace

Action = tuple[str, int, int]  # F, B or W; microbatch; chunk


@dataclass(frozen=True)
class Order:
    """The actions of every stage, as a file of pipeline.schedule: file:PATH says them."""

    microbatches: int
    chunks: int
    v_shaped: bool
    stages: tuple[tuple[Action, ...], ...]

    @property
    def splits(self) -> bool:
        """Whether weights' gradients are actions of their own."""
        return any(action[0] == "W" for stage in self.stages for action in stage)

    @property
    def in_turn(self) -> bool:
        """Whether each stage's part takes the microbatches as they come, in each kind of action."""
        for stage in self.stages:
            last: dict[tuple[str, int], int] = {}
            for word, micro, chunk in stage:
                if micro < last.get((word, chunk), -1):
                    return False
                last[word, chunk] = micro
        return True

    @property
    def kind(self) -> str:
        """What the summary counts it under."""
        words = ["file", "1 chunk" if self.chunks == 1 else f"{self.chunks} chunks"]
        more = {"v": self.v_shaped, "W": self.splits, "not in turn": not self.in_turn}
        words += [word for word, on in more.items() if on]
        return ", ".join(words)

    def text(self) -> str:
        """The file."""
        lines = [f"stages: {len(self.stages)}", f"microbatches: {self.microbatches}"]
        if self.chunks > 1:
            lines.append(f"chunks: {self.chunks}")
        if self.v_shaped:
            lines.append("placement: v")
        for number, actions in enumerate(self.stages):
            words = [f"{kind}{micro}" + (f".{chunk}" if chunk else "") for kind, micro, chunk in actions]
            lines.append(f"stage {number}: {' '.join(words)}")
        return "\n".join(lines) + "\n"


def _virtual(stage: int, chunk: int, stages: int, v_shaped: bool) -> int:
    """Which part of the model, counted through, a stage's chunk is."""
    return chunk * stages + (stages - 1 - stage if v_shaped and chunk % 2 else stage)


def _ready(action: Action, virtual: int, parts: int, done: set[tuple[str, int, int]]) -> bool:
    kind, micro, _ = action
    if kind == "F":
        return virtual == 0 or ("F", micro, virtual - 1) in done
    if kind == "B":
        return ("F", micro, virtual) in done and (virtual == parts - 1 or ("B", micro, virtual + 1) in done)
    return ("B", micro, virtual) in done


def draw(rng: random.Random, stages: int, microbatches: int, chunks: int) -> Order:
    """A random order. Most keep the microbatches of a part in turn, as all orders of the papers do."""
    v_shaped = chunks > 1 and rng.random() < 0.5
    split = rng.random() < 0.4
    in_turn = rng.random() < 0.8
    eager = rng.choice([0.1, 0.5, 1.0, 3.0])  # how much rather a forward pass than a backward pass
    weight = {"F": eager, "B": 1.0, "W": rng.choice([0.1, 1.0])}
    left = [[(kind, micro, chunk) for chunk in range(chunks) for kind in ("FBW" if split else "FB")
             for micro in range(microbatches)] for _ in range(stages)]
    result: list[list[Action]] = [[] for _ in range(stages)]
    done: set[tuple[str, int, int]] = set()
    while any(left):
        candidates = []
        for stage, actions in enumerate(left):
            seen = set()
            for action in actions:
                part = (action[0], action[2])
                if in_turn and part in seen:
                    continue
                seen.add(part)
                if _ready(action, _virtual(stage, action[2], stages, v_shaped), stages * chunks, done):
                    candidates.append((stage, action))
        stage, action = rng.choices(candidates, [weight[a[0]] for _, a in candidates])[0]
        left[stage].remove(action)
        result[stage].append(action)
        done.add((action[0], action[1], _virtual(stage, action[2], stages, v_shaped)))
    return Order(microbatches, chunks, v_shaped, tuple(tuple(actions) for actions in result))


def misplace(rng: random.Random, order: Order) -> Order:
    """The order, but on one stage a backward pass or the weights' gradients come before what they follow."""
    stages = [list(actions) for actions in order.stages]
    actions = rng.choice([stages[-1], rng.choice(stages)])
    late = rng.choice([action for action in actions if action[0] != "F"])
    before = ("F" if late[0] == "B" else "B", late[1], late[2])
    actions.remove(late)
    actions.insert(actions.index(before), late)
    return replace(order, stages=tuple(tuple(actions) for actions in stages))

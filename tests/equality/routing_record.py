#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records of routing for test_routing.sh, in the format of --record-routing.

usage: routing_record.py make PATTERN DIR      writes a record with one of the patterns of load
       routing_record.py rows DIR SIZES        the most rows that a rank has in a microbatch, by SIZES "dp=2,ep=4,mb=2"
       routing_record.py loads DIR LAYER       the load of each expert in each step, as metrics have it
       routing_record.py flip DIR NEW          writes a record in which every fifth token has other experts
       routing_record.py spoil WHAT DIR NEW    writes a damaged record

The patterns are those of Megatron-LM's benchmark of MoE dispatch (PR 7488). The model has two mixtures, of 8 experts, of
which a token has 3; 16 samples of 8 tokens and 3 steps.
"""

import json
import os
import random
import struct
import sys
from pathlib import Path

LAYERS, EXPERTS, K, SAMPLES, SEQUENCE, STEPS = ("block.0.chosen", "block.1.chosen"), 8, 3, 16, 8, 3
TOKENS = SAMPLES * SEQUENCE
RANKS = 4  # of ep: those that "hot rank", "spread" and others mean
EACH = EXPERTS // RANKS

Choices = list[list[int]]  # of each token


# ---- patterns: the experts of token t in step `step` ----


def balanced(t: int, step: int, draw: random.Random) -> list[int]:
    return [(t * K + j) % EXPERTS for j in range(K)]


def hot_set(t: int, step: int, draw: random.Random) -> list[int]:
    return [2, 5, 7] if t % 5 else draw.sample(range(EXPERTS), K)


def on_rank(rank: int, t: int) -> list[int]:
    """All experts of a rank, and one of another."""
    own = [rank * EACH + e for e in range(EACH)]
    return [*own, (own[-1] + 1 + t % (EXPERTS - EACH)) % EXPERTS]


def hot_rank(t: int, step: int, draw: random.Random) -> list[int]:
    return on_rank(1, t)


def spread(t: int, step: int, draw: random.Random) -> list[int]:
    return [rank * EACH + draw.randrange(EACH) for rank in draw.sample(range(RANKS), K)]


def ragged(t: int, step: int, draw: random.Random) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < K:
        expert = min(int(draw.expovariate(0.7)), EXPERTS - 1)
        if expert not in chosen:
            chosen.append(expert)
    return chosen


def empty_rank(t: int, step: int, draw: random.Random) -> list[int]:
    return draw.sample(range(EXPERTS - EACH), K)


def rotating(t: int, step: int, draw: random.Random) -> list[int]:
    return on_rank(step % RANKS, t)


def burst(t: int, step: int, draw: random.Random) -> list[int]:
    return on_rank(2, t) if step == 1 else balanced(t, step, draw)


PATTERNS = {
    "balanced": balanced,
    "hot_set": hot_set,
    "hot_rank": hot_rank,
    "spread": spread,
    "ragged": ragged,
    "empty_rank": empty_rank,
    "rotating": rotating,
    "burst": burst,
}


# ---- files ----


def path_of(folder: str, step: int) -> Path:
    return Path(folder) / f"routing-{step + 1:08d}.safetensors"


def encode(tensors: dict[str, Choices], dtype: str = "I32", columns: int = K) -> bytes:
    header, data = {}, b""
    for name, rows in tensors.items():
        begin = len(data)
        for row in rows:
            data += struct.pack(f"<{len(row)}i", *row)
        header[name] = {
            "dtype": dtype,
            "shape": [len(data[begin:]) // 4 // columns, columns],
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def decode(folder: str, step: int) -> dict[str, Choices]:
    file = path_of(folder, step).read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    tensors = {}
    for name, entry in json.loads(file[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        count, k = entry["shape"]
        numbers = struct.unpack(f"<{count * k}i", file[8 + length + begin : 8 + length + end])
        tensors[name] = [list(numbers[t * k : t * k + k]) for t in range(count)]
    return tensors


def write(folder: str, step: int, content: bytes) -> None:
    os.makedirs(folder, exist_ok=True)
    path_of(folder, step).write_bytes(content)


def make(pattern: str, folder: str) -> None:
    for step in range(STEPS):
        tensors = {}
        for layer in LAYERS:
            draw = random.Random(f"{pattern} {step} {layer}")
            rows = [PATTERNS[pattern](t, step, draw) for t in range(TOKENS)]
            for row in rows:
                draw.shuffle(row)  # in whatever order a record has them
            tensors[layer] = rows
        write(folder, step, encode(tensors))


def flip(folder: str, new: str) -> None:
    for step in range(STEPS):
        tensors = decode(folder, step)
        for rows in tensors.values():
            for t in range(0, len(rows), 5):
                rows[t] = sorted({*range(EXPERTS)} - {*rows[t]})[:K]
        write(new, step, encode(tensors))


# ---- what a mesh makes of a record ----


def rows_most(folder: str, sizes: str) -> int:
    """Samples go to dp, then to microbatches; those of ep, cp and tp are gathered."""
    size = {name: int(n) for name, n in (part.split("=") for part in sizes.split(","))}
    parts = size.get("dp", 1) * size.get("mb", 1)
    here = EXPERTS // (size.get("ep", 1) * size.get("cp", 1) * size.get("tp", 1))
    most = 0
    for step in range(STEPS):
        for rows in decode(folder, step).values():
            each = len(rows) // parts
            for part in range(parts):
                tokens = rows[part * each : (part + 1) * each]
                for first in range(0, EXPERTS, here):
                    most = max(most, sum(first <= e < first + here for row in tokens for e in row))
    return most


def loads(folder: str, layer: int) -> str:
    lines = []
    for step in range(STEPS):
        rows = decode(folder, step)[LAYERS[layer]]
        lines.append(",".join(str(sum(e in row for row in rows)) for e in range(EXPERTS)))
    return "\n".join(lines)


# ---- damage ----


def spoilt(what: str, folder: str, step: int) -> bytes | None:
    tensors = decode(folder, step)
    rows = tensors[LAYERS[1]]
    last = step == STEPS - 1
    if what == "missing" and last:
        return None
    if what == "too_large" and last:
        rows[7][1] = EXPERTS
    if what == "negative" and last:
        rows[7][1] = -1
    if what == "twice" and last:
        rows[7][1] = rows[7][2]
    if what == "few_tokens":
        rows.pop()
    if what == "other_layer":
        tensors["block.2.chosen"] = tensors.pop(LAYERS[1])
    if what == "more_layers":
        tensors["block.2.chosen"] = rows
    if what == "fewer_choices":
        tensors = {name: [row[:2] for row in rows] for name, rows in tensors.items()}
        return encode(tensors, columns=2)
    content = encode(tensors, dtype="F32" if what == "floats" else "I32")
    if what == "cut" and last:
        return content[:-1]
    if what == "garbage" and last:
        return random.Random(1).randbytes(500)
    if what == "huge_header" and last:
        return struct.pack("<Q", 1 << 62) + content[8:]
    if what == "empty" and last:
        return b""
    return content


def spoil(what: str, folder: str, new: str) -> None:
    for step in range(STEPS):
        content = spoilt(what, folder, step)
        if content is not None:
            write(new, step, content)


def main() -> None:
    command, *words = sys.argv[1:]
    if command == "make":
        make(*words)
    elif command == "flip":
        flip(*words)
    elif command == "spoil":
        spoil(*words)
    elif command == "rows":
        print(rows_most(*words))
    else:
        print(loads(words[0], int(words[1])))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes a run.lock's chain of hashes, and its hash of a checkpoint's weights, from their definitions alone.

usage: run_lock_hashes.py RUN_LOCK [CHECKPOINT…]
"""

import hashlib
import json
import struct
import sys
from pathlib import Path

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv1a(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def tensor_hash(words):
    keys = [mix(j) >> 32 | 1 for j in range(64)]
    total = 0
    for begin in range(0, len(words), 64):
        block = sum(key * word for key, word in zip(keys, words[begin:begin + 64]))
        total += (mix(begin // 64 + 64) | 1) * block
    return total & MASK


def read_tensors(folder):
    """The tensors of all files of a checkpoint, whole; of models that one rank wrote."""
    for path in sorted(Path(folder).glob("rank-*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack_from("<Q", data)[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__" or name.endswith((".m", ".v")):
                continue
            assert entry["dtype"] == "F32", name
            begin, end = (8 + length + at for at in entry["data_offsets"])
            yield name.split("@")[0], struct.unpack(f"<{(end - begin) // 4}I", data[begin:end])


def weights_hash(folder):
    return sum((fnv1a(name) | 1) * tensor_hash(words) for name, words in read_tensors(folder)) & MASK


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    lines = [json.loads(line) for line in open(sys.argv[1])]
    head, start = lines[0], lines[1]
    assert head["event"] == "lock" and start["event"] == "start"
    recipe = "".join(f"{key}={value}\n" for key, value in head["recipe"].items())
    chain = sha256(f"tessera-train run.lock 1\n{recipe}{start['step']} {start['weights']}\n")
    weights = {start["step"]: start["weights"]}
    for line in lines[1:]:
        if line["event"] == "step":
            chain = sha256(f"{chain}\n{line['step']} {line['loss_bits']} {line['weights']}\n")
            bits = struct.pack(">f", line["loss"]).hex()
            assert bits == line["loss_bits"], line
            weights[line["step"]] = line["weights"]
        assert line["chain"] == chain, line
    for folder in sys.argv[2:]:
        step = int(folder.rsplit("-", 1)[1])
        assert f"{weights_hash(folder):016x}" == weights[step], folder
    print(f"{len(weights)} steps, {len(sys.argv) - 2} checkpoints")


main()

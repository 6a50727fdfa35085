# SPDX-License-Identifier: Apache-2.0
"""The GEMMs of a step in FP8, against the definition in base/fp8_layout.h worked out in double: operands are those that
`trace --save` wrote, blocks and units are found here again, and elements are drawn from each result. Second, the gradients of
two layers against PyTorch (scripts/make_fp8_gradients).

usage: test_fp8.py PROGRAM"""
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK, DRAWN = 128, 40
FORMATS = {"e4m3": (448.0, 3, -6), "e5m2": (57344.0, 2, -14)}  # largest, bits of fraction, least exponent


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]


def scale_of(amax, kind, form):
    scale = max(f32(amax / FORMATS[form][0]), 2.0 ** -126)
    if kind == "power_of_two":
        digits, exponent = math.frexp(scale)
        scale = math.ldexp(1, exponent - (digits == 0.5))
    return scale


def value(x, scale, form):
    """The nearest number of the format to x / scale, times the scale; Python rounds to even, too."""
    largest, fraction, least = FORMATS[form]
    y = f32(x / scale)
    step = 2.0 ** (max(math.frexp(y)[1] - 1, least) - fraction)
    return max(-largest, min(largest, round(y / step) * step)) * scale


class Matrix:
    """Rows and columns of a saved tensor, and its values in blocks."""

    def __init__(self, numbers, cols, rounds=False):
        self.x = [bf16(v) for v in numbers] if rounds else list(numbers)
        self.cols, self.rows, self.scales = cols, len(numbers) // cols, {}

    def split(self, unit_rows, unit_cols, block_rows, block_cols, kind, form):
        self.how = unit_rows, unit_cols, block_rows, block_cols, kind, form
        self.scales = {}
        return self

    def bounds(self, i, unit, block):
        first = i // unit * unit + i % unit // block * block
        return first, min(first + block, i // unit * unit + unit)

    def at(self, row, col):
        unit_rows, unit_cols, block_rows, block_cols, kind, form = self.how
        (top, bottom), (left, right) = self.bounds(row, unit_rows, block_rows), self.bounds(col, unit_cols, block_cols)
        if (top, left) not in self.scales:
            amax = max(abs(v) for r in range(top, bottom) for v in self.x[r * self.cols + left:r * self.cols + right])
            self.scales[top, left] = scale_of(amax, kind, form)
        return value(self.x[row * self.cols + col], self.scales[top, left], form)


def read(path):
    data = Path(path).read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    found = {}
    for name, e in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in e["data_offsets"])
            kind = {"F32": "f", "I32": "i"}[e["dtype"]]
            found[name] = e["shape"], struct.unpack(f"<{(end - begin) // 4}{kind}", data[begin:end])
    return found


class Step:
    def __init__(self, program, config, *settings):
        with tempfile.TemporaryDirectory() as folder:
            words = [word for setting in settings for word in ("--set", setting)]
            subprocess.run([program, "trace", "--config", config, "--save", folder, "--steps", "1", *words], check=True,
                           stdout=subprocess.DEVNULL)
            self.tensors = read(Path(folder) / "step-00000001.safetensors")

    def matrix(self, name, rounds=False):
        shape, numbers = self.tensors[name]
        return Matrix(numbers, shape[-1], rounds)


checks = failed = 0


def compare(what, got, terms, least):
    """An element against its products: the bound of the header for the sum, `least` of its size for what rounds it then."""
    global checks, failed
    want, sizes = math.fsum(terms), math.fsum(abs(t) for t in terms)
    bound = (BLOCK + 3 + len(terms) / BLOCK + 8) * 2.0 ** -24 * sizes + least * abs(want)
    checks += 1
    if not abs(got - want) <= bound:
        failed += 1
        print(f"{what}: {got!r}, not {want!r} +- {bound:.3g}")


def check_step(step, kind, gradients, tp, unit_rows):
    """`tp`: units of features; `unit_rows`: tokens of a batch unit."""
    rng = random.Random(5)

    def weight(name, row_parallel):
        w = step.matrix(name, rounds=True)
        rows, cols = (w.rows, w.cols // tp) if row_parallel else (w.rows // tp, w.cols)
        return w.split(rows, cols, BLOCK, BLOCK, kind, "e4m3")

    def rows(name, form, units):
        x = step.matrix(name)
        return x.split(x.rows, x.cols // units, 1, BLOCK, kind, form)

    def runs(name, form):
        x = step.matrix(name)
        return x.split(unit_rows, x.cols, BLOCK, 1, kind, form)

    a, m = "block.0.attn.", "block.0.mlp."
    layers = [("block.0.n", a + "wq", "block.0.q", "d.block.0.q@block.0.q_2"),
              ("block.0.n", a + "wk", "block.0.k", "d.block.0.k@block.0.k_2"),
              ("block.0.a", a + "wo", "block.0.o", "d.block.0.x"),
              ("block.0.n_2", m + "w_gate", "block.0.f.linear", "d.block.0.f.linear@block.0.f"),
              ("block.0.n_2", m + "w_up", "block.0.f.linear_2", "d.block.0.f.linear@block.0.f.1"),
              ("block.0.f", m + "w_down", "block.0.f_2", "d.block.0.x_2@n")]
    for x_name, w_name, y_name, dy_name in layers:
        row_parallel = w_name.endswith(("wo", "w_down"))
        x, w, y = rows(x_name, "e4m3", tp if row_parallel else 1), weight(w_name, row_parallel), step.matrix(y_name)
        for _ in range(DRAWN):
            i, j = rng.randrange(y.rows), rng.randrange(y.cols)
            compare(y_name, y.x[i * y.cols + j], [x.at(i, k) * w.at(j, k) for k in range(x.cols)], 2.0 ** -8)
        dy, x, dw = runs(dy_name, gradients), runs(x_name, "e4m3"), step.matrix("grad." + w_name)
        for _ in range(DRAWN):
            i, j = rng.randrange(dw.rows), rng.randrange(dw.cols)
            compare("grad." + w_name, dw.x[i * dw.cols + j], [dy.at(r, i) * x.at(r, j) for r in range(x.rows)], 0)
    for dx_name, pairs in (("d.block.0.f", layers[5:]), ("d.block.0.a", layers[2:3]), ("d.block.0.n_2", layers[3:5])):
        dx = step.matrix(dx_name)
        column_parallel = len(pairs) > 1
        operands = [(rows(p[3], gradients, tp if column_parallel else 1), weight(p[1], not column_parallel)) for p in pairs]
        for _ in range(DRAWN):
            i, j = rng.randrange(dx.rows), rng.randrange(dx.cols)
            compare(dx_name, dx.x[i * dx.cols + j],
                    [dy.at(i, n) * w.at(n, j) for dy, w in operands for n in range(dy.cols)], 2.0 ** -8)


def check_torch(program):
    """Rounding flips some codes, so this is no bound of an element: of the differences' root mean square."""
    global checks, failed
    reference = read("tests/train/data/fp8_gradients.safetensors")
    for form in FORMATS:
        step = Step(program, "tests/train/fp8_layers.yaml", f"training_config.fp8.gradients={form}")
        for name in ("w1", "w2"):
            want = reference[f"{form}.{name}"][1]
            got = step.tensors["grad." + name][1][::7]
            plain = reference[f"bf16.{name}"][1]
            size = math.sqrt(math.fsum(v * v for v in want))
            error = math.sqrt(math.fsum((g - v) ** 2 for g, v in zip(got, want, strict=True))) / size
            effect = math.sqrt(math.fsum((p - v) ** 2 for p, v in zip(plain, want, strict=True))) / size
            print(f"{form}: gradient of {name}: {error:.2e} from PyTorch's, which is {effect:.2e} from that of bf16")
            checks += 1
            failed += not (error <= 1e-3 and effect > 4 * error)


def main():
    program = sys.argv[1]
    for kind, gradients, tp, batch in (("power_of_two", "e4m3", 2, 2), ("f32", "e5m2", 1, 3)):
        step = Step(program, "tests/train/fp8.yaml", f"training_config.fp8={{gradients: {gradients}, scales: {kind}}}",
                    f"numerics.units={{batch: {batch}, tp: {tp}}}")
        check_step(step, kind, gradients, tp, 360 // batch)
    check_torch(program)
    print(f"fp8: {checks} checks, {failed} failed")
    sys.exit(failed > 0 or checks < 1000)


main()

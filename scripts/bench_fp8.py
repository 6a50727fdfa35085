# SPDX-License-Identifier: Apache-2.0
"""Times the GEMM of FP8 with a scale for each block on the first GPU: the kernels of a build, cuBLASLt's GEMM of the same codes
and scales (torch._scaled_mm; CUDA 12.9 and sm_90), and torch.matmul in bf16. Prints how far the two results in FP8 are apart.
Used by scripts/gpu_speed.
usage: bench_fp8.py LIBRARY; LIBRARY is tests/cuda/libtsr_cuda_kernels.so of a build with CUDA."""
import ctypes
import sys

import torch

from bench_gpu_time import milliseconds

SHAPES = [(8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (32768, 2304, 768)]  # M, N, K
BF16 = 1  # tsr_cuda_type
BLOCK = 128
int64, pointer = ctypes.c_int64, ctypes.c_void_p


class Layout(ctypes.Structure):
    """tsr_fp8_layout of src/base/fp8_layout.h."""
    _fields_ = [*((name, int64) for name in ("rows", "cols", "unit_rows", "unit_cols")), ("block_rows", ctypes.c_int),
                ("block_cols", ctypes.c_int), ("format", ctypes.c_int), ("power_of_two", ctypes.c_bool)]


class Quantised(ctypes.Structure):
    """tsr_cuda_fp8_operand of kernels/cuda/kernels.h."""
    _fields_ = [("layout", Layout), ("sums_rows", ctypes.c_bool), ("has_runs", ctypes.c_bool), ("count", int64), ("starts", pointer)]


class Matrix(ctypes.Structure):
    """tsr_cuda_fp8_matrix of kernels/cuda/kernels.h."""
    _fields_ = [("codes", pointer), ("stride", int64), ("scales", pointer),
                *((name, int64) for name in ("k_stride", "row_stride", "row_unit"))]


class Gemm(ctypes.Structure):
    """tsr_cuda_fp8_gemm of kernels/cuda/kernels.h."""
    _fields_ = [*((name, int64) for name in "MNK"), ("a", Matrix), ("b", Matrix), ("a_format", ctypes.c_int), ("c", pointer),
                ("adds", ctypes.c_bool)]


class Operand:
    """x (rows, K) in bf16 and its codes and scales; `square`: a scale for 128 rows."""

    def __init__(self, library, x, square):
        rows, cols = x.shape
        self.library, self.x, self.square = library, x, square
        layout = Layout(rows, cols, rows, cols, BLOCK if square else 1, BLOCK, 0, True)
        self.operand = Quantised(layout, False, False, 1, None)
        self.codes = torch.empty(rows, cols, dtype=torch.float8_e4m3fn, device="cuda")
        self.scales = torch.empty(rows // BLOCK if square else rows, cols // BLOCK, device="cuda")

    def quantize(self):
        stream = pointer(torch.cuda.current_stream().cuda_stream)
        self.library.tsr_cuda_fp8_quantize(stream, BF16, pointer(self.codes.data_ptr()), pointer(self.scales.data_ptr()),
                                           pointer(self.x.data_ptr()), ctypes.byref(self.operand))

    def matrix(self):
        rows, cols = self.x.shape
        return Matrix(self.codes.data_ptr(), cols, self.scales.data_ptr(), 1, cols // BLOCK, rows if self.square else 0)

    def outer_major(self):
        """Scales as the library takes them: those of neighbouring rows side by side, of a square as they are."""
        return self.scales if self.square else self.scales.t().contiguous().t()


def measure(library, M, N, K):
    a = Operand(library, torch.randn(M, K, device="cuda", dtype=torch.bfloat16), square=False)
    b = Operand(library, torch.randn(N, K, device="cuda", dtype=torch.bfloat16), square=True)
    c = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    a.quantize(), b.quantize()
    gemm = Gemm(M=M, N=N, K=K, a=a.matrix(), b=b.matrix(), a_format=0, c=c.data_ptr(), adds=False)
    stream = pointer(torch.cuda.current_stream().cuda_stream)

    def ours():
        library.tsr_cuda_run_fp8_gemm(stream, BF16, ctypes.byref(gemm))

    scale_a, scale_b = a.outer_major(), b.outer_major().t()

    def of_library():
        return torch._scaled_mm(a.codes, b.codes.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)

    name = f"{M} x {N} x {K}"
    for what, call, flop in (("tessera-train", ours, 2 * M * N * K), ("quantised a", a.quantize, 0), ("quantised b", b.quantize, 0),
                             ("cuBLASLt, fp8", of_library, 2 * M * N * K),
                             ("cuBLASLt, bf16", lambda: torch.matmul(a.x, b.x.t()), 2 * M * N * K)):
        try:
            time = milliseconds(call)
        except (RuntimeError, ValueError) as error:
            print(f"{name:22}  {what:14}  left out: {str(error).splitlines()[0]}")
            continue
        rate = f"{flop / time / 1e9:6.0f} TFLOP/s" if flop else ""
        print(f"{name:22}  {what:14}  {time:7.3f} ms  {rate}", flush=True)
    ours()
    try:
        want = of_library().float()
    except (RuntimeError, ValueError):
        want = torch.matmul(a.x, b.x.t()).float()
    print(f"{name:22}  apart: {((c.float() - want).norm() / want.norm()).item():.2e} of the norm", flush=True)


def main():
    library = ctypes.CDLL(sys.argv[1])
    torch.manual_seed(1)
    for shape in SHAPES:
        measure(library, *shape)
    return 0


if __name__ == "__main__":
    sys.exit(main())

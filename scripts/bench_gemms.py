# SPDX-License-Identifier: Apache-2.0
"""Times GEMMs of one input on the first GPU as one batched call and as separate calls, by the kernels of a build: the
projections to q, k and v and to gate and up, and their weights' gradients, of GPT-2 124M and Llama 1B in bf16. Compares the
bits of the two, which must be equal. Used by scripts/gpu_speed.
usage: bench_gemms.py LIBRARY; LIBRARY is tests/cuda/libtsr_cuda_kernels.so of a build with CUDA."""
import ctypes
import sys

import torch

from bench_gpu_time import milliseconds

# what, GEMMs, tokens, outputs, inputs
SHAPES = [("gpt2-124m q, k, v", 3, 32768, 768, 768), ("llama-1b k, v", 2, 8192, 512, 2048),
          ("llama-1b gate, up", 2, 8192, 8192, 2048)]
F32, BF16 = 0, 1  # tsr_cuda_type
int64, pointer = ctypes.c_int64, ctypes.c_void_p


class Matrix(ctypes.Structure):
    """tsr_cuda_matrix of kernels/cuda/gemm.h."""
    _fields_ = [("data", pointer), ("stride", int64), ("transposed", ctypes.c_bool)]


class Batch(ctypes.Structure):
    """tsr_cuda_batch of kernels/cuda/gemm.h."""
    _fields_ = [("count", ctypes.c_int), *((name, int64) for name in ("a", "b", "c", "bias"))]


class Gemm(ctypes.Structure):
    """tsr_cuda_gemm of kernels/cuda/gemm.h."""
    _fields_ = [*((name, int64) for name in "MNK"), ("type", ctypes.c_int), ("c_type", ctypes.c_int), ("a", Matrix),
                ("b", Matrix), ("c", pointer), ("c_stride", int64),
                *((name, pointer) for name in ("plus", "bias", "before", "scratch")), ("batch", Batch)]


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def linear(count, tokens, outputs, inputs):
    """y (count, tokens, outputs) = x (tokens, inputs) w (count, outputs, inputs)^T"""
    x, w = random(tokens, inputs), random(count, outputs, inputs)
    y = torch.empty(count, tokens, outputs, device="cuda", dtype=torch.bfloat16)
    gemm = Gemm(M=tokens, N=outputs, K=inputs, type=BF16, c_type=BF16, a=Matrix(x.data_ptr(), inputs, False),
                b=Matrix(w.data_ptr(), inputs, True), c=y.data_ptr(), c_stride=outputs,
                batch=Batch(count, 0, outputs * inputs, tokens * outputs, 0))
    return gemm, y, (x, w)


def linear_dw(count, tokens, outputs, inputs):
    """dw (count, outputs, inputs) = dy (count, tokens, outputs)^T x (tokens, inputs)"""
    dy, x = random(count, tokens, outputs), random(tokens, inputs)
    dw = torch.empty(count, outputs, inputs, device="cuda", dtype=torch.float32)
    gemm = Gemm(M=outputs, N=inputs, K=tokens, type=BF16, c_type=F32, a=Matrix(dy.data_ptr(), outputs, True),
                b=Matrix(x.data_ptr(), inputs, False), c=dw.data_ptr(), c_stride=inputs,
                batch=Batch(count, tokens * outputs, 0, outputs * inputs, 0))
    return gemm, dw, (dy, x)


def gemms_of(batch, result, reads):
    """Each of a batch by itself."""
    for i in range(batch.batch.count):
        one = Gemm.from_buffer_copy(batch)
        one.a.data = reads[0].data_ptr() + 2 * i * batch.batch.a
        one.b.data = reads[1].data_ptr() + 2 * i * batch.batch.b
        one.c = result[i].data_ptr()
        one.batch = Batch()
        yield one


def measure(library, blas, name, make, shape):
    batch, result, reads = make(*shape)
    stream = pointer(torch.cuda.current_stream().cuda_stream)
    separate = list(gemms_of(batch, result, reads))

    def run(gemms):
        for gemm in gemms:
            if not library.tsr_cuda_run_gemm(blas, stream, ctypes.byref(gemm)):
                sys.exit(library.tsr_cuda_blas_error(blas).decode())

    run(separate)
    want = result.clone()
    result.zero_()
    run([batch])
    equal = torch.equal(result, want)
    one, several = milliseconds(lambda: run([batch])), milliseconds(lambda: run(separate))
    count, tokens, outputs, inputs = shape
    flops = 2 * count * tokens * outputs * inputs
    print(f"{name:20} {make.__name__:10} {count} x ({batch.M}, {batch.N}, {batch.K})  batched {one:6.3f} ms "
          f"({flops / one / 1e9:4.0f} TFLOP/s)  separate {several:6.3f} ms ({flops / several / 1e9:4.0f} TFLOP/s)  "
          f"{'equal bits' if equal else 'OTHER BITS'}", flush=True)
    return equal


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.tsr_cuda_run_gemm.restype = library.tsr_cuda_blas_open.restype = ctypes.c_bool
    library.tsr_cuda_blas_error.restype = ctypes.c_char_p
    torch.cuda.init()
    blas, why = pointer(), ctypes.create_string_buffer(512)
    if not library.tsr_cuda_blas_open(ctypes.c_bool(False), ctypes.byref(blas), why):
        sys.exit(why.value.decode())
    equal = [measure(library, blas, name, make, shape) for name, *shape in SHAPES for make in (linear, linear_dw)]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())

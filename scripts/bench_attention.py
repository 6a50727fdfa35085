# SPDX-License-Identifier: Apache-2.0
"""Times attention on the first GPU, forward and backward, causal, in bf16: the kernels of a build, where it is sm_90 also with
wgmma, and the flash and cuDNN backends of PyTorch's scaled_dot_product_attention, on the same tensors. Used by
scripts/gpu_speed.
usage: bench_attention.py LIBRARY; LIBRARY is tests/cuda/libtsr_cuda_kernels.so of a build with CUDA.
FLOP are those of the causal half; backward has 2.5 times those of forward."""
import ctypes
import sys

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench_gpu_time import milliseconds

SHAPES = [(2, 4096, 32, 8, 64), (32, 1024, 12, 12, 64), (1, 4096, 32, 8, 128)]  # B, T, H, G, D
BF16 = 1  # tsr_cuda_type


class Rows(ctypes.Structure):
    """tsr_attention_rows of kernels/attention.h."""
    _fields_ = [("runs", ctypes.c_int), ("each", ctypes.c_int64), ("first", ctypes.c_int64 * 2)]


class Attention(ctypes.Structure):
    """tsr_attention of kernels/attention.h."""
    _fields_ = [
        *((name, ctypes.c_int64) for name in "BTHGD"), ("scale", ctypes.c_float), ("causal", ctypes.c_bool),
        ("window", ctypes.c_int64), ("behind", ctypes.c_int64), ("dropout", ctypes.c_float), ("key", ctypes.c_uint64),
        ("batch_offset", ctypes.c_int64), ("head_offset", ctypes.c_int64), ("heads_global", ctypes.c_int64),
        ("head_gap", ctypes.c_int64), ("Dv", ctypes.c_int64), ("soft_cap", ctypes.c_float), ("sinks", ctypes.c_void_p),
        ("positions", ctypes.c_void_p), ("rows", Rows)]


def ours(library, shape, q, k, v, dout, wgmma=False):
    """Forward and backward as calls. Tensors are (B, T, heads, D)."""
    B, T, H, G, D = shape
    a = Attention(B=B, T=T, H=H, G=G, D=D, scale=D**-0.5, causal=True, heads_global=H)
    out, dq, dk, dv = (torch.empty_like(x) for x in (q, q, k, v))
    stats, scratch = (torch.empty(n * B * H * T, device="cuda") for n in (2, 1))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def pointers(*tensors):
        return [ctypes.c_void_p(x.data_ptr()) for x in tensors]

    def forward():
        if wgmma:
            library.tsr_cuda_attention_wgmma(stream, BF16, ctypes.byref(a), *pointers(out, stats, q, k, v))
        else:
            library.tsr_cuda_attention(stream, BF16, ctypes.byref(a), None, *pointers(out, stats, q, k, v))

    def backward():
        tensors = pointers(dq, dk, dv, dout, q, k, v, out, stats, scratch)
        if wgmma:
            library.tsr_cuda_attention_wgmma_backward(stream, BF16, ctypes.byref(a), *tensors)
        else:
            library.tsr_cuda_attention_backward(stream, BF16, ctypes.byref(a), None, *tensors)

    return forward, backward


def of_torch(backend, shape, q, k, v, dout):
    q, k, v, dout = (x.transpose(1, 2) for x in (q, k, v, dout))  # (B, heads, T, D)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def attend():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=shape[2] != shape[3])

    def forward():
        with torch.no_grad():
            attend()

    out = attend()
    return forward, lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def measure(name, shape, make):
    B, T, H, G, D = shape
    title = f"attention {B}×{T}, {H} and {G}, {D}"
    flops = 2 * B * H * T * T * D
    try:
        forward, backward = make()
        times = milliseconds(forward), milliseconds(backward)
    except (RuntimeError, TypeError) as error:
        print(f"{title:32}  {name:14}  left out: {str(error).splitlines()[0]}", flush=True)
        return
    rates = [factor * flops / ms / 1e9 for factor, ms in zip((1, 2.5), times)]
    print(f"{title:32}  {name:14}  forward {times[0]:6.3f} ms {rates[0]:4.0f} TFLOP/s  "
          f"backward {times[1]:6.3f} ms {rates[1]:4.0f} TFLOP/s", flush=True)


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.tsr_cuda_has_wgmma.restype = ctypes.c_bool
    for shape in SHAPES:
        B, T, H, G, D = shape
        q, k, v, dout = (torch.randn(B, T, heads, D, device="cuda", dtype=torch.bfloat16) for heads in (H, G, G, H))
        measure("tessera-train", shape, lambda: ours(library, shape, q, k, v, dout))
        if torch.cuda.get_device_capability() == (9, 0) and library.tsr_cuda_has_wgmma():
            measure("with wgmma", shape, lambda: ours(library, shape, q, k, v, dout, True))
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            if backend := getattr(SDPBackend, name, None):
                measure(name.split("_")[0].lower(), shape, lambda: of_torch(backend, shape, q, k, v, dout))


if __name__ == "__main__":
    main()

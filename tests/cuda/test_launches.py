#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `trace --emit tile-ir` prints with what runs: one training step on an emulated device, which logs every
launch (tests/cuda/emulator.h), for models and meshes whose tasks have all families of kernels.

usage: test_launches.py BUILD_FOLDER PLUGIN_FOLDER"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONE_STEP = ["training_config.max_steps=1", "training_config.gradient_accumulation_steps=1"]
LLAMA = ["transformer_config.model_type=llama", "transformer_config.num_heads=4", "transformer_config.num_groups=2", "transformer_config.dropout_prob=0.0"]

GEMMA = ["transformer_config.model_type=gemma2", "transformer_config.head_dim=256", "transformer_config.attention_soft_cap=2.0",
         "transformer_config.num_groups=1", "transformer_config.dropout_prob=0.0", "training_config.precision=bf16",
         "numerics.units.tp=1"]

LATENT = ("transformer_config={model_type: deepseek_v3, vocab_size: 0, max_sequence_length: 8, embedding_dim: 16,"
          " intermediate_dim: 16, num_blocks: 1, num_heads: 4, dropout_prob: 0.0, q_lora_rank: 24, kv_lora_rank: 16,"
          " qk_nope_head_dim: 12, qk_rope_head_dim: 8, v_head_dim: 24}")

EXPERTS = ["transformer_config.model_type=mixtral", "transformer_config.num_experts=4", "transformer_config.num_experts_per_token=2"]


def mesh(**axes: int) -> str:
    return f"mesh={{axes: [{', '.join(axes)}], shape: [{', '.join(map(str, axes.values()))}]}}"


CASES: dict[str, list[str]] = {
    "gpt2": [],
    "gpt2 in bf16": ["training_config.precision=bf16", "transformer_config.dropout_prob=0.0"],
    "gpt2 in bf16, sums over tp too": ["training_config.precision=bf16", "numerics.tp_reductions=half"],
    "gpt2 in bf16, tp, sums over it too": ["training_config.precision=bf16", "numerics.tp_reductions=half", mesh(tp=2)],
    "gpt2 in fp8": ["training_config.precision=fp8"],
    "gpt2 in fp8, dp and tp": ["training_config.precision=fp8", mesh(dp=2, tp=2)],
    "gpt2, dp and tp": [mesh(dp=2, tp=2)],
    "gpt2, activations on the host": [mesh(dp=2), "schedule={activation_offload: blocks, activation_offload_min_size: 64}"],
    # a trace is of a process for each device, where overlap would be chosen
    "gpt2, fsdp": [mesh(dp=2), "device_config.enable_fsdp=true", "schedule.all_reduce_overlap=false"],
    "gpt2, sp": [mesh(tp=2), "device_config.enable_sp=true"],
    "gpt2, pp": [mesh(pp=2), "pipeline={microbatches: 1}"],
    "gpt2, fast": ["numerics.policy=fast"],
    "gpt2, sgd": ["training_config.optimizer={type: SGD, lr: 0.1, momentum: 0.9}",
                  "training_config.use_clip_grad_norm=false"],
    "llama": LLAMA,
    "llama in bf16, cp": [*LLAMA, "training_config.precision=bf16", mesh(cp=2), "numerics.units.sequence=4"],
    "llama, dp and cp": [*LLAMA, mesh(dp=2, cp=2)],
    "deepseek_v3": [LATENT],
    "deepseek_v3 in bf16, tp": [LATENT, "training_config.precision=bf16", mesh(tp=2)],
    "experts": [*LLAMA, *EXPERTS],
    "experts in bf16, ep": [*LLAMA, *EXPERTS, "training_config.precision=bf16", mesh(ep=2)],
    "experts in fp8, ep": [*LLAMA, *EXPERTS, "training_config.precision=fp8", mesh(ep=2)],
    "experts with a capacity": [*LLAMA, "transformer_config.model_type=glm4_moe", *EXPERTS[1:], mesh(tp=2),
                                "transformer_config.capacity=1.25", "transformer_config.balance.bias.rate=0.01",
                                "transformer_config.balance.loss=sequence", "transformer_config.balance.z=0.01"],
    "experts with biases": [*LLAMA, "transformer_config.model_type=gpt_oss", *EXPERTS[1:]],
    "gpt2, sequence units": ["numerics.units.sequence=4"],
    "gemma2 in bf16": GEMMA,
    "gemma2 in bf16, cp": [*GEMMA, mesh(cp=2), "numerics.units.sequence=4"],
    "llama in bf16, wgmma": [*LLAMA, "transformer_config.head_dim=64", "training_config.precision=bf16", mesh(tp=2)],
}
VARIABLES = {"llama in bf16, wgmma": {"TESSERA_CUDA_WGMMA": "1"}}
ROW = re.compile(r"^(?: +(\d+)  (\w+) +(\d+ \S+|\S+)|) +(\(\d+, \d+, \d+\)|-) +(\(\d+, \d+, \d+\)|-) +(\d+|-)"
                 r" +(\d+|-) +(\d+)  (\w+)(?: (\d+)×(\d+)×(\d+))?[+a-z]*(?: batch of (\d+))?")

COLLECTIVES = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "ring_shift", "all_to_all"}


def gemms(launches: Counter) -> tuple[Counter, int]:
    """By shape how many GEMMs there are, and how many calls of several: where an algorithm refuses a batch, as it may
    refuse strides, its GEMMs are calls of their own."""
    shapes: Counter = Counter()
    batches = 0
    for (kernel, *numbers), times in launches.items():
        if kernel == "cuBLASLt":
            shapes[kernel, *numbers[:3]] += times * numbers[3]
            batches += times * (numbers[3] > 1)
        else:
            shapes[kernel, *numbers] += times
    return shapes, batches


def command(program: str, what: list[str], keys: list[str], **env: str) -> str:
    words = [program, *what, "--config", str(ROOT / "tests/cuda/run.yaml"), "--quiet"]
    for key in [*ONE_STEP, *keys]:
        words += ["--set", key]
    result = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **env}, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(words)}:\n{result.stdout}{result.stderr}")
    return result.stdout


def traced(program: str, keys: list[str]) -> Counter:
    """Launches of a step over all ranks. A collective is one of its group: each member's trace has a part."""
    launches: Counter = Counter()
    rank = ranks = members = 0
    while rank <= ranks:
        text = command(program, ["trace", "--emit", "tile-ir", "--rank", str(rank)], keys)
        ranks = int(re.search(r"^rank \d+ of (\d+)", text, re.MULTILINE).group(1)) - 1
        sizes = [int(n) for n in re.findall(r"^  its group over \w+, (\d+) ranks", text, re.MULTILINE)]
        program_text = command(program, ["trace", "--emit", "schedule-ir", "--rank", str(rank)], keys)
        axis_of = dict(re.findall(r"^ +(\d+)  \w+ +over (\w+)", program_text, re.MULTILINE))
        axes = dict(zip(re.findall(r"^  its group over (\w+),", text, re.MULTILINE), sizes))
        members = 1
        for line in text.splitlines():
            found = ROW.match(line)
            if not found:
                continue
            task, _, op, grid, block, warps, shared, times, kernel, *tile = found.groups()
            if task:
                members = axes[axis_of[task]] if op in COLLECTIVES else 1
            if kernel == "cuBLASLt":  # M, N, K, GEMMs of the call
                launches[kernel, *(int(n or 1) for n in tile)] += Fraction(int(times), members)
            if block == "-":
                continue
            x, y, z = map(int, re.findall(r"\d+", block))
            if int(warps) * 32 != x * y * z or x * y * z > 1024:
                sys.exit(f"{line}: a block of {x * y * z} threads")
            launches[kernel, *map(int, re.findall(r"\d+", grid)), x, y, z, int(shared)] += Fraction(int(times), members)
        rank += 1
    return launches


def launched(program: str, keys: list[str], plugins: str, folder: Path) -> Counter:
    log = folder / "launches"
    log.unlink(missing_ok=True)
    command(program, [], keys, TESSERA_PLUGIN_PATH=plugins, TESSERA_CUDA_GRAPHS="0", EMULATED_CUDA_LAUNCHES=str(log))
    launches: Counter = Counter()
    for line in log.read_text().splitlines():
        kernel, *numbers = line.split()
        if kernel == "hash_part":  # no task's: replicas are compared after the last step
            continue
        launches[kernel, *map(int, numbers)] += 1
    return launches


def main() -> int:
    build, plugins = Path(sys.argv[1]).resolve(), str(Path(sys.argv[2]).resolve())
    wrong, compared, batches, kernels = 0, 0, 0, set()
    with tempfile.TemporaryDirectory() as name:
        program = str(Path(name) / "tessera-train")  # a program without plugins beside it
        shutil.copy(build / "tessera-train", program)
        for case, keys in CASES.items():
            os.environ.pop("TESSERA_CUDA_WGMMA", None)
            os.environ.update(VARIABLES.get(case, {}))
            printed, ran = traced(program, keys), launched(program, keys, plugins, Path(name))
            (printed, wanted), (ran, found) = gemms(printed), gemms(ran)
            batches += found
            kernels |= {key[0] for key in ran}
            if found > wanted:
                wrong += 1
                print(f"{case}: trace prints {wanted} batches of GEMMs, {found} ran")
            compared += sum(ran.values())
            for key in sorted(printed.keys() | ran.keys()):
                if printed[key] != ran[key]:
                    wrong += 1
                    print(f"{case}: {key}: trace prints {printed[key]}, {ran[key]} ran")
    needed = {"map", "row_map", "row_epilogue", "layernorm", "rmsnorm", "sum_runs", "sum_heads", "sum_elements", "embedding",
              "tokens_sum", "softmax_stats", "cuBLASLt", "rope", "adamw", "sgd", "clip_factor", "attention_forward", "attention_dkv",
              "attention_tensor_forward", "attention_tensor_dkv", "attention_wgmma_forward", "attention_wgmma_backward", "ring_walk", "sum_members", "dropout", "cast", "copy",
              "fp8_quantize", "fp8_gemm", "choose_experts", "plan_sort", "plan_place", "expert_bias", "permute_rows",
              "combine_rows", "expert_gemm", "expert_gemm_tensor", "expert_gemm_fp8", "expert_row_sums"}
    for kernel in sorted(needed - kernels):
        wrong += 1
        print(f"no case launches {kernel}")
    if not batches:
        wrong += 1
        print("no case runs a batch of GEMMs")
    print(f"cuda.launches: {compared} launches of {len(kernels)} kernels, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

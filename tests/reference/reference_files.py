# SPDX-License-Identifier: Apache-2.0
"""Makes, of the numbers that transformers computed (data/README.md), what a user would have: the model's folder as
transformers writes it, a file of the batch's tokens, and PyTorch's file of tensors with its samples in a run's order.

usage: reference_files.py model NAME FOLDER [CHANGE]
       reference_files.py tokens NAME FILE
       reference_files.py tensors NAME DUMP FILE [CHANGE]

A CHANGE is Python on `tensors`, by name; change(NAME, FUNCTION) gives one of them other numbers."""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
SAMPLES, POSITIONS = 4, 16
FORMATS = {"F32": "f", "I64": "q", "I32": "i"}
Tensor = tuple[str, list[int], bytes]  # type, shape, numbers

LLAMA = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama3": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLAMA, "tie_word_embeddings": False,
               "rope_theta": 500000.0, "rope_scaling": {
                   "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8}},
    "llama_tied": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLAMA,
                   "tie_word_embeddings": True, "rope_theta": 10000.0},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **LLAMA, "intermediate_size": 64,
              "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 1000000.0},
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **LLAMA, "intermediate_size": 16,
                "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5, "tie_word_embeddings": True,
                "rope_theta": 10000.0},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 16, "n_embd": 32, "n_layer": 2,
             "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             "activation_function": "gelu_new", "tie_word_embeddings": True},
}


def read(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return tensors


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def numbers(tensor: Tensor) -> list[float]:
    kind = FORMATS[tensor[0]]
    return list(struct.unpack(f"<{len(tensor[2]) // struct.calcsize(kind)}{kind}", tensor[2]))


def part(reference: dict[str, Tensor], prefix: str, to: str = "") -> dict[str, Tensor]:
    """Those whose names begin so; of stacked experts each has a tensor of its own, as in transformers' files."""
    found = {}
    for name, (dtype, shape, data) in reference.items():
        if not name.startswith(prefix):
            continue
        name = to + name[len(prefix):]
        if "{expert}" not in name:
            found[name] = (dtype, shape, data)
            continue
        each = len(data) // shape[0]
        for i in range(shape[0]):
            found[name.replace("{expert}", str(i))] = (dtype, shape[1:], data[i * each:(i + 1) * each])
    return found


def edit(tensors: dict[str, Tensor], python: str) -> None:
    def change(name: str, function: Callable[[list[float]], list[float]]) -> None:
        values = function(numbers(tensors[name]))
        tensors[name] = (*tensors[name][:2], struct.pack(f"<{len(values)}f", *values))
    exec(python, {"tensors": tensors, "change": change})


def make_model(name: str, folder: str, python: str = "") -> None:
    Path(folder).mkdir()
    config = {**CONFIGS[name], "vocab_size": 65, "bos_token_id": None, "eos_token_id": None, "torch_dtype": "float32"}
    (Path(folder) / "config.json").write_text(json.dumps(config))
    tensors = part(read(DATA / f"{name}.safetensors"), "param.")
    edit(tensors, python)
    write(Path(folder) / "model.safetensors", tensors)


def make_tokens(name: str, path: str) -> None:
    """Each sample and the target of its last position, as 17 numbers of 16 bits."""
    reference = read(DATA / f"{name}.safetensors")
    tokens, targets = (numbers(reference[key]) for key in ("tokens", "targets"))
    rows = [tokens[i:i + POSITIONS] + [max(0, targets[i + POSITIONS - 1])]
            for i in range(0, SAMPLES * POSITIONS, POSITIONS)]
    Path(path).write_bytes(b"".join(struct.pack(f"<{POSITIONS + 1}H", *map(int, row)) for row in rows))


def make_tensors(name: str, dump: str, path: str, python: str = "") -> None:
    reference = read(DATA / f"{name}.safetensors")
    ours, theirs = numbers(read(Path(dump))["tokens"]), numbers(reference["tokens"])
    begins = range(0, SAMPLES * POSITIONS, POSITIONS)
    order = [next(i for i, k in enumerate(begins) if theirs[k:k + POSITIONS] == ours[b:b + POSITIONS]) for b in begins]
    assert sorted(order) == list(range(SAMPLES)), "the run has other samples"
    dtype, shape, data = reference["logits"]
    row = len(data) // SAMPLES
    tensors = {"logits": (dtype, shape, b"".join(data[row * i:row * i + row] for i in order)),
               "loss": reference["loss"], **part(reference, "grad.", "grad."), **part(reference, "param.")}
    edit(tensors, python)
    write(Path(path), tensors)


if __name__ == "__main__":
    {"model": make_model, "tokens": make_tokens, "tensors": make_tensors}[sys.argv[1]](*sys.argv[2:])

# SPDX-License-Identifier: Apache-2.0
"""Checks of models that go to and come from other programs: Hugging Face's classes and GGUF files."""
import hashlib
import json
import os
import struct
import sys

from feature import Missing, feature
from training import GPT

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "checkpoint"))
import gguf_reader  # noqa: E402


@feature("export --format gguf: the bytes that llama.cpp's converter makes of the export to Hugging Face, in f32, f16, bf16 and q8_0")
def gguf(c):
    data = os.path.join(c.source_root, "tests", "checkpoint", "data")
    c.run("import", os.path.join(data, "hf_smollm2"), "--out", "model")
    with open(os.path.join(data, "gguf.sha256")) as file:
        expected = {dtype: digest for digest, name, dtype in map(str.split, file) if name == "hf_smollm2"}
    for dtype in ("f32", "f16", "bf16", "q8_0"):
        said = c.run("export", "model", "--format", "gguf", "--out", "hf_smollm2.gguf", "--dtype", dtype)
        with open(os.path.join(c.folder, "hf_smollm2.gguf"), "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != expected[dtype]:
                said.fail(f"{dtype}: other bytes than those of llama.cpp's converter")


@feature("export --dtype q4_k_m: Q4_K, and Q6_K where llama-quantize has it")
def gguf_q4_k_m(c):
    c.write("run.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 2, sequence_length: 8,
  max_steps: 1, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 256, intermediate_dim: 256, num_heads: 4, head_dim: 8,
  num_groups: 2, num_blocks: 3, max_sequence_length: 64}
""")
    c.run("--config", "run.yaml", "--out", "run")
    kinds = {}
    for dtype in ("f32", "q4_k_m"):
        said = c.run("export", "run", "--format", "gguf", "--out", "m.gguf", "--dtype", dtype)
        reader = gguf_reader.Reader(os.path.join(c.folder, "m.gguf"))
        kinds[dtype] = {name: kind for name, (kind, _, _) in reader.tensors.items()}
    found = {name for name, kind in kinds["q4_k_m"].items() if kind == gguf_reader.Q6_K}
    if found != {"output.weight"} | {f"blk.2.{name}.weight" for name in ("attn_v", "ffn_down")}:
        said.fail(f"{sorted(found)} are Q6_K")


@feature("export --format gguf of a tokenizer.model: SentencePiece's pieces, scores and types; warnings of what llama.cpp does otherwise")
def gguf_sentencepiece(c):
    data = os.path.join(c.source_root, "tests", "checkpoint", "data")
    c.run("import", os.path.join(data, "spm_llama"), "--out", "model")
    said = c.run("export", "model", "--format", "gguf", "--out", "spm_llama.gguf", "--dtype", "f32")
    said.says("texts around '<|end|>' may have other tokens there")
    with open(os.path.join(data, "gguf.sha256")) as file:
        expected = {dtype: digest for digest, name, dtype in map(str.split, file) if name == "spm_llama"}
    with open(os.path.join(c.folder, "spm_llama.gguf"), "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != expected["f32"]:
            said.fail("other bytes than those of llama.cpp's converter")


@feature("Tokenizers that llama.cpp has no pre-tokenizer for, and models that it has no architecture for, are no GGUF files",
         state="refused")
def gguf_refused(c):
    tokenizer = os.path.join(c.source_root, "tests", "data", "bpe", "flags.json")
    c.write("run.yaml", f"""training_config: {{seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: {tokenizer},
  batch_size: 2, sequence_length: 8, max_steps: 1, eval_every: 0, sample_tokens: 0}}
transformer_config: {{model_type: llama, vocab_size: 500, embedding_dim: 8, intermediate_dim: 16, num_heads: 2, num_groups: 2,
  num_blocks: 1, max_sequence_length: 64}}
""")
    c.run("--config", "run.yaml", "--out", "run")
    c.run("export", "run", "--format", "gguf", "--out", "m.gguf", code=2).says("has no name for this pre-tokenizer, whose hash is")
    c.write("run.yaml", c.read("run.yaml").replace(tokenizer, os.path.join(c.source_root, "tests", "data", "subword", "unigram.json")))
    c.run("--config", "run.yaml", "--out", "unigram")
    c.run("export", "unigram", "--format", "gguf", "--out", "m.gguf", code=2).says("tokenizer.json': this tokenizer is neither byte-level BPE nor SentencePiece's BPE")
    folder = os.path.join(c.source_root, "tests", "checkpoint", "data", "hf_qwen2_moe")
    c.run("import", folder, "--out", "moe")
    c.run("export", "moe", "--format", "gguf", "--out", "m.gguf", code=2).says("llama.cpp's qwen2moe has experts in every block")


# Queries, keys and values of one tensor there; logits of the embedding.
TOY_GRAPH = """\
name: toy
sizes: {vocab_size: {default: 0, min: 0}, width: ~, heads: ~, groups: ~, head: width / heads, max_sequence_length: ~}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [vocab_padded, width], valid0: vocab_size, init: normal(0.2), hf: toy.wte}
  q: {shape: [heads * head, width], init: normal(0.2), hf: toy.qkv,
    hf_rows: [0, heads * head, (heads + 2 * groups) * head]}
  k: {shape: [groups * head, width], init: normal(0.2), hf: toy.qkv,
    hf_rows: [heads * head, (heads + groups) * head, (heads + 2 * groups) * head]}
  v: {shape: [groups * head, width], init: normal(0.2), hf: toy.qkv,
    hf_rows: [(heads + groups) * head, (heads + 2 * groups) * head, (heads + 2 * groups) * head]}
graph:
- x: embedding(tokens, wte)
- x: add(x, attention(linear(x, q), linear(x, k), linear(x, v), head_dim=head))
- logits: linear(x, wte)
- loss: cross_entropy(logits, targets, valid=vocab_size)
outputs: [loss, logits]
huggingface:
- model_type: toy
  architectures: [ToyForCausalLM]
  keys:
    vocab_size: vocab_size
    n_embd: width
    n_head: heads
    n_kv: {size: groups, default: n_head}
    n_ctx: max_sequence_length
    act: {values: [silu]}
  requires:
  - that: heads > groups
    else: "a toy has fewer groups than heads {heads}"
"""


@feature("A graph file of one's own declares transformers' class: config.json, fused tensors by hf_rows, and what has no class")
def own_class(c):
    c.write("toy.yaml", TOY_GRAPH)
    for groups in (2, 4):
        c.write("run.yaml", GPT.split("transformer_config:")[0] + "transformer_config: {graph: toy.yaml, vocab_size: 0, "
                f"width: 8, heads: 4, groups: {groups}, max_sequence_length: 16}}\nnumerics: {{threads: 1}}\n")
        c.with_keys("--out", f"made{groups}", training_config__max_steps=1)
    c.run("export", "made2", "--out", "out")
    config = json.loads(c.read("out/config.json"))
    want = {"architectures": ["ToyForCausalLM"], "model_type": "toy", "n_embd": 8, "n_head": 4, "n_kv": 2, "n_ctx": 16, "act": "silu"}
    if {key: config.get(key) for key in want} != want:
        raise Missing(f"config.json is {config}")
    with open(os.path.join(c.folder, "out", "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    if header["toy.qkv"]["shape"] != [16, 8] or "toy.wte" not in header:
        raise Missing(f"the tensors are {header}")
    c.run("export", "made4", "--out", "out4", code=2).says("error: a toy has fewer groups than heads 4")


@feature("import refuses by name all that a class of transformers has and the graph has not, in one run")
def refused_import(c):
    folder = os.path.join(c.source_root, "tests", "checkpoint", "data", "hf_llama")
    config = json.load(open(os.path.join(folder, "config.json")))
    config.update(hidden_act="gelu", rope_scaling={"rope_type": "dynamic", "factor": 2.0}, head_dim=0)
    config.pop("rope_parameters", None)
    c.write("in/config.json", json.dumps(config))
    c.run("import", "in", "--out", "out", code=2).says(
        "key 'head_dim' should be at least 1, not 0", "hidden_act 'gelu' is not supported\n      = supported: 'silu'\n",
        "rope_scaling.rope_type 'dynamic' is not supported\n      = supported: 'default', 'llama3', 'linear', 'yarn'\n")
    c.write("in/config.json", json.dumps({"model_type": "bert"}))
    c.run("import", "in", "--out", "out", code=2).says("model_type 'bert' is not supported\n", "'llama', 'mistral'")

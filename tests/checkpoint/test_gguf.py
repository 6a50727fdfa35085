#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports to GGUF: the bytes that llama.cpp's converter makes, the tokenizer's keys, and what is refused.

usage: test_gguf.py PROGRAM PROGRAM_WITH_FAULTS    (in the source root)
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

from gguf_reader import BF16, F16, F32, Q4_K, Q5_0, Q6_K, Q8_0, Reader

ROOT = os.getcwd()
PROGRAM, FAULTY = (os.path.abspath(p) for p in sys.argv[1:3])
DATA, TOKENIZERS = os.path.join(ROOT, "tests", "checkpoint", "data"), os.path.join(ROOT, "tests", "data", "bpe")
checks = 0

RUN = """training_config: {{seed: 1, data_path: text.txt, {tokenizer}, batch_size: 2, sequence_length: 8, max_steps: 1,
  eval_every: 0, sample_tokens: 0}}
transformer_config: {{{sizes}}}
numerics: {{threads: 1}}
"""
LLAMA = ("model_type: llama, vocab_size: {}, embedding_dim: 32, intermediate_dim: 48, num_heads: 4, num_groups: 2, num_blocks: 2, "
         "max_sequence_length: 64")


def expect(holds, *words):
    global checks
    checks += 1
    if not holds:
        raise AssertionError(" ".join(map(str, words)))


def run(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done.returncode == code, words, "ends with", done.returncode, "not", code, "\n" + done.stdout)
    return done.stdout


def refused(said, *words, code=2):
    """The command fails, names why, and leaves no file."""
    found = run(*words, "--format", "gguf", "--out", "no.gguf", code=code)
    expect(said in found, words, "does not say", said, "\n" + found)
    expect(not [f for f in os.listdir() if f.startswith("no.gguf")], words, "has left a file")


def train(name, sizes, tokenizer="tokenizer_type: byte"):
    with open("run.yaml", "w") as file:
        file.write(RUN.format(sizes=sizes, tokenizer=tokenizer))
    run("--config", "run.yaml", "--out", name, "--quiet")


def bpe(name):
    return f"tokenizer_type: bpe, tokenizer_path: {TOKENIZERS}/{name}.json"


def safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    head = json.loads(data[8:8 + size])
    return {name: (entry["shape"], data[slice(*(8 + size + n for n in entry["data_offsets"]))])
            for name, entry in head.items() if name != "__metadata__"}


def test_bytes():
    """tests/checkpoint/data/gguf.sha256 has what convert_hf_to_gguf.py wrote (scripts/check_gguf --write)."""
    with open(os.path.join(DATA, "gguf.sha256")) as file:
        expected = [line.split() for line in file]
    models = sorted({name for _, name, _ in expected})
    expect(len(models) >= 10, "the table has few models")
    for name in models:
        run("import", os.path.join(DATA, name), "--out", "in_" + name, "--quiet")
    for digest, name, dtype in expected:
        run("export", "in_" + name, "--format", "gguf", "--out", name + ".gguf", "--dtype", dtype, "--quiet")
        with open(name + ".gguf", "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
        expect(found == digest, name, dtype, "has not the bytes of llama.cpp's converter")


def test_values():
    """Tensors against those of the export to Hugging Face, and the keys of a model."""
    train("plain", LLAMA.format(256) + ", theta: 20000, norm_eps: 1.0e-6")
    run("export", "plain", "--out", "plain_hf", "--quiet")
    theirs = safetensors("plain_hf/model.safetensors")
    said = run("export", "plain", "--format", "gguf", "--out", "my-plain_v2.gguf")
    expect("a GGUF file of 'plain'" in said, said)
    ours = Reader("my-plain_v2.gguf")
    sizes = {"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 48,
             "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 8, "attention.value_length": 8,
             "vocab_size": 256, "rope.dimension_count": 8}
    for key, value in sizes.items():
        expect(ours.keys["llama." + key] == value and ours.kinds["llama." + key] == 4, key)
    expect(ours.keys["llama.rope.freq_base"] == 20000 and ours.kinds["llama.rope.freq_base"] == 6)
    expect(ours.keys["llama.attention.layer_norm_rms_epsilon"] == struct.unpack("<f", struct.pack("<f", 1e-6))[0])
    expect(ours.keys["general.name"] == "My Plain_V2" and ours.keys["general.architecture"] == "llama")
    expect(ours.keys["general.file_type"] == 0 and ours.keys["tokenizer.ggml.model"] == "none")
    expect(len(ours.tensors) == len(theirs) == 21)
    same = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    blocks = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for block in range(2):
        same.update({f"model.layers.{block}.{a}": f"blk.{block}.{b}" for a, b in blocks.items()})
    for a, b in same.items():
        shape, data = theirs[a + ".weight"]
        expect(ours.tensors[b + ".weight"] == (F32, shape, data), b)
    for part, heads in (("q", 4), ("k", 2)):
        shape, data = theirs[f"model.layers.1.self_attn.{part}_proj.weight"]
        rows = [data[i * 128:i * 128 + 128] for i in range(shape[0])]
        moved = [rows[h * 8 + half * 4 + i] for h in range(heads) for i in range(4) for half in range(2)]
        expect(ours.tensors[f"blk.1.attn_{part}.weight"] == (F32, shape, b"".join(moved)), part)
    dtypes(ours)


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def q8_0(x):
    """A block by its definition, in f32 arithmetic."""
    scale = single(max(map(abs, x)) / 127)
    inverse = single(1 / scale) if scale else 0.0
    rounded = [int(abs(single(v * inverse)) + 0.5) * (1 if v > 0 else -1) for v in x]
    return struct.pack("<e32b", scale, *rounded)


def dtypes(f32):
    for dtype, kind in (("f16", F16), ("bf16", BF16), ("q8_0", Q8_0)):
        run("export", "plain", "--format", "gguf", "--out", "typed.gguf", "--dtype", dtype, "--quiet")
        typed = Reader("typed.gguf")
        for name, (_, shape, data) in f32.tensors.items():
            values = struct.unpack(f"<{len(data) // 4}f", data)
            wanted = F32 if name.endswith("_norm.weight") else F16 if shape[-1] % 32 and kind == Q8_0 else kind
            if wanted == F16:
                data = struct.pack(f"<{len(values)}e", *values)
            elif wanted == BF16:
                bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
                data = struct.pack(f"<{len(bits)}H", *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))
            elif wanted == Q8_0:
                data = b"".join(q8_0(values[i:i + 32]) for i in range(0, len(values), 32))
            expect(typed.tensors[name] == (wanted, shape, data), dtype, name)


def test_mixture():
    """Which tensors are what in q4_k_m: the facts are those of llama-quantize for a model of these sizes."""
    train("mixed", "model_type: llama, vocab_size: 256, embedding_dim: 256, intermediate_dim: 64, num_heads: 4, head_dim: 8, "
          "num_groups: 2, num_blocks: 9, max_sequence_length: 64")
    run("export", "mixed", "--format", "gguf", "--out", "mixed.gguf", "--dtype", "q4_k_m", "--quiet")
    mixed = Reader("mixed.gguf")
    expect(mixed.keys["general.file_type"] == 15)
    expect(mixed.tensors["output.weight"][0] == Q6_K and mixed.tensors["token_embd.weight"][0] == Q4_K)
    for block in range(9):
        more = block in (0, 3, 6, 7, 8)
        kinds = {"attn_q": Q4_K, "attn_k": Q4_K, "attn_v": Q6_K if more else Q4_K, "attn_output": Q5_0, "ffn_gate": Q4_K,
                 "ffn_up": Q4_K, "ffn_down": Q8_0 if more else Q5_0, "attn_norm": F32, "ffn_norm": F32}
        for name, kind in kinds.items():
            expect(mixed.tensors[f"blk.{block}.{name}.weight"][0] == kind, block, name)


def test_adapters():
    """Adapters are merged into the tensors, as in an export to Hugging Face."""
    train("base", LLAMA.format(256))
    with open("run.yaml") as file:
        recipe = file.read().replace("max_steps: 1", "max_steps: 2, model_path: base") + "lora_config: {rank: 4}\n"
    with open("lora.yaml", "w") as file:
        file.write(recipe)
    run("--config", "lora.yaml", "--out", "lora", "--quiet")
    refused("has adapters, which a GGUF file has merged: --merge does that", "export", "lora")
    run("export", "lora", "--merge", "--out", "lora_hf", "--quiet")
    run("export", "lora", "--out", "lora_peft", "--quiet")
    run("export", "lora", "--merge", "--format", "gguf", "--out", "one/merged.gguf", "--quiet", code=2)
    os.mkdir("one"), os.mkdir("two")
    run("export", "lora", "--merge", "--format", "gguf", "--out", "one/merged.gguf", "--quiet")
    run("export", "base", "--adapter", "lora_peft", "--format", "gguf", "--out", "two/merged.gguf", "--quiet")
    theirs, base = (safetensors(f"{name}/model.safetensors") for name in ("lora_hf", hf_of("base")))
    ours = Reader("one/merged.gguf").tensors
    for hf, name in (("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output")):
        shape, data = theirs[f"model.layers.1.{hf}.weight"]
        expect(ours[f"blk.1.{name}.weight"] == (F32, shape, data), name)
    changed = [name for name in theirs if theirs[name] != base[name]]
    expect(changed, "the adapters change nothing")
    with open("one/merged.gguf", "rb") as one, open("two/merged.gguf", "rb") as two:
        expect(one.read() == two.read(), "--merge and --adapter differ")


def hf_of(checkpoint):
    run("export", checkpoint, "--out", checkpoint + "_hf", "--quiet")
    return checkpoint + "_hf"


def with_file(folder, name, value):
    """The checkpoint of a run as a Hugging Face folder with another side file, and back."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(value, file) if name.endswith(".json") else file.write(value)


def test_tokenizers():
    for name, pre in (("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("digits", "smollm")):
        with open(os.path.join(TOKENIZERS, name + ".json")) as file:
            tokenizer = json.load(file)
        tokens = {**tokenizer["model"]["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
        size = max(tokens.values()) + 3
        train("t_" + name, LLAMA.format(size), bpe(name))
        run("export", "t_" + name, "--out", "hf_" + name, "--quiet")
        end = tokenizer["added_tokens"][0]["content"]
        with_file("hf_" + name, "tokenizer_config.json", {"eos_token": end, "tokenizer_class": "PreTrainedTokenizerFast"})
        with_file("hf_" + name, "chat_template.jinja", "{{ messages[0].content }}")
        with_file("hf_" + name, "generation_config.json", {"bos_token_id": 5, "temperature": 0.5, "top_k": 7})
        run("import", "hf_" + name, "--out", "in_" + name, "--quiet")
        run("export", "in_" + name, "--format", "gguf", "--out", "t.gguf", "--quiet")
        keys = Reader("t.gguf").keys
        listed = keys["tokenizer.ggml.tokens"]
        expect(keys["tokenizer.ggml.model"] == "gpt2" and keys["tokenizer.ggml.pre"] == pre, name, keys["tokenizer.ggml.pre"])
        expect(len(listed) == size and all(listed[i] == t for t, i in tokens.items()), name, "has other tokens")
        expect(listed[-1] == f"[PAD{size - 1}]" and keys["tokenizer.ggml.token_type"][-1] == 5)
        kinds = {t["id"]: 3 if t["special"] or t["content"].startswith("<|") else 4 for t in tokenizer["added_tokens"]}
        expect(all(keys["tokenizer.ggml.token_type"][i] == kinds.get(i, 1) for i in tokens.values()), name, "has other types")
        merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
        expect(keys["tokenizer.ggml.merges"] == merges)
        processors = (tokenizer["post_processor"] or {}).get("processors", [])
        template = {k: v for p in processors for k, v in p.get("special_tokens", {}).items()}
        begin = next((t["ids"][0] for t in template.values()), 5)
        expect(keys["tokenizer.ggml.eos_token_id"] == tokens[end] and keys["tokenizer.ggml.bos_token_id"] == begin, name)
        expect(keys["tokenizer.ggml.add_bos_token"] == bool(template) and not keys["tokenizer.ggml.add_eos_token"], name)
        expect(keys["tokenizer.chat_template"] == "{{ messages[0].content }}")
        expect(keys["general.sampling.temp"] == 0.5 and keys["general.sampling.top_k"] == 7)
        expect("tokenizer.ggml.add_bos_token" in keys and "tokenizer.ggml.add_eos_token" in keys)
    for name in ("flags", "qwen"):  # they normalize texts, which llama.cpp does not
        train("t_" + name, LLAMA.format(2500), bpe(name))
        refused("has no name for this pre-tokenizer, whose hash is ", "export", "t_" + name)


def test_yarn():
    """llama.cpp rounds the bounds of YaRN's ramp, with floor and ceil; a model may have them as they are."""
    sizes = ("vocab_size: 256, embedding_dim: 32, intermediate_dim: 48, num_heads: 4, num_blocks: 2, num_experts: 4, "
             "num_experts_per_token: 2, max_sequence_length: 64, rope_scaling: {{yarn_factor: {}, original_context_length: 16, truncate: {}}}")
    for model, own in (("gpt_oss", "num_groups: 2"), ("deepseek_v2", "q_lora_rank: 16"), ("deepseek_v3", "q_lora_rank: 16")):
        for factor, truncate, warns in ((4, "false", True), (4, "true", False), (0, "false", False)):
            name = f"{model}_{factor}_{truncate}"
            train(name, f"model_type: {model}, {own}, {sizes.format(factor, truncate)}")
            said = run("export", name, "--format", "gguf", "--out", "w.gguf")
            expect(("llama.cpp rounds between which features YaRN passes" in said) == warns, model, factor, truncate, said)


def test_refusals():
    said = run("export", "plain", "--format", "gguff", "--out", "no.gguf", code=2)
    expect("--format: there is nothing called 'gguff'" in said and "did you mean 'gguf'" in said, said)
    refused("'q4' is no dtype", "export", "plain", "--dtype", "q4")
    run("export", "plain", "--format", "hf", "--dtype", "q8_0", "--out", "x", code=2)
    run("train", "--config", "run.yaml", "--format", "gguf", code=2)
    run("export", "plain", "--format", "gguf", code=2)
    run("import", os.path.join(DATA, "hf_qwen3_moe"), "--out", "moe", "--quiet")
    refused("llama.cpp's qwen3moe has experts in every block", "export", "moe")
    run("import", os.path.join(DATA, "hf_mistral"), "--out", "windowed", "--quiet")
    expect("has no sliding window" in run("export", "windowed", "--format", "gguf", "--out", "w.gguf"))
    test_yarn()
    with open("other.gguf", "w") as file:
        file.write("another file")
    expect("is no GGUF file" in run("export", "plain", "--format", "gguf", "--out", "other.gguf", code=2))
    expect(open("other.gguf").read() == "another file")
    run("export", "plain", "--format", "gguf", "--out", "w.gguf", "--quiet")  # a GGUF file is replaced
    expect(Reader("w.gguf").keys["general.name"] == "W")


def test_disk():
    """Every file operation fails once: no file is left, whether it is a part or the old one."""
    for operation in range(1, 100):
        done = subprocess.run([FAULTY, "export", "plain", "--format", "gguf", "--out", "no.gguf"], stderr=subprocess.PIPE,
                              text=True, env={**os.environ, "TESSERA_FAULT": f"ENOSPC@{operation}"}, stdout=subprocess.DEVNULL)
        if done.returncode == 0:
            break
        expect(done.returncode == 1 and "no.gguf" in done.stderr, operation, done.stderr)
        expect(not [f for f in os.listdir() if f.startswith("no.gguf")], operation, "has left a file")
    expect(operation > 20 and Reader("no.gguf").keys["general.name"] == "No", operation)


def main():
    os.environ.pop("TT_MESH_GRAPH_DESC_PATH", None)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("text.txt", "w") as file:
            file.write("".join(f"word {i * 7919 % 1000} of a text. " for i in range(300)))
        test_bytes()
        test_values()
        test_mixture()
        test_adapters()
        test_tokenizers()
        test_refusals()
        test_disk()
        os.chdir(ROOT)
    print(f"{checks} checks")
    sys.exit(checks < 200)


if __name__ == "__main__":
    main()

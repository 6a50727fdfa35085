# SPDX-License-Identifier: Apache-2.0
"""Models that train in milliseconds, and readers of what commands print and write."""
import json
import math
import os
import re
import struct

# Units of 8 samples and 4 heads: every mesh of these checks adds its sums in the same order.
GPT = """\
training_config:
  seed: 7
  batch_size: 8
  sequence_length: 16
  max_steps: 3
  data_path: text.txt
  tokenizer_type: char
  eval_every: 0
  sample_tokens: 0
  log_every: 1
  optimizer: {type: AdamW, lr: 0.001}
transformer_config:
  {model_type: gpt2, vocab_size: 0, num_heads: 4, embedding_dim: 32, num_blocks: 4, max_sequence_length: 16,
   dropout_prob: 0.0}
numerics: {threads: 1, units: {batch: 8, tp: 4}}
"""

# One linear layer of the parameter x, whose outputs are added: tables of data have one value a row.
LAYER = """\
training_config:
  {{seed: 1, batch_size: 4, max_steps: 1, data_path: rows.csv, validation_fraction: 0, eval_every: 0,
    checkpoint_dir: {folder}, optimizer: {{type: {rule}, lr: 1.0}}}}
inputs:
  features: {{shape: [batch, 8], dtype: f32}}
  values: {{shape: [batch, 1], dtype: f32}}
parameters:
  x: {{shape: [4, 8], init: normal(1.0)}}
  s: {{shape: [1, 4], init: ones}}
graph:
- loss: mse(linear(linear(features, x), s), values)
outputs: [loss]
"""

# Each token chooses two of eight experts. Over ep and over tp a rank has whole experts.
MOE_GRAPH = """\
name: moe
description: an embedding, a mixture of experts and a head
sizes:
  vocab_size: {default: 0, min: 0, doc: tokens}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [vocab_padded, 16], valid0: vocab_size, init: normal(0.5)}
  router: {shape: [8, 16], init: normal(0.5)}
  up: {shape: [8, 24, 16], init: normal(0.2), ep: shard(0), tp: shard(0)}
  down: {shape: [8, 16, 24], init: normal(0.2), ep: shard(0), tp: shard(0)}
graph:
- x: embedding(tokens, wte)
- scores: softmax(router(x, router))
- chosen: choose_experts(scores, k=2)
- weights: expert_weights(scores, chosen, normalize=1)
- plan: expert_plan(chosen, up)
- h: gelu(expert_linear(permute_experts(x, plan), up, plan))
- y: combine_experts(expert_linear(h, down, plan), weights, plan)
- logits: linear(add(x, y), wte)
- loss: cross_entropy(logits, targets, valid=vocab_size)
outputs: [loss, logits]
"""
MOE = """\
training_config:
  {seed: 7, batch_size: 64, sequence_length: 8, max_steps: 3, data_path: text.txt, tokenizer_type: char,
   model_config: {graph: graph.yaml}, eval_every: 0, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
numerics: {threads: 1, units: {batch: 64, sequence: 2, tp: 2, expert: 8}}
"""
GPT_OSS = """\
training_config:
  {seed: 7, batch_size: 8, sequence_length: 8, max_steps: 3, data_path: text.txt, tokenizer_type: char, eval_every: 0,
   sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config:
  {model_type: gpt_oss, embedding_dim: 16, intermediate_dim: 8, num_blocks: 2, num_heads: 4, num_groups: 2, num_experts: 8,
   num_experts_per_token: 2, sliding_window: 3, max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 8, sequence: 2, tp: 2, expert: 2}}
"""
GLM4_MOE = """\
training_config:
  {seed: 7, batch_size: 8, sequence_length: 8, max_steps: 3, data_path: text.txt, tokenizer_type: char, eval_every: 0,
   sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config:
  {model_type: glm4_moe, embedding_dim: 16, intermediate_dim: 8, dense_intermediate_dim: 32, num_blocks: 2, num_heads: 4,
   num_groups: 2, num_experts: 8, num_experts_per_token: 2, num_expert_groups: 4, num_kept_groups: 2, max_sequence_length: 8,
   balance: {bias: {rate: 0.3}}}
numerics: {threads: 1, units: {batch: 8, tp: 2, expert: 2}}
"""
# tt-train's keys: one dense block, then a mixture of experts.
DEEPSEEK = """\
training_config:
  {seed: 7, batch_size: 8, sequence_length: 8, max_steps: 3, data_path: text.txt, tokenizer_type: char, eval_every: 0,
   sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config:
  {model_type: deepseek, embedding_dim: 16, num_blocks: 2, num_heads: 4, max_sequence_length: 8, n_dense_layers: 1,
   inter_dim: 32, q_lora_rank: 0, kv_lora_rank: 12, qk_nope_head_dim: 4, qk_rope_head_dim: 4, v_head_dim: 4,
   moe_hyperparam: {moe_inter_dim: 8, n_routed_experts: 8, n_activated_experts: 2, n_expert_groups: 2}}
numerics: {threads: 1, units: {batch: 8, tp: 2, expert: 2}}
"""


def mesh(**sizes):
    return {"axes": list(sizes), "shape": list(sizes.values())}


def gpt(c, *words, code=0, env=None, **keys):
    """A command with the small GPT and some keys of it set."""
    c.write("run.yaml", GPT)
    return c.with_keys(*words, code=code, env=env, **keys)


def moe(c, *words, **keys):
    """A command with the small mixture of experts and some keys of it set."""
    c.write("run.yaml", MOE)
    c.write("graph.yaml", MOE_GRAPH)
    return c.with_keys(*words, **keys)


def weights(result):
    return result.matches(r"weights sha256 ([0-9a-f]{64})")[1]


def steps(c, name):
    """The bits of losses and gradient norms: JSON numbers are written with all their digits."""
    return [(o["loss"], o["grad_norm"]) for o in c.metrics(name) if o["event"] == "step"]


def trains_like_one_rank(c, shape, **keys):
    """Losses, gradient norms and weights of a mesh are those of one rank, bit for bit. Returns the mesh's result."""
    one = gpt(c, "--metrics", "one.jsonl")
    many = gpt(c, "--metrics", "many.jsonl", mesh=shape, **keys)
    if steps(c, "one.jsonl") != steps(c, "many.jsonl") or len(steps(c, "one.jsonl")) != 3:
        many.fail(f"losses differ from one rank's: {steps(c, 'one.jsonl')} and {steps(c, 'many.jsonl')}")
    if weights(one) != weights(many):
        many.fail("the weights differ from one rank's, " + weights(one))
    return many


def comm_trace(result):
    """A map for each line of TESSERA_COMM_TRACE=1."""
    lines = [line for line in result.err.splitlines() if line.startswith("comm ")]
    return [dict(word.split("=", 1) for word in line.split()[1:]) for line in lines]


def same_bits(results):
    hashes = [weights(r) for r in results]
    if len(set(hashes)) != 1:
        results[-1].fail(f"weights differ: {hashes}")


def actions(c, stages, rank, **keys):
    """The forward and backward passes of a step, in a stage's order."""
    trace = gpt(c, "trace", "--emit", "schedule-ir", "--rank", str(rank), mesh=mesh(pp=stages), **keys)
    return re.findall(r"[FB]\d+", trace.matches(r"^runs: (.*) update$")[1])


def has_line(result, *texts):
    """One line has all the texts, in this order; thousands may be grouped by commas."""
    for line in result.text.splitlines():
        line, at = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", line), 0
        for text in texts:
            at = line.find(text, at) + len(text) if text in line[at:] else -1
            if at < 0:
                break
        if at >= 0:
            return
    result.fail("no line has, in this order: " + "  ".join(texts))


def rank_slices(result):
    """{rank: (coordinates, [(begin, end) of each dimension])} of lines `rank 3: tp 1, dp 1 … [4:8, 0:4] …`."""
    ranks = {}
    line = r"^ *rank (\d+): (.*?)\[(\d+:\d+(?:, *\d+:\d+)*)\]"
    for rank, place, slices in re.findall(line, result.text, re.MULTILINE):
        ranges = [tuple(map(int, part.split(":"))) for part in slices.split(",")]
        ranks[int(rank)] = (dict(re.findall(r"\b(dp|tp|pp|cp|ep) (\d+)", place)), ranges)
    return ranks


def stored(c, folder, name):
    """The numbers of a parameter in the newest checkpoint of a folder, read without the program."""
    folder = os.path.join(c.folder, folder)
    folder = os.path.join(folder, max(n for n in os.listdir(folder) if n.startswith("step-")))
    with open(os.path.join(folder, "manifest.json")) as f:
        manifest = json.load(f)
    (piece,) = manifest["tensors"][name]["pieces"]
    with open(os.path.join(folder, manifest["files"][piece["file"]]["name"]), "rb") as f:
        f.seek(piece["offset"])
        return struct.unpack(f"<{piece['bytes'] // 4}f", f.read(piece["bytes"]))


def safetensors(path):
    """{name: numbers} of a safetensors file of f32."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + n for n in entry["data_offsets"])
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def layer(c, rule, folder):
    """Trains a step of one linear layer."""
    rows = [",".join(str((i * 7 + j * 5) % 11 / 4 - 1) for j in range(9)) for i in range(4)]
    c.write("rows.csv", ",".join(f"c{j}" for j in range(9)) + "\n" + "\n".join(rows) + "\n")
    c.write("layer.yaml", LAYER.format(rule=rule, folder=folder))
    return c.run("--config", "layer.yaml", "--metrics", folder + ".jsonl")


def initial(c):
    """The initial x (4, 8) of any graph with the seed 1: its random numbers depend on name and index only."""
    layer(c, "NoOp", "initial")
    x = stored(c, "initial", "x")
    return [x[i * 8:i * 8 + 8] for i in range(4)]


def printed(result, name):
    """Sum and norm of an output of a graph without a loss."""
    match = result.matches(rf"^{name} \([\d, ]+\): sum (\S+), norm (\S+)$")
    return float(match[1]), float(match[2])


def is_close(result, found, expected, relative=1e-6):
    if not all(math.isclose(a, b, rel_tol=relative, abs_tol=relative) for a, b in zip(found, expected, strict=True)):
        result.fail(f"{found} is not {expected}")

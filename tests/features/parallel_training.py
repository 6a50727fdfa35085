# SPDX-License-Identifier: Apache-2.0
"""Checks of data and tensor parallel training, with the models of `training`."""
import re

from feature import feature
from training import (FUSED_QKV, LETTERS, agrees, bigram, bits, by_hand, expect, gpt, launched, mesh, parameters,
                      same, tensors, trained, update_adam, update_sgd)

# What a step that overflows leaves: the initial weights.
SKIPPED = {"training_config__precision": "fp16", "training_config__max_steps": 1,
           "training_config__loss_scale": {"mode": "static", "init": 2 ** 30}}
LINEAR = """\
training_config: {seed: 1}
device_config: {enable_tp: true, mesh_shape: [2]}
tensors:
  x: {shape: [4, 16], dtype: f32, init: ones}
  w: {shape: [64, 16], dtype: f32, layout: {partition: [row], mesh_axes: [tp]}, init: ones}
  b: {shape: [64], dtype: f32, layout: {partition: [row], mesh_axes: [tp]}, init: ones}
graph:
- h: linear(x, w, b)
- y: all_gather(h, axis=tp, dim=1)
outputs: [y]
"""
# The output layer's logits are gathered; the gradient of that is each rank's part.
GATHERED = """\
name: gathered
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [256, 16], init: normal(0.5)}
tensors:
  head: {shape: [256, 16], dtype: f32, layout: {partition: [row], mesh_axes: [tp]}, init: normal(0.3)}
graph:
- logits: all_gather(linear(embedding(tokens, wte), head), axis=tp, dim=2)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss}
"""


@feature("Data parallel: each rank reads its slice of the batch; the union is the global batch")
def slices_of_the_batch(c):
    bigram(c)
    for ranks in (2, 4):
        dp = {"mesh": mesh(dp=ranks)}
        c.with_keys("check", **dp).says(f"batches: 4 samples over dp = {ranks}, {4 // ranks} a rank\n")
        text = c.with_keys("trace", "--emit", "schedule-ir", **dp).out
        expect(re.search(rf" embedding +\S+ \({4 // ranks}, 4, 256\) ", text), f"a rank has another slice: {text}")
        agrees(c, LETTERS, by_hand(LETTERS, 3, update_sgd(8.0)), **dp)


@feature("Initial weights are a function of seed, name and index: identical on any number of ranks")
def initial_weights(c):
    gpt(c)
    skipped = {**SKIPPED, "training_config__batch_size": 12, "numerics__units": {}}
    meshes = ({}, {"mesh": mesh(dp=3)}, {"mesh": mesh(dp=2, tp=2)}, {"mesh": mesh(tp=4)}, {"mesh": mesh(pp=4)},
              {"mesh": mesh(dp=6), "zero__stage": 3})
    same("initial weights", [bits(c, **m, **skipped)[1] for m in meshes])
    expect(bits(c, **skipped) != bits(c, training_config__seed=8, **skipped), "another seed has the same weights")
    kept = []
    for blocks in (2, 4):
        trained(c, transformer_config__num_blocks=blocks, training_config__checkpoint_dir=f"of{blocks}", **skipped)
        found = tensors(c, f"of{blocks}/step-00000001")
        kept.append({name: t[2] for name, t in found.items() if re.match(r"block\.[01]\.(attn.wq|mlp.fc)$", name)})
    expect(len(kept[0]) == 4 and kept[0] == kept[1], "the blocks of a deeper model begin with other weights")


@feature("Gradients and loss are the mean over data parallel ranks: those of one big batch")
def mean_over_ranks(c):
    gpt(c)
    same("losses, norms and weights", [bits(c), bits(c, mesh=mesh(dp=2)), bits(c, mesh=mesh(dp=4)),
                                       bits(c, mesh=mesh(dp=8), zero__stage=1)])
    # twice the same samples: a mean stays, a sum would double
    once, twice = LETTERS[:16] + LETTERS[0], LETTERS[:16] * 2 + LETTERS[0]
    bigram(c, once)
    agrees(c, once, by_hand(once, 3, update_sgd(8.0)))
    bigram(c, twice)
    agrees(c, twice, by_hand(once, 3, update_sgd(8.0)), mesh=mesh(dp=2), training_config__batch_size=8)


@feature("Optimizers AdamW and Adam as torch.optim has them, decoupled and L2 weight decay")
def adam(c):
    bigram(c)
    for kind, decay in (("AdamW", 0.01), ("AdamW", 0.3), ("Adam", 0.0), ("Adam", 0.3)):
        want = by_hand(LETTERS, 5, update_adam(0.3, decay, decoupled=kind == "AdamW"))
        optimizer = {"type": kind, "lr": 0.3, "weight_decay": decay}
        agrees(c, LETTERS, want, 2e-4, training_config__optimizer=optimizer, training_config__max_steps=5)
    printed = {kind: c.with_keys("check", "--print-config", training_config__optimizer={"type": kind})
               for kind in ("AdamW", "Adam")}
    printed["AdamW"].matches(r"^    weight_decay: 0.01  # default$")
    printed["Adam"].matches(r"^    weight_decay: 0.0  # default$")


@feature("mesh: auto detects the devices or processes and prints `Detected {n} …: {ids}`")
def auto_mesh(c):
    gpt(c)
    said = c.with_keys("check", mesh="auto")
    said.matches(r"^Detected 1 \w+: \[0\]$")
    said.says("mesh_shape: [1], 1 rank\n")
    # A shape beside it is an error, but what the command line gives wins.
    shape = {"device_config__mesh_shape": [2]}
    c.with_keys("check", mesh="auto", **shape, code=2).says("error: 'mesh' contradicts 'mesh_shape'\n")
    c.write("auto.yaml", c.read("run.yaml") + "device_config: {enable_ddp: true}\nmesh: auto\n")
    c.run("check", "--config", "auto.yaml", "--set", "device_config.mesh_shape=[2]").says("mesh_shape: [2], 2 ranks\n")
    c.write("shape.yaml", c.read("run.yaml") + "device_config: {enable_ddp: true, mesh_shape: [2]}\n")
    c.run("check", "--config", "shape.yaml", "--set", "mesh=auto").says("mesh_shape: [1], 1 rank\n")
    keys = ["--config", "run.yaml", "--set", "mesh=auto", "--set", "device_config.enable_ddp=true"]
    said = c.run("check", *keys, "--mesh", f"{c.source_root}/mesh_descriptors/t3k_1x8_mesh_graph_descriptor.textproto")
    said.matches(r"^Detected 8 \w+: \[0, 1, 2, 3, 4, 5, 6, 7\]$")
    said.says("ParallelismContext: DP axis 0 (size 8)\n")
    said = launched(c, 2, *keys)
    if said:
        said.matches(r"^Detected 2 \w+: \[0, 1\]$")
        said.says("ParallelismContext: DP axis 0 (size 2)\n")


@feature("Global batch size and batch size per rank: either is derived from the other, or both agree")
def batch_sizes(c):
    gpt(c)
    for sizes in ({"batch_size": 8}, {"batch_size": 8, "batch_size_per_rank": 2}):
        keys = {f"training_config__{key}": value for key, value in sizes.items()}
        c.with_keys("check", mesh=mesh(dp=4), **keys).says("batches: 8 samples over dp = 4, 2 a rank\n")
    c.write("run.yaml", c.read("run.yaml").replace("batch_size: 8", "batch_size_per_rank: 3"))
    c.with_keys("check", mesh=mesh(dp=4), numerics__units={}).says("batches: 12 samples over dp = 4, 3 a rank\n")
    c.with_keys("check", training_config__batch_size=8, mesh=mesh(dp=4), code=2).says(
        "error: batch_size_per_rank 3 over dp = 4 makes 12, but batch_size is 8\n",
        "= batch_size is the global batch; give one of the two, or values that agree\n")


@feature("Log lines `Step {n}: Global Loss = {x:.4f}` of data parallel runs, from rank 0 only")
def global_loss(c):
    gpt(c)
    losses = [f"{s['loss']:.4f}" for s in trained(c, mesh=mesh(dp=2))[0]]
    want = [(str(n), loss) for n, loss in enumerate(losses, 1)]
    pattern = re.compile(r"^Step (\d+): Global Loss = (\d+\.\d{4})\b", re.M)
    expect(pattern.findall(c.with_keys("train", mesh=mesh(dp=2)).out) == want, f"not the lines {want}")
    c.with_keys("train", mesh=mesh(tp=2)).never_says("Global Loss")
    said = launched(c, 2, "--config", "run.yaml", "--set", "mesh={axes: [dp], shape: [2]}")
    expect(said is None or pattern.findall(said.out) == want, f"not once the lines {want}: {said and said.out}")


@feature("Gradient accumulation: A × b samples are a batch of A·b, with one reduction a step")
def accumulation(c):
    gpt(c)
    same("losses, norms and weights", [
        bits(c, training_config__batch_size=8 // steps, training_config__gradient_accumulation_steps=steps, **dp)
        for steps, dp in ((1, {}), (4, {}), (8, {}), (1, {"mesh": mesh(dp=2)}), (4, {"mesh": mesh(dp=2)}))])
    lines = [c.with_keys("check", training_config__batch_size=8 // steps, mesh=mesh(dp=2),
                         training_config__gradient_accumulation_steps=steps).matches(
        r"^  all_reduce +over dp +(\d+) times +([\d,]+) bytes") for steps in (1, 4)]
    expect(lines[0].groups() == lines[1].groups(), f"reductions of 1 and 4 microbatches: {lines}")


@feature("ZeRO-2: each data parallel rank has 1/dp of the optimizer state; the same weights")
def zero_2(c):
    gpt(c)
    units = {"numerics__units": {"batch": 8}}  # of tp: none, which would pad the vocabulary
    count = parameters(c.with_keys("check", **units))
    for stage, part in ((0, 1), (1, 4), (2, 4), (3, 4)):
        said = c.with_keys("check", mesh=mesh(dp=4), zero__stage=stage, **units)
        state = int(said.matches(r"^  optimizer state +([\d,]+) ")[1].replace(",", ""))
        # two moments of four bytes; rows that dp does not divide are padded
        expect(0 <= state * part / (8 * count) - 1 < (0.03 if part > 1 else 1e-9),
               f"ZeRO {stage}: {state} bytes of state for {count} parameters")
    same("losses, norms and weights", [bits(c), bits(c, mesh=mesh(dp=4), zero__stage=2)])


def fnv(name):
    """FNV-1a with 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2 ** 64
    return value


@feature("ZeRO partition flat, or owner_hash: a parameter's owner is FNV-1a(name) mod dp; equal bits")
def owners(c):
    gpt(c)
    runs = [bits(c)] + [bits(c, mesh=mesh(dp=4), zero={"stage": 2, "partition": partition},
                             training_config__checkpoint_dir=partition) for partition in ("flat", "owner_hash")]
    same("losses, norms and weights", runs)
    files = set()
    for name, (file, _, _) in tensors(c, "owner_hash/step-00000003").items():
        moment = re.fullmatch(r"(.*)\.[mv](@.*)?", name)
        if moment:
            expect(not moment[2], f"the state of one owner is in pieces: {name}")
            owner = f"rank-{fnv(moment[1]) % 4:05}.safetensors"
            expect(file == owner, f"{name} is in {file}, not in {owner}")
            files.add(file)
    expect(len(files) == 4, f"the owners are {files}")
    c.with_keys("check", zero__partition="owner", code=2).matches(r"error: unknown partition.*\n(.*\n)*.*owner_hash")


@feature("Tensor parallel linear: column-sharded weight, all-gather over tp, the bias is added once")
def parallel_linear(c):
    c.write("linear.yaml", LINEAR)
    for ranks in (2, 4):
        shape = ["--config", "linear.yaml", "--set", f"device_config.mesh_shape=[{ranks}]"]
        # 16 products of ones and a bias of one
        c.run("train", *shape).says(f"y (4, 64): sum {4 * 64 * 17}, norm {16 * 17}\n")
        said = c.run("trace", *shape, "--rank", "1")
        said.says("param w f32 (64, 16) tp:shard(0)\n", "param b f32 (64) tp:shard(0)\n",
                  "y f32 (4, 64) = all_gather(h, axis: tp, dim: 1)\n")
        said.matches(rf"^ +\d+  linear(\+add)? +h\S* \(4, {64 // ranks}\) ")
        said.matches(rf"^ +\d+  forward +all_gather .* tp +\w+ +- +{4 * 64 * 4 // ranks:,} +1  y, with ")


def fused(c):
    bigram(c)
    c.write("bigram.yaml", FUSED_QKV)


@feature("Ops matmul, split, reshape, transpose, flash_attention, all_gather, with checked gradients")
def attention_ops(c):
    fused(c)
    said = c.with_keys("check", "--prove")
    said.matches(r"^interpreter, step 1: loss within \S+ \(2e-06 is allowed\), gradients within \S+ ")
    said = c.with_keys("trace", "--emit", "graph-ir")
    said.matches(r"^  by_head f32 \(4, 4, 4, 12\) .*= reshape\(")
    said.matches(r"^  rows f32 \(16, 16\) .*= matmul\(\S+, w_out\)$")
    c.write("bigram.yaml", FUSED_QKV.replace(", causal=True", ", causal=False"))
    trained_without = bits(c)
    c.write("bigram.yaml", FUSED_QKV)
    expect(bits(c) != trained_without, "causal=True changes nothing")
    c.write("bigram.yaml", GATHERED)
    tp = {"numerics__units": {"batch": 4, "tp": 4}}
    c.with_keys("check", "--prove", mesh=mesh(tp=4), **tp).matches(r"^interpreter, step 1: .* gradients within ")
    same("losses, norms and weights", [bits(c, **tp)] + [bits(c, mesh=mesh(tp=n), **tp) for n in (2, 4)])


@feature("Tensor parallel attention: heads over tp, row-parallel output with all-reduce, equal bits")
def parallel_attention(c):
    gpt(c)
    same("losses, norms and weights", [bits(c), bits(c, mesh=mesh(tp=2)), bits(c, mesh=mesh(tp=4)),
                                       bits(c, mesh=mesh(dp=4, tp=2))])  # 8 ranks share 4 heads: over tp alone
    said = c.with_keys("trace", "--rank", "1", mesh=mesh(tp=2))
    said.says("  param block.0.attn.wq f32 (32, 32) tp:shard(0)\n",
              "  param block.0.attn.wo f32 (32, 32) tp:shard(1)\n")
    said.matches(r"^ +\d+  attention +block\.0\.a \(8, 16, 16\) ")
    said.matches(r"^ +\d+  forward +all_reduce .* tp +\w+ +tree +16,384 +1  block\.0\.o\S*, with 0$")
    c.with_keys("check", mesh=mesh(tp=8), numerics__units={}, code=2).says(
        "error: num_heads 4 does not divide over tp: its units are 8\n")
    fused(c)
    units = {"numerics__units": {"batch": 4, "tp": 4}}
    same("losses, norms and weights of a fused q, k and v", [
        bits(c, **units), bits(c, mesh=mesh(tp=2), **units), bits(c, mesh=mesh(dp=2, tp=4), **units)])

# SPDX-License-Identifier: Apache-2.0
"""Gradients, and what each parallel mode does: data, ZeRO, tensor, pipeline and expert parallelism."""
import glob
import json
import math
import os
import re
import struct

from collectives import comm_trace, example_with, mesh, small, weights
from feature import Missing, feature
from small_models import DEEPSEEK, GLM4_MOE, GPT_OSS, MOE_GRAPH, moe, same_bits

LINEAR = """\
training_config:
  seed: 3
  data_path: rows.csv
  batch_size: 8
  max_steps: 1
  num_epochs: 100
  validation_fraction: 0
  eval_every: 0
  log_every: 1
  optimizer: {type: SGD, lr: 1.0}
scheduler_config: {type: constant}
checkpoint: {dir: kept, every: 1}
mlp_config: {model_type: own, graph: graph.yaml, input_features: 1, output_features: 1}
numerics: {units: {batch: 8}}
"""

# One feature, one weight that begins at zero: its first gradient is a sum with one term a sample.
ONE_WEIGHT = """\
name: own
sizes: {input_features: ~, output_features: ~}
inputs:
  features: {shape: [batch, input_features], dtype: f32}
  values: {shape: [batch, output_features], dtype: f32}
parameters:
  weight: {shape: [output_features, input_features], init: zeros}
graph:
- prediction: linear(features, weight)
- loss: mse(prediction, values)
outputs: [loss]
"""

GATED = """\
name: own
sizes: {input_features: ~, output_features: ~}
inputs:
  features: {shape: [batch, input_features], dtype: f32}
  values: {shape: [batch, output_features], dtype: f32}
parameters:
  w1: {shape: [3, input_features], init: normal(0.5)}
  w2: {shape: [3, input_features], init: normal(0.5)}
  w3: {shape: [output_features, 3], init: normal(0.5)}
graph:
- h: mul(tanh(linear(features, w1)), silu(linear(features, w2)))
- prediction: sub(linear(h, w3), scale(values, factor=0.5))
- loss: mse(prediction, values)
GRADIENTS
outputs: [loss]
"""


def tensors(folder):
    """{name: numbers} of all f32 tensors in a checkpoint's safetensors files."""
    found = {}
    for path in glob.glob(os.path.join(folder, "rank-*.safetensors")):
        with open(path, "rb") as f:
            data = f.read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__" and entry["dtype"] == "F32":
                begin, end = (8 + size + offset for offset in entry["data_offsets"])
                found[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def binary_tree(terms):
    """The sum in f32 of neighbours, of neighbours' sums, and so on."""
    while len(terms) > 1:
        terms = [f32(a + b) for a, b in zip(terms[::2], terms[1::2])]
    return terms[0]


def left_to_right(terms):
    total = terms[0]
    for term in terms[1:]:
        total = f32(total + term)
    return total


def gated_loss(w, rows):
    """The loss of GATED in double precision; w is {name: numbers}."""
    total = 0
    for x0, x1, y in rows:
        prediction = -0.5 * y
        for i in range(3):
            a = w["w1"][2 * i] * x0 + w["w1"][2 * i + 1] * x1
            b = w["w2"][2 * i] * x0 + w["w2"][2 * i + 1] * x1
            prediction += w["w3"][i] * math.tanh(a) * b / (1 + math.exp(-b))
        total += (prediction - y) ** 2
    return total / len(rows)


@feature("autodiff(loss), or backward(loss): the gradients are those of finite differences")
def autodiff(c):
    rows = [(0.1 * i - 0.3, 0.4 - 0.07 * i * i, 0.05 * i) for i in range(8)]
    c.write("rows.csv", "a,b,y\n" + "".join(f"{a!r},{b!r},{y!r}\n" for a, b, y in rows))
    c.write("run.yaml", LINEAR.replace("input_features: 1", "input_features: 2").replace("lr: 1.0", "lr: 0.25"))
    hashes = set()
    for name in ("plain", "autodiff", "backward"):
        c.write("graph.yaml", GATED.replace("GRADIENTS", "" if name == "plain" else f"- grads: {name}(loss)"))
        hashes.add(weights(c.with_keys(checkpoint__dir=name, training_config__max_steps=2)))
        before, after = (tensors(os.path.join(c.folder, name, f"step-0000000{step}")) for step in (1, 2))
        for parameter in ("w1", "w2", "w3"):
            for i, value in enumerate(before[parameter]):
                moved = {k: list(v) for k, v in before.items()}
                moved[parameter][i] = value + 1e-4
                up = gated_loss(moved, rows)
                moved[parameter][i] = value - 1e-4
                expected = (up - gated_loss(moved, rows)) / 2e-4
                gradient = (value - after[parameter][i]) / 0.25
                if abs(gradient - expected) > 1e-5 + 1e-4 * abs(expected):
                    raise Missing(f"{name}, {parameter}[{i}]: {gradient}, by differences {expected}")
    if len(hashes) != 1:
        raise Missing(f"the forms give different weights: {hashes}")


@feature("numerics.reduce_tree binary, flat or ring: the sum has the bits of that order on the host")
def reduce_tree(c):
    rows = [(1.1 * 10 ** (k % 4) * (-1) ** k + 0.0137 * k, 2.0 ** k) for k in range(8)]
    c.write("rows.csv", "x,y\n" + "".join(f"{x:.6g},{y:g}\n" for x, y in rows))
    c.write("run.yaml", LINEAR)
    c.write("graph.yaml", ONE_WEIGHT)
    # With steps of one sample and no learning rate to speak of, each loss is a y², which tells the order of the rows.
    c.with_keys("--metrics", "order.jsonl", training_config__batch_size=1, training_config__max_steps=8,
                training_config__optimizer__lr=1e-30, numerics__units__batch=1, checkpoint="{dir: order, every: 0}")
    order = [round(math.log2(m["loss"]) / 2) for m in c.metrics("order.jsonl") if m["event"] == "step"]
    if sorted(order) != list(range(8)):
        raise Missing(f"the order of the rows: {order}")
    # d mse / d weight of one row is -2 y x / 8; y is a power of two, so that only the sums round.
    terms = [f32(float(f"{rows[k][0]:.6g}")) * -0.25 * rows[k][1] for k in order]
    sums = {"binary": binary_tree(terms), "flat": left_to_right(terms), "ring": left_to_right(terms)}
    if sums["binary"] == sums["flat"]:
        raise Missing("the orders do not differ: the test has no effect")
    for tree, expected in sums.items():
        for dp, microbatches in ((1, 1), (2, 2), (8, 1)):
            folder = f"{tree}{dp}"
            c.with_keys(numerics__reduce_tree=tree, mesh=mesh(dp=dp), checkpoint__dir=folder,
                        training_config__batch_size=8 // microbatches,
                        training_config__gradient_accumulation_steps=microbatches)
            found = -tensors(os.path.join(c.folder, folder, "step-00000001"))["weight"][0]
            if found != expected:
                raise Missing(f"reduce_tree {tree}, dp {dp}: {found!r}, on the host {expected!r}")


@feature("numerics.tp_reductions half: ranks of tp send half of the bytes, with the bits of one rank")
def tp_reductions(c):
    bits, sent = {}, {}
    for how in ("f32", "half"):
        keys = {"training_config__precision": "bf16", "numerics__units__tp": 4, "numerics__tp_reductions": how}
        bits[how] = {weights(small(c).with_keys(mesh=mesh(tp=tp), **keys)) for tp in (1, 2, 4)}
        found = small(c).with_keys("check", mesh=mesh(tp=4), **keys).matches(
            r"^  all_reduce     over tp +\d+ times +([\d,]+) bytes")
        sent[how] = int(found[1].replace(",", ""))
    if any(len(found) != 1 for found in bits.values()) or bits["f32"] == bits["half"]:
        raise Missing(f"weights: {bits}")
    if not 0.5 <= sent["half"] / sent["f32"] < 0.6:  # the statistics of the softmax and the norm stay in f32
        raise Missing(f"bytes sent: {sent}")


@feature("ZeRO: reduce-scatter and a sharded optimizer have the bits of all-reduce DP")
def zero_trajectory(c):
    results = {stage: small(c).with_keys(mesh=mesh(dp=4), zero__stage=stage, env={"TESSERA_COMM_TRACE": "1"})
               for stage in range(4)}
    steps = {tuple(re.findall(r"Loss = (\S+),", r.out)) + (weights(r),) for r in results.values()}
    if len(steps) != 1:
        raise Missing(f"losses and weights: {steps}")
    for stage, result in results.items():
        ops = {words["op"] for words in comm_trace(result)[0]}
        if ({"reduce_scatter", "all_gather"} <= ops) != (stage > 0):
            raise Missing(f"stage {stage} has {ops}")


@feature("Column-parallel matmul: a weight (H, 4H / tp) a rank, all-gather of the output")
def column_parallel(c):
    path = os.path.join(c.source_root, "configs/examples/tp_column_gather.yaml")
    sharded = c.run("--config", path).matches(r"^y \(4, 64\): .*")[0]
    c.run("trace", "--config", path, "--emit", "schedule-ir").says(
        " h (4, 32) @work", " all_gather       over tp  y (4, 64) @work")
    alone = example_with(c, "tp_column_gather.yaml", "all_gather(h, axis=tp, dim=1)", "scale(h, factor=1)")
    c.run("--config", alone, "--set", "device_config={mesh_shape: [1]}").says(sharded)
    # Rows of the stored weight (out, in) are the columns of (H, 4H): 64 × 16 numbers, a half for each rank.
    placed = c.run("trace", "--config", path, "--emit", "graph-ir")
    placed.says("h f32 (4, 64) tp:shard(1) = linear(x, w)").matches(r"\bw f32 \(64, 16\) tp:shard\(0\)")


@feature("Column-parallel matmul with a fused epilogue before the all-gather: same result")
def fused_gather(c):
    new = "  b: {shape: [64], dtype: f32, layout: {partition: [row], mesh_axes: [tp]}, init: normal(1.0)}\n\ngraph:\n" \
          "- h: gelu(linear(x, w, b))\n"
    path = example_with(c, "tp_column_gather.yaml", "\ngraph:\n- h: linear(x, w)\n", new)
    sharded = c.run("--config", path).matches(r"^y \(4, 64\): .*")[0]
    alone = example_with(c, "tp_column_gather.yaml", "\ngraph:\n- h: linear(x, w)\n- y: all_gather(h, axis=tp, dim=1)",
                         new + "- y: scale(h, factor=1)")
    c.run("--config", alone, "--set", "device_config={mesh_shape: [1]}").says(sharded)
    path = example_with(c, "tp_column_gather.yaml", "\ngraph:\n- h: linear(x, w)\n", new)
    for device in ("cpu", "cuda"):
        program = c.run("trace", "--config", path, "--emit", "schedule-ir", "--set", f"device_config.device={device}",
                        "--set", "training_config.precision=f32")
        # A CPU may keep the activation apart, where one pass more does not cost.
        gelu = r"\+gelu +.*\n" if device == "cuda" else r"(\+gelu +.*\n| +.*\n +\d+  gelu +.*\n)"
        program.matches(r"^ +0  linear\+add" + gelu + r" +\d+  all_gather +over tp  y ")


@feature("Fused epilogues: matmul, bias and activation are one kernel, equal to separate ops")
def fused_epilogues(c):
    keys = {"transformer_config__dropout_prob": 0.0, "training_config__precision": "f32"}
    # A CPU may keep the activation apart, where one pass more does not cost.
    for device, op in (("cpu", r"linear\+add(\+gelu)?"), ("cuda", r"linear\+add\+gelu")):
        program = small(c).with_keys("trace", "--emit", "schedule-ir", device_config__device=device, **keys)
        program.matches(rf"^ +\d+  {op} +block\.0\.f")
    tiles = c.with_keys("trace", "--emit", "tile-ir", device_config__device="cuda", **keys)
    tiles.matches(r"^ +\d+ .*linear\+add\+gelu\b.*\b\d+\b.*\b\d+\b.*\b\d+\b")
    # The interpreter computes the graph op by op, in double precision.
    c.with_keys("check", "--prove", **keys).matches(
        r"^interpreter, step 1: loss within \S+ \(2e-06 is allowed\), gradients within \S+ \(1e-05 is allowed\)")


@feature("In half precision a linear layer and its bias are rounded once, fused or not, on every mesh")
def half_bias(c):
    keys = {"transformer_config__dropout_prob": 0.0, "training_config__precision": "bf16", "training_config__max_steps": 2,
            "numerics__units__tp": 2}
    for device, op in (("cpu", r"linear\+add"), ("cuda", r"linear\+add\+gelu")):
        program = small(c).with_keys("trace", "--emit", "schedule-ir", device_config__device=device, **keys)
        program.matches(rf"^ +\d+  {op} +block\.0\.f")
    # tp splits the sum of the layer behind it, whose bias is then a task of its own.
    apart = c.with_keys("trace", "--emit", "schedule-ir", mesh=mesh(tp=2), **keys)
    apart.matches(r"^ +\d+  linear\+add +block\.0\.f(.*\n)*? +\d+  add ")
    assert len({weights(c.with_keys(**keys, **on)) for on in ({}, {"mesh": mesh(tp=2)}, {"mesh": mesh(dp=2)})}) == 1


@feature("Classifier and cross-entropy over tiles of rows: no logits in memory, the bits of separate tasks")
def classifier_tiles(c):
    keys = {"transformer_config__vocab_size": 22000, "transformer_config__num_blocks": 1,
            "transformer_config__max_sequence_length": 128, "training_config__sequence_length": 128,
            "training_config__max_steps": 2}
    found = {}
    for name, ranks, is_fused in (("one", {}, True), ("dp", {"dp": 2}, True), ("tp", {"tp": 2}, False)):
        on = {**keys, "mesh": mesh(**ranks)} if ranks else keys
        program = small(c).with_keys("check", "--dump", "program,memory", **on)
        logits, classifier = r"^ +\d+  linear .*\blogits \(", r"^ +\d+  linear_cross_entropy\b"
        program.matches(classifier if is_fused else logits)
        program.never_says(" logits (" if is_fused else "linear_cross_entropy")
        found[name] = weights(c.with_keys(**on))
    assert len(set(found.values())) == 1, found
    # On a GPU a tile has 2,048 rows and more, and its logits in f32 and their gradient in bf16 are scratch.
    for ranks, is_fused in (({}, True), ({"dp": 2}, False), ({"tp": 2}, False)):
        on = {**keys, "training_config__batch_size": 32, "training_config__gradient_accumulation_steps": 1,
              "training_config__precision": "bf16", "device_config__device": "cuda"}
        program = small(c).with_keys("check", "--dump", "program,memory", **on, **({"mesh": mesh(**ranks)} if ranks else {}))
        program.matches(classifier if is_fused else logits)
        program.never_says(" logits (" if is_fused else "linear_cross_entropy")
    # Computed again in the backward pass, logits are of a tile where tp splits the vocabulary, too.
    again = c.with_keys("check", "--dump", "program", **keys, mesh=mesh(tp=2), schedule__recompute="full")
    again.matches(classifier + r"(.*\n)*" + classifier.lstrip("^"))
    again.never_says(" logits (")
    assert found["one"] == weights(c.with_keys(**keys, mesh=mesh(tp=2), schedule__recompute="full"))
    # An update of the classifier between its gradients reads the step's scalars, and is not in the way.
    for clips in (True, False):
        half = small(c).with_keys("check", "--dump", "program", **keys, training_config__precision="bf16",
                                  transformer_config__weight_tying="disabled",
                                  training_config__use_clip_grad_norm=clips)
        half.matches(classifier)


@feature("A table that is embedding and classifier has one gradient in memory, for few tokens a late one; same bits over tp")
def tied_table(c):
    keys = {"transformer_config__weight_tying": "enabled", "transformer_config__vocab_size": 1000, "training_config__batch_size": 1,
            "training_config__gradient_accumulation_steps": 1, "numerics__units": "{batch: 1, tp: 2}"}
    early, late = (r"linear_dw +d\.wte@logits (.*\n)+? +\d+  linear_dw (.*\n)+? +\d+  embedding_dw\+add +d\.wte ",
                   r"linear_dw +d\.wte@logits .*\n +\d+  embedding_dw\+add +d\.wte ")
    small(c).with_keys("check", "--dump", "program", **keys).matches(late)
    found = {weights(c.with_keys(**keys, **on)) for on in ({}, {"mesh": mesh(tp=2)})}
    assert len(found) == 1, found
    long = {"transformer_config__max_sequence_length": 64, "training_config__sequence_length": 64}
    c.with_keys("check", "--dump", "program", **keys, **long).matches(early)


@feature("Head-parallel attention: heads / tp a rank; heads that do not divide are an error")
def head_parallel(c):
    for tp, heads in ((1, 4), (2, 2), (4, 1)):
        program = small(c).with_keys("trace", "--emit", "schedule-ir", mesh=mesh(tp=tp), numerics__units__tp=4)
        # Attention's second result has the shape (samples, heads, positions, 2).
        program.matches(rf" attention .*block\.0\.a\.1 \(8, {heads}, 16, 2\)")
    bad = c.with_keys("check", mesh=mesh(tp=4), numerics__units={}, transformer_config__num_heads=6,
                      transformer_config__embedding_dim=48, code=2)
    bad.matches(r": error: num_heads 6 does not divide over tp\D+ 4$")
    bad.says("num_heads")


@feature("pipeline.stages, or assign: a list of named stages sets what each stage computes")
def stage_assignment(c):
    named = "[{name: encoder}, {name: decoder, begin: block.3}]"
    for key in ("stages", "assign"):
        keys = {"mesh": mesh(pp=2), "pipeline": f"{{microbatches: 4, {key}: {named}}}"}
        last = small(c).with_keys("trace", "--emit", "schedule-ir", "--rank", "1", **keys)
        last.says(" block.3.n ").never_says(" block.2.q")
        first = c.with_keys("trace", "--emit", "schedule-ir", "--rank", "0", **keys)
        first.says(" block.2.q").never_says(" block.3.q")
        if weights(c.with_keys(**keys)) != weights(c.with_keys()):
            raise Missing("the stages change the weights")
    nowhere = c.with_keys("check", mesh=mesh(pp=2), pipeline="{microbatches: 4, assign: [block.9]}", code=2)
    nowhere.matches(r"^--set:2:\d+: error: a stage begins at 'block\.9', which the graph does not have$")


def one_forward_one_backward(stage, stages, microbatches):
    """The order of 1F1B: forwards to fill the pipeline, then a forward and a backward in turn, then the rest."""
    ahead = min(stages - 1 - stage, microbatches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(microbatches):
        order += [f"F{i + ahead}"] * (i + ahead < microbatches) + [f"B{i}"]
    return order


@feature("1F1B, 16 microbatches: each stage's order, at most stages - rank activations alive")
def one_f_one_b(c):
    if " ".join(one_forward_one_backward(1, 4, 8)) != "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7":
        raise Missing("the reference is wrong")
    for stage in range(4):
        program = small(c).with_keys(
            "trace", "--emit", "schedule-ir", "--rank", str(stage), mesh=mesh(pp=4), training_config__batch_size=16,
            numerics__units__batch=16, pipeline__schedule="1F1B", pipeline__microbatches=16)
        order = program.matches(r"^runs: (?:prologue )?(.*) update$")[1].split()
        if order != one_forward_one_backward(stage, 4, 16):
            program.fail(f"stage {stage}: {order}")
        # A slot group is the memory of what lives from a forward to its backward, once for each microbatch in flight.
        slots = re.findall(r"^slot group \d+: (\d+) × [\d,]+ bytes, for F B$", program.out, re.MULTILINE)
        if max(map(int, slots), default=1) != 4 - stage:
            program.fail(f"stage {stage} keeps the activations of {slots} microbatches")


@feature("Microbatches below twice the stages: a note with the bubble; below the stages: a warning")
def few_microbatches(c):
    for count, kind, percent in ((2, "warning", 60), (4, "note", 43), (8, None, 27)):
        result = small(c).with_keys("plan", "--machine", "h100", mesh=mesh(pp=4), pipeline__microbatches=count)
        if percent != round(100 * 3 / (count + 3)):
            raise Missing("the formula (p - 1) / (m + p - 1)")
        if kind:
            result.matches(rf"^--set:\d+:\d+: {kind}: {count} microbatches for 4 stages: .*\b{percent} %")
        else:
            result.never_says("microbatches for 4 stages")
        # The estimate knows that the stages are not alike: its bubble is at least the formula's.
        bubble = float(result.matches(r"^  bubble of the pipeline: ([\d.]+)%$")[1])
        if not percent - 1 <= bubble < 100:
            result.fail(f"a bubble of {bubble} %")


@feature("plan prints each stage's FLOPs and their skew; balance: auto reduces the skew")
def stage_balance(c):
    skews = []
    for pipeline in ("{microbatches: 4, blocks_per_rank: [5, 1]}", "{microbatches: 4, balance: auto}"):
        plan = small(c).with_keys("plan", "--machine", "h100", mesh=mesh(pp=2), transformer_config__num_blocks=6,
                                  pipeline=pipeline)
        flops = [float(plan.matches(rf"^  {stage} +(\S+e[+]\d\d) +[\d.]+ ")[1]) for stage in (0, 1)]
        skew = re.search(r"^  skew: stage (\d) does ([\d.]+) times the mean$", plan.out, re.MULTILINE)
        if not skew or abs(float(skew[2]) - 2 * max(flops) / sum(flops)) > 0.01:
            plan.fail(f"FLOPs {flops}, skew {skew and skew[0]}")
        skews.append(float(skew[2]))
    if not skews[1] < 1.1 < 1.5 < skews[0]:
        raise Missing(f"skews {skews}")


@feature("Mixture of experts: choose_experts(scores, k=2) routes each token to two experts, of equal ones to the lower")
def moe_op(c):
    moe(c, "--metrics", "drawn.jsonl")
    graph = MOE_GRAPH.replace("router: {shape: [8, 16], init: normal(0.5)}", "router: {shape: [8, 16], init: zeros}")
    c.write("graph.yaml", graph)
    equal = c.with_keys("--metrics", "equal.jsonl")
    loads = [[m["experts"][0]["load"] for m in c.metrics(f"{name}.jsonl") if m["event"] == "step"]
             for name in ("drawn", "equal")]
    tokens = 64 * 8
    if any(sum(load) != 2 * tokens or max(load) > tokens for load in loads[0]) or len(loads[0]) != 3:
        equal.fail(f"loads {loads[0]}")
    if loads[1][0] != [tokens, tokens, 0, 0, 0, 0, 0, 0]:
        equal.fail(f"loads of equal scores {loads[1][0]}")
    c.write("moe.yaml", "tensors:\n  x: {shape: [8, 16], dtype: f32, init: normal(1.0)}\n"
                        "graph:\n- y: moe(x, experts=8, router=topk, k=2)\noutputs: [y]\n")
    one_op = c.run("check", "--config", "moe.yaml", code=2)
    one_op.says("choose_experts", "combine_experts").matches(r"^moe\.yaml:4:6: error: .*\bmoe\b")
    c.write("moe.yaml", "tensors:\n  x: {shape: [8, 16], dtype: f32, init: normal(1.0)}\n"
                        "graph:\n- y: expert_choice(x, k=2)\noutputs: [y]\n")
    by_experts = c.run("check", "--config", "moe.yaml", code=2)
    by_experts.says("choose_experts").matches(r"^moe\.yaml:4:6: error: .*expert_choice.*later")


@feature("DeepSeek under tt-train's keys: moe_hyperparam, moe_type, and moe_axis as tp or ep; one rank's bits")
def tt_train_deepseek(c):
    c.write("run.yaml", DEEPSEEK)
    one = c.with_keys()
    over_tp = c.with_keys(device_config={"mesh_shape": [2, 2], "enable_ddp": True, "moe_axis": 1})
    over_ep = c.with_keys(device_config={"mesh_shape": [4], "enable_ddp": True, "moe_axis": 0})
    over_tp.says("DP axis 0 (size 2), TP axis 1 (size 2)")
    over_ep.says("EP axis 0 (size 4)")
    same_bits([one, over_tp, over_ep])
    features = c.with_keys(transformer_config__moe_type="sparse_tp")
    same_bits([features, c.with_keys(transformer_config__moe_type="sparse_tp", device_config={
        "mesh_shape": [1, 2], "moe_tp_axis": 1})])
    if weights(features) == weights(one):
        features.fail("sums over the features of an expert have the units of tp")
    c.with_keys("check", transformer_config__moe_type="sparse_pp", code=2).says("error: 'moe_type' cannot be 'sparse_pp'")


@feature("gpt-oss: attention sinks, windows in every second block, experts with biases; equal bits over ep, cp, tp and pp")
def gpt_oss(c):
    c.write("run.yaml", GPT_OSS)
    one = c.with_keys()
    meshes = [{"axes": ["ep", "tp"], "shape": [4, 2]}, {"axes": ["pp", "cp", "tp"], "shape": [2, 2, 2]}]
    same_bits([one, *(c.with_keys(mesh=axes) for axes in meshes)])
    for key, value in (("sliding_window", 0), ("full_attention_step", 1), ("swiglu_limit", 0.001)):
        other = c.with_keys(**{f"transformer_config__{key}": value})
        if weights(other) == weights(one):
            other.fail(f"{key} changes nothing")


@feature("gpt-oss in MXFP4 from Hugging Face: dequantized on import with a note, exported in bf16")
def gpt_oss_mxfp4(c):
    folder = os.path.join(c.source_root, "tests", "checkpoint", "data", "hf_gpt_oss_mxfp4")
    c.run("import", folder, "--out", "model").says("2 tensors of MXFP4 are taken in bf16")
    c.run("export", "model", "--out", "out")
    with open(os.path.join(c.folder, "out", "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    experts = header["model.layers.0.mlp.experts.gate_up_proj"]
    if experts["dtype"] != "BF16" or experts["shape"] != [2, 64, 64]:
        raise Missing(f"the experts are exported as {experts}")


@feature("GLM-4.5: dense blocks, then experts in groups with shared ones, balanced by a bias; equal bits over ep, tp and ZeRO")
def glm4_moe(c):
    c.write("run.yaml", GLM4_MOE)
    one = c.with_keys()
    same_bits([one, c.with_keys(mesh={"axes": ["ep", "tp"], "shape": [4, 2]}),
               c.with_keys(mesh={"axes": ["dp", "tp"], "shape": [2, 2]}, zero__stage=3)])
    unbiased = c.with_keys(transformer_config__balance__bias__rate=0.0)
    if weights(unbiased) == weights(one):
        unbiased.fail("the bias of the choice changes nothing")


@feature("On a GPU the tasks of experts run on the device: routing, rows and one launch for the GEMMs of all experts")
def experts_on_a_gpu(c):
    c.write("run.yaml", GLM4_MOE)
    keys = {"device_config__device": "cuda", "training_config__precision": "bf16", "mesh": {"axes": ["ep"], "shape": [2]}}
    text = c.with_keys("check", "--dump", "program", **keys)
    both = ("expert_weights", "permute_experts", "expert_linear", "combine_experts")
    for op in (*both, *(f"{op}_dx" for op in both), "choose_experts", "expert_plan", "expert_linear_dw", "expert_bias"):
        text.matches(rf"^ +\d+ +{op} ")
    text.never_says("on the host")
    launches = c.with_keys("trace", "--emit", "tile-ir", **keys)
    for op in ("expert_linear", "expert_linear_dx", "expert_linear_dw"):
        launches.matches(rf"^ +\d+ +\w+ +{op} .*  expert_segments\b.*\n .*  expert_gemm_tensor \d+×\d+×\d+")


@feature("Expert and data parallel axes: 64 ranks as ep × dp, 8 × 8, with the groups of both, and one rank's bits")
def expert_mesh(c):
    found = moe(c, "inspect", mesh="{axes: [ep, dp], devices: 64}")
    found.says("ep × dp mesh, 8 × 8", "ep groups: 8 of 8\n  [0, 8, 16, 24, 32, 40, 48, 56]\n",
               "dp groups: 8 of 8\n  [0, 1, 2, 3, 4, 5, 6, 7]\n")
    same_bits([moe(c), moe(c, mesh=mesh(ep=8, dp=8))])

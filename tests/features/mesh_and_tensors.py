# SPDX-License-Identifier: Apache-2.0
"""Meshes with named axes, tensors with layouts, graphs of one's own, and the commands that show them."""
import json
import math
import os
import re

from feature import feature
from small_models import (gpt, has_line, initial, is_close, layer, mesh, printed, rank_slices, safetensors, steps,
                          stored, trains_like_one_rank, weights)

# A tensor on a mesh, in a graph of one statement.
TENSOR = """\
training_config: {{seed: 1, batch_size: {batch}}}
mesh: {{axes: [{axes}], shape: [{shape}]}}
tensors:
  e: {{shape: [{whole}], dtype: {dtype}, layout: {{partition: [{partition}], mesh_axes: [{over}]}}, init: normal(1.0)}}
graph:
- y: scale(e, factor=2)
outputs: [y]
"""

def tensor(c, dtype, whole, partition, over, **sizes):
    batch = 8 * sizes.get("dp", 1)
    c.write("tensor.yaml", TENSOR.format(
        batch=batch, axes=", ".join(sizes), shape=", ".join(map(str, sizes.values())), dtype=dtype,
        whole=", ".join(map(str, whole)), partition=partition, over=over))


@feature("Mesh with named axes: every axis with its size and groups, every rank's coordinates")
def named_axes(c):
    plan = gpt(c, "plan", mesh=mesh(tp=2, dp=4))
    plan.says("mesh: tp × dp mesh, 2 × 4, 8 ranks; groups: tp 4 of 2, dp 2 of 4")
    inspect = gpt(c, "inspect", mesh=mesh(tp=2, dp=4))
    inspect.says("  tp: size 2, axis 0, 4 groups\n  dp: size 4, axis 1, 2 groups\n")
    for rank in range(8):
        inspect.says(f"\n  rank {rank}: tp {rank // 4}, dp {rank % 4}\n")


@feature("Nested device list as a mesh, row-major; a ragged list is an error that names the row")
def nested_devices(c):
    devices = [[0, 1, 2, 3], [4, 5, 6, 7]]
    inspect = gpt(c, "inspect", mesh={"axes": ["tp", "dp"], "devices": devices})
    inspect.says("tp × dp mesh, 2 × 4\n", "tp groups: 4 of 2\n  [0, 4]\n  [1, 5]\n  [2, 6]\n  [3, 7]\n",
                 "dp groups: 2 of 4\n  [0, 1, 2, 3]\n  [4, 5, 6, 7]\n")
    ragged = gpt(c, "inspect", code=2, mesh={"axes": ["tp", "dp"], "devices": [[0, 1, 2, 3], [4, 5, 6]]})
    ragged.says("error: 'devices' is ragged: row 1 has 3 entries, row 0 has 4")


@feature("1-D mesh is data parallelism: replicas that begin equal stay equal")
def data_mesh(c):
    # Each rank computes the loss of its samples with its own replica, so one that differed would change a loss.
    trains_like_one_rank(c, mesh(dp=4)).says("batches: 8 samples over dp = 4, 2 a rank")
    trains_like_one_rank(c, mesh(dp=8)).says("batches: 8 samples over dp = 8, 1 a rank")


@feature("2-D mesh is tensor with data parallelism: the bits of one rank")
def tensor_and_data_mesh(c):
    result = trains_like_one_rank(c, mesh(dp=2, tp=2))
    result.says("ParallelismContext: DP axis 0 (size 2), TP axis 1 (size 2)", "mesh_shape: [2, 2], 4 ranks")


@feature("3-D mesh is pipeline with tensor and data parallelism: the bits of one rank")
def pipeline_tensor_and_data_mesh(c):
    result = trains_like_one_rank(c, mesh(pp=2, tp=2, dp=2), pipeline__microbatches=4)
    result.says("ParallelismContext: PP axis 0 (size 2), TP axis 1 (size 2), DP axis 2 (size 2)", "8 ranks")


@feature("Distributed tensor of shape, dtype, partition, mesh axes: a rank's local shape and bytes")
def distributed_tensor(c):
    for dtype, size in (("f32", 4), ("bf16", 2)):
        tensor(c, dtype, (24, 16), "row, col", "dp, tp", dp=2, tp=4)
        plan = c.run("plan", "--config", "tensor.yaml")
        has_line(plan, "e", dtype, "(24, 16)", str(24 * 16 * size), "(12, 4)", str(12 * 4 * size))
    tensor(c, "f8", (24, 16), "row, col", "dp, tp", dp=2, tp=4)
    c.run("plan", "--config", "tensor.yaml", code=2).says("tensor.yaml:4:", "dtype 'f8'")


@feature("Tensor sharded by rows over one axis, replicated over the others; inspect shows both")
def sharded_and_replicated_axes(c):
    tensor(c, "f32", (8, 6), "row", "tp", tp=2, dp=2)
    inspect = c.run("inspect", "--tensor", "e", "--config", "tensor.yaml")
    inspect.matches(r"tp: ?shard\(0\)")
    inspect.matches(r"dp: ?replicate")
    expected = {r: ({"tp": str(r // 2), "dp": str(r % 2)}, [(r // 2 * 4, r // 2 * 4 + 4), (0, 6)]) for r in range(4)}
    if rank_slices(inspect) != expected:
        inspect.fail(f"slices {rank_slices(inspect)}, not {expected}")


@feature("Plans of tensors beyond memory: 10,000,000 × 4096 in bf16, bytes whole and of a rank")
def larger_than_memory(c):
    tensor(c, "bf16", (10_000_000, 4096), "row", "tp", tp=2)
    plan = c.run("plan", "--config", "tensor.yaml")
    has_line(plan, "e", "bf16", "(10000000, 4096)", "81920000000", "(5000000, 4096)", "40960000000")
    inspect = c.run("inspect", "--tensor", "e", "--config", "tensor.yaml")
    has_line(inspect, "rank 1", "tp 1", "[5000000:10000000, 0:4096]", "40960000000")


COLLECTIVES = """\
training_config: {seed: 1}
mesh: {axes: [dp], shape: [4]}
tensors:
  x: {shape: [4, 8], dtype: f32, layout: {partition: [col], mesh_axes: [dp]}, init: normal(1.0)}
graph:
- product: matmul(x, x, transpose_b=1)
- y: all_reduce(product, axis=dp)
- y2: allreduce(product, axis=dp)
- part: reduce_scatter(product, axis=dp, dim=0)
- y3: gather(part, axis=dp, dim=0)
- whole: all_gather(x, axis=dp, dim=1)
- mine: scatter(whole, axis=dp, dim=0)
- other: all_to_all(mine, axis=dp, from=0, dim=1)
- sent: broadcast(whole, axis=dp, root=0)
outputs: [y, y2, y3, whole, mine, other, sent]
"""

POINT_TO_POINT = """\
training_config: {seed: 1}
mesh: {axes: [pp], shape: [2]}
tensors:
  x: {shape: [4, 8], dtype: f32, init: normal(1.0)}
graph:
- h: send(x, axis=pp, to=1)
- y: receive(h, axis=pp, from=0)
- z: scale(y, factor=2)
outputs: [z]
"""


@feature("Ops all_reduce, reduce_scatter, all_gather, scatter, all_to_all, broadcast, send, receive")
def collective_ops(c):
    x = initial(c)
    product = [sum(a * b for a, b in zip(p, q)) for p in x for q in x]
    flat = [a for row in x for a in row]
    # broadcast is tried with the others: all results are x whole, or x·xᵀ whole.
    c.write("collectives.yaml", COLLECTIVES)
    result = c.run("--config", "collectives.yaml")
    for names, values in (("y y2 y3", product), ("whole mine other sent", flat)):
        for name in names.split():
            is_close(result, printed(result, name), (sum(values), math.hypot(*values)))
    c.write("points.yaml", POINT_TO_POINT)
    result = c.run("--config", "points.yaml")
    is_close(result, printed(result, "z"), (2 * sum(flat), 2 * math.hypot(*flat)))


HOSTS = """\
mesh_descriptors {
  name: "TWO_HOSTS"
  arch: CUDA
  device_topology { dims: [ 2, 4 ] }
  host_topology { dims: [ 2, 1 ] }
  channels { count: 18 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "TWO_HOSTS" mesh_id: 0 } }
"""


@feature("Path of every collective from the topology: NVLink, InfiniBand or shared memory")
def paths_of_collectives(c):
    descriptor = c.write("hosts.textproto", HOSTS)
    words = ("--mesh", descriptor)
    # The machine's hosts have eight GPUs, the descriptor's four: dp crosses hosts whatever the machine says.
    plan = gpt(c, "plan", "--machine", "h100", *words, mesh=mesh(dp=2, tp=4))
    plan.matches(r"^  all_reduce +tp +nvlink ")
    plan.matches(r"^  all_reduce +dp +ib ")
    turned = gpt(c, "plan", "--machine", "h100", *words, mesh=mesh(tp=2, dp=4))
    turned.matches(r"^  all_reduce +tp +ib ")
    turned.matches(r"^  all_reduce +dp +nvlink ")
    trace = gpt(c, "trace", "--emit", "schedule-ir", *words, mesh=mesh(dp=2, tp=4))
    trace.matches(r"^ task .* axis .*\bpath\b")
    trace.matches(r"^ +\d+ +forward +all_reduce .* tp .*\bnvlink\b")
    trace.matches(r"^ +\d+ +update +all_reduce .* dp .*\bib\b")
    run = gpt(c, mesh=mesh(dp=2), training_config__max_steps=1, env={"TESSERA_COMM_TRACE": "1"})
    run.matches(r"^comm step=1 rank=0 seq=0 op=all_reduce axis=dp .*path=shm ")


@feature("Local matmul x·xᵀ of column shards and all-reduce over dp: the sum of all ranks' products")
def product_and_all_reduce(c):
    x = initial(c)
    c.write("collectives.yaml", COLLECTIVES.split("- y2")[0] + "outputs: [y]\n")
    for ranks in (2, 4):
        total = [0.0] * 16
        for r in range(ranks):
            columns = [row[r * 8 // ranks:(r + 1) * 8 // ranks] for row in x]
            parts = [sum(a * b for a, b in zip(p, q)) for p in columns for q in columns]
            total = [a + b for a, b in zip(total, parts)]
        result = c.run("--config", "collectives.yaml", "--set", f"mesh.shape=[{ranks}]")
        is_close(result, printed(result, "y"), (sum(total), math.hypot(*total)))
    trace = c.run("trace", "--config", "collectives.yaml")
    trace.says("product f32 (4, 4) dp:partial = matmul(x, x, transpose_b: 1)\n",
               "y f32 (4, 4) = all_reduce(product, axis: dp)\n")


@feature("Pipeline stages with names: the blocks of encoder and decoder in the plan")
def named_stages(c):
    stages = [{"name": "encoder"}, {"name": "decoder", "begin": "block.1"}]
    keys = {"mesh": mesh(pp=2), "pipeline__microbatches": 4, "pipeline__stages": stages}
    plan = gpt(c, "plan", **keys)
    plan.matches(r"encoder\b.*\bblock\.0\b(?!.*\bblock\.[123]\b)")
    plan.matches(r"decoder\b.*\bblock\.1\D+(2\D+|block\.2\D+)?(block\.)?3\b")
    trains_like_one_rank(c, **{"shape": keys.pop("mesh"), **keys})


STACK = """\
name: stack
sizes: {width: 16}
inputs:
  features: {shape: [batch, width], dtype: f32}
  values: {shape: [batch, width], dtype: f32}
blocks:
  layer:
    inputs: [x]
    parameters: {w: {shape: [width, width], init: normal(0.2)}}
    graph: [x: "relu(linear(x, w))"]
    result: x
graph:
- x: layer(features)
  depth: 12
  as: encoder
- loss: mse(x, values)
outputs: [loss]
"""


@feature("Block with depth: 12: twelve copies in the graph, each with parameters of its own")
def depth(c):
    c.write("stack.yaml", STACK)
    model = "transformer_config: {model_type: stack, graph: stack.yaml}\n"
    c.write("model.yaml", "training_config: {batch_size: 8}\n" + model)
    before = c.run("trace", "--config", "model.yaml", "--emit", "graph-ir").out.split("after placement")[0]
    result = c.run("check", "--config", "model.yaml")
    result.says(f"{12 * 16 * 16:,} parameters\n")
    if [before.count(f"param encoder.{i}.w f32 (16, 16)\n") for i in range(14)] != 12 * [1] + 2 * [0]:
        result.fail("the graph does not have exactly encoder.0.w to encoder.11.w:\n" + before)
    if len(re.findall(r" = linear\(", before)) != 12 or len(re.findall(r" = relu\(", before)) != 12:
        result.fail("the graph does not have twelve linear and relu:\n" + before)


@feature("Pipeline over the axis pp: named stages as many as its ranks or a multiple, else an error")
def stages_and_ranks(c):
    def named(count):
        return [{"name": f"s{i}", **({"begin": f"block.{i}"} if i else {})} for i in range(count)]
    keys = {"shape": mesh(pp=2), "pipeline__axis": "pp", "pipeline__microbatches": 4}
    trains_like_one_rank(c, **keys, pipeline__stages=named(2))
    trains_like_one_rank(c, **keys, pipeline__stages=named(4), pipeline__schedule="interleaved",
                         pipeline__virtual_stages=2)
    wrong = gpt(c, "check", code=2, mesh=mesh(pp=3), pipeline__microbatches=4, pipeline__stages=named(2))
    wrong.says("error: 2 pipeline stages are named, but the mesh has 3")
    gpt(c, "check", code=2, pipeline__axis="dp").says("--set:1:15: error: unknown axis: the text 'dp'")


@feature("One file for one rank and many: only device_config differs, the loss curve does not")
def one_file_for_all_meshes(c):
    one = gpt(c, "--metrics", "one.jsonl")
    for config in ({"enable_ddp": True, "mesh_shape": [4]},
                   {"enable_ddp": True, "enable_tp": True, "mesh_shape": [2, 2]},
                   {"enable_fsdp": True, "enable_tp": True, "mesh_shape": [4, 2]}):
        many = gpt(c, "--metrics", "many.jsonl", device_config=config)
        if (steps(c, "one.jsonl"), weights(one)) != (steps(c, "many.jsonl"), weights(many)):
            many.fail("the loss curve or the weights differ from one rank's")


@feature("Communication inserted by the compiler: a graph without collectives, a program with them")
def inserted_communication(c):
    trace = gpt(c, "trace", mesh=mesh(dp=2, tp=2), transformer_config__num_blocks=1)
    before, rest = trace.out.split("after placement: ")
    collective = r"\b(all_reduce|all_gather|reduce_scatter|all_to_all|send|receive)\b"
    if re.search(collective, before):
        trace.fail("the graph before placement has a collective")
    after, program = rest.split("\nprogram gpt2")
    for axis in ("dp", "tp"):
        if not re.search(rf" = all_reduce\(\S+, axis: {axis}\)", after):
            trace.fail(f"the placed graph has no all_reduce over {axis}")
        if not re.search(rf" all_reduce +over {axis} ", program):
            trace.fail(f"the program has no all_reduce over {axis}")


@feature("Training step with a name: the graph, its program and the metrics carry it")
def named_training_step(c):
    keys = {"training_step__module": "DistTransformer", "mesh": mesh(dp=2)}
    gpt(c, "trace", **keys).says("before placement: graph DistTransformer\n", "\nprogram DistTransformer: ")
    gpt(c, "--metrics", "named.jsonl", **keys)
    start = c.metrics("named.jsonl")[0]
    if (start["event"], "DistTransformer" in start.values()) != ("start", True):
        raise AssertionError(f"the metrics begin with {start}")


@feature("Loss of every step as JSON lines; --dump-grads writes the gradients of all parameters")
def dumped_gradients(c):
    trained = layer(c, "SGD", "trained")
    initial(c)
    events = c.metrics("trained.jsonl")
    (step,) = [o for o in events if o["event"] == "step"]
    gradients = {}
    for name in ("x", "s"):  # by SGD with a rate of 1
        gradients[name] = [a - b for a, b in zip(stored(c, "initial", name), stored(c, "trained", name))]
    is_close(trained, [step["grad_norm"]], [math.hypot(*gradients["x"], *gradients["s"])], 1e-5)
    trained.says(f"done: step 1, loss {step['loss']:.4f}, ")
    c.run("--config", "layer.yaml", "--set", "training_config.checkpoint_dir=again", "--dump-grads", "grads")
    names = [os.path.join(folder, n) for folder, _, files in os.walk(os.path.join(c.folder, "grads")) for n in files]
    names = [n for n in names if n.endswith(".safetensors")] or [os.path.join(c.folder, "grads")]
    tensors = {}
    for name in names:
        tensors.update(safetensors(name))
    for name, gradient in gradients.items():
        (dumped,) = [v for k, v in tensors.items() if k in (name, "d." + name)]
        is_close(trained, dumped, gradient, 1e-5)


CLASSES = """\
training_config:
  {{seed: 1, batch_size: 4, max_steps: 1, data_path: rows.csv, validation_fraction: 0, eval_every: 0,
    checkpoint_dir: {rule}, optimizer: {{type: {rule}, lr: 1.0}}}}
inputs:
  input: {{shape: [batch, 3], dtype: f32}}
  labels: {{shape: [batch], dtype: i32}}
parameters:
  w: {{shape: [5, 3], init: normal(0.5)}}
graph:
- out: linear(input, w)
- loss: cross_entropy(out, labels)
- gradients: {call}(loss)
outputs: [loss]
"""


def class_loss(w, rows):
    """Cross entropy of a linear layer (5, 3) over rows of three numbers and a class, in double precision."""
    total = 0.0
    for *x, label in rows:
        logits = [sum(a * b for a, b in zip(w[i * 3:i * 3 + 3], x)) for i in range(5)]
        total += math.log(sum(map(math.exp, logits))) - logits[label]
    return total / len(rows)


@feature("cross_entropy(out, labels) and backward(loss): gradients equal finite differences")
def finite_differences(c):
    rows = [(0.5, 0.25, -1.0, 0), (1.0, 2.0, 0.5, 3), (-1.0, 0.75, 2.0, 4), (0.25, 0.5, 0.125, 1)]
    c.write("rows.csv", "a,b,c,label\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    for rule, call in (("NoOp", "backward"), ("SGD", "autodiff")):
        c.write("classes.yaml", CLASSES.format(rule=rule, call=call))
        result = c.run("--config", "classes.yaml", "--metrics", rule + ".jsonl")
    before, after = list(stored(c, "NoOp", "w")), stored(c, "SGD", "w")
    is_close(result, [steps(c, "SGD.jsonl")[0][0]], [class_loss(before, rows)])
    for i in range(15):
        moved = [[w + (j == i) * by for j, w in enumerate(before)] for by in (-1e-5, 1e-5)]
        difference = (class_loss(moved[1], rows) - class_loss(moved[0], rows)) / 2e-5
        is_close(result, [before[i] - after[i]], [difference], 1e-5)


@feature("inspect --tensor: every rank's coordinates, slices, dtype, bytes, and the state by axis")
def inspected_tensor(c):
    inspect = gpt(c, "inspect", "--tensor", "block.0.mlp.fc", mesh=mesh(dp=2, tp=2))
    inspect.matches(r"tp: ?shard\(0\)")
    inspect.matches(r"dp: ?replicate")
    for rank in range(4):
        has_line(inspect, f"rank {rank}", f"dp {rank // 2}, tp {rank % 2}",
                 f"[{rank % 2 * 64}:{rank % 2 * 64 + 64}, 0:32]", "f32", str(64 * 32 * 4))
    wrong = gpt(c, "inspect", "--tensor", "block.0.mlp.fcc", code=2, mesh=mesh(dp=2, tp=2))
    wrong.says("'block.0.mlp.fcc'", "did you mean 'block.0.mlp.fc'?")


@feature("trace: lowering of a rank from graph to schedule to tiles with grid, block and warps")
def lowering(c):
    keys = {"mesh": mesh(dp=2, tp=2), "transformer_config__num_blocks": 1, "device_config__device": "cuda"}
    words = ("trace", "--rank", "3")
    gpt(c, *words, "--emit", "graph-ir", **keys).says("before placement: graph gpt2\n", "after placement: graph gpt2\n")
    schedule = gpt(c, *words, "--emit", "schedule-ir", **keys).says("rank 3 of 4: dp 1, tp 1\n")
    tasks = re.findall(r"^ +(\d+)  (linear|layernorm|attention|gelu|linear_dw|adamw) ", schedule.out, re.MULTILINE)
    tiles = gpt(c, *words, "--emit", "tile-ir", **keys).says("rank 3 of 4: dp 1, tp 1\n")
    tiles.matches(r"\bgrid\b.*\b(block|threads)\b.*\bwarps\b")
    for task, op in tasks:
        tiles.matches(rf"^ +{task} .*\b{op}\b.*\b\d+\b.*\b\d+\b.*\b\d+\b")
    if len({op for _, op in tasks}) != 6:
        schedule.fail(f"the schedule has too few kinds of tasks: {tasks}")
    whole = gpt(c, *words, **keys).out
    if not 0 <= whole.find("after placement") < whole.find("\nprogram gpt2") < whole.find("grid"):
        tiles.fail("trace without --emit does not print graph, schedule, tiles")


@feature("profile: each rank's seconds of computation and communication, as trace.json has them")
def profiled_balance(c):
    result = gpt(c, "profile", "--steps", "2", mesh=mesh(dp=2, tp=2))
    rows = re.findall(r"^ +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$",
                      result.out, re.MULTILINE)
    if [int(row[0]) for row in rows] != [0, 1, 2, 3]:
        result.fail("there is not one row a rank")
    result.matches(r"^ +rank +stage +compute s +input s +communication +overlapped +waiting s +idle s +ratio$")
    events = json.loads(c.read("trace.json"))["traceEvents"]
    for row in rows:
        for column, kind in ((2, "compute"), (4, "communication")):
            total = sum(e["dur"] for e in events if e.get("cat") == kind and e["pid"] == int(row[0])) / 1e6
            if abs(total - float(row[column])) > 2e-6 + 0.001 * total:
                result.fail(f"rank {row[0]}: {kind} is {total} s in trace.json, {row[column]} s in the table")
        if not math.isclose(float(row[4]) / float(row[2]), float(row[8]), rel_tol=0.005, abs_tol=0.002):
            result.fail(f"rank {row[0]}: the ratio is not communication over compute")

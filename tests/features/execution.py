# SPDX-License-Identifier: Apache-2.0
"""How a step is executed: factorised meshes, collectives, pipelines, overlap, determinism, and advice about them."""
import json
import math
import os
import re

from feature import feature
from small_models import (actions, comm_trace, gpt, has_line, initial, is_close, mesh, moe, printed, rank_slices, same_bits,
                          trains_like_one_rank)

# A graph of one tensor, whose parts are put together again.
WHOLE = """\
training_config: {seed: 1, batch_size: 72}
mesh: {axes: [tp, dp], shape: [2, 4]}
tensors:
  x: {shape: [4, 8], dtype: f32, layout: {partition: [row, col], mesh_axes: [tp, dp]}, init: normal(1.0)}
graph:
- rows: all_gather(x, axis=dp, dim=1)
- y: all_gather(rows, axis=tp, dim=0)
outputs: [y]
"""

def number(result, pattern):
    return float(result.matches(pattern)[1].replace(",", ""))


def bytes_of(text):
    value, unit = text.split()
    return float(value) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)


def without_devices(path):
    """The lines of a configuration file that say something, but for its mesh."""
    lines, device = [], False
    with open(path) as f:
        for line in f:
            line = re.sub(r"(^|\s)#.*", "", line).rstrip()
            if line and not line[0].isspace():
                device = line.startswith("device_config:")
            if line and not device:
                lines.append(line)
    return tuple(lines)


@feature("From one GPU to a node to a cluster: shipped files that differ in device_config only")
def files_that_differ_in_devices(c):
    groups = {}
    for folder in ("runs", "examples"):
        folder = os.path.join(c.source_root, "configs", folder)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            groups.setdefault(without_devices(path), []).append(path)
    sizes = []
    for group in groups.values():
        inspected = [c.run("inspect", "--config", path) for path in group]
        sizes.append(sorted(int(number(i, r"^ranks: ([\d,]+)$")) for i in inspected))
    if not any(s[0] == 1 and 8 in s and s[-1] > 8 for s in sizes):
        inspected[-1].fail(f"no group of files has 1, 8 and more ranks: {[s for s in sizes if len(s) > 1]}")


@feature("DP, TP and PP by enable_ddp, enable_tp and enable_pp, each with an example that trains")
def modes_by_flags(c):
    short = ["scheduler_config={type: constant}", "training_config.data_path=text.txt", "training_config.max_steps=2",
             "training_config.eval_every=0", "training_config.sample_tokens=0", "training_config.log_every=1"]
    sets = [word for key in short for word in ("--set", key)]
    for name, axes in (("qwen3_dp", ["DP"]), ("llama_tp", ["TP"]), ("llama_dp_tp", ["DP", "TP"]), ("llama_pp", ["PP"])):
        path = os.path.join(c.source_root, "configs", "runs", name + ".yaml")
        result = c.run("--config", path, *sets)
        context = result.matches(r"^ParallelismContext: (.*)$")[1]
        if [a for a in axes if not re.search(rf"\b{a} axis \d \(size [248]\)", context)]:
            result.fail(f"not all of {axes} are axes")
        result.matches(r"^done: step 2, loss \d\.\d+, weights sha256 [0-9a-f]{64}")
        with open(path) as f:
            text = f.read()
        if [a for a in axes if f"enable_{a.lower().replace('dp', 'ddp')}: true" not in text]:
            result.fail(f"{name}.yaml does not enable {axes} by their flags")


@feature("Balanced mesh shapes from a device count: 16 is 4 × 4, 48 is 4 × 4 × 3, 72 is 6 × 4 × 3")
def balanced_shapes(c):
    c.write("mesh.yaml", "training_config: {batch_size: 288}\n")
    for count, shape in ((8, [4, 2]), (8, [2, 2, 2]), (16, [4, 4]), (16, [4, 2, 2]), (48, [8, 6]), (48, [4, 4, 3]),
                         (72, [9, 8]), (72, [6, 4, 3]), (1024, [32, 32]), (1024, [16, 8, 8])):
        axes = ["dp", "tp", "pp"][:len(shape)]
        value = json.dumps({"axes": axes, "devices": count})
        inspect = c.run("inspect", "--config", "mesh.yaml", "--set", f"mesh={value}")
        inspect.says(f"{' × '.join(axes)} mesh, {' × '.join(map(str, shape))}\nranks: {count}\n")


@feature("Topology of a mesh in one line: tp × dp mesh, 4 × 4")
def topology_line(c):
    inspect = gpt(c, "inspect", mesh=mesh(tp=4, dp=4), training_config__batch_size=16, numerics__units__batch=16)
    if "tp × dp mesh, 4 × 4" not in inspect.out.splitlines():
        inspect.fail("no line is: tp × dp mesh, 4 × 4")
    gpt(c, "plan", mesh=mesh(tp=4, dp=2)).says("mesh: tp × dp mesh, 4 × 2, 8 ranks")


@feature("Mesh defined once, whose axes ops name; an unknown axis or a second mesh is an error")
def axes_by_name(c):
    c.write("whole.yaml", WHOLE)
    c.run("--config", "whole.yaml")
    c.run("--config", "whole.yaml", "--set", "mesh={axes: [dp, tp], shape: [2, 2]}")
    c.write("wrong.yaml", WHOLE.replace("axis=dp", "axis=dq"))
    c.run("check", "--config", "wrong.yaml", code=2).says(
        "wrong.yaml:6:23: error: 'dq' is not an axis\n", "= did you mean 'dp'?")
    c.write("wrong.yaml", WHOLE.replace("mesh_axes: [tp, dp]", "mesh_axes: [tp, data]"))
    c.run("check", "--config", "wrong.yaml", code=2).says("wrong.yaml:4:82: error: 'data' is not an axis\n")
    c.write("wrong.yaml", WHOLE + "mesh: {axes: [dp], shape: [2]}\n")
    c.run("check", "--config", "wrong.yaml", code=2).says(
        "wrong.yaml:9:1: error: key 'mesh' is given twice\n", "= first given on line 2")


@feature("2-D sharding of a tensor: 1024² in bf16 on 4 × 4 is 256 × 256 a rank, gathered exactly")
def sharded_both_ways(c):
    large = WHOLE.replace("[2, 4]", "[4, 4]").replace("[4, 8]", "[1024, 1024]").replace("f32", "bf16")
    c.write("large.yaml", large.replace("72", "16"))
    inspect = c.run("inspect", "--tensor", "x", "--config", "large.yaml")
    expected = {r: [(r // 4 * 256, r // 4 * 256 + 256), (r % 4 * 256, r % 4 * 256 + 256)] for r in range(16)}
    if {rank: ranges for rank, (_, ranges) in rank_slices(inspect).items()} != expected:
        inspect.fail("the slices are not a grid of 4 × 4")
    has_line(c.run("plan", "--config", "large.yaml"), "x", "bf16", "(1024, 1024)", "2097152", "(256, 256)", "131072")
    many = c.run("--config", "large.yaml")
    one = c.run("--config", "large.yaml", "--set", "mesh.shape=[1, 1]")
    is_close(many, printed(many, "y"), printed(one, "y"), 0)
    x = [a for row in initial(c) for a in row]
    c.write("whole.yaml", WHOLE)
    whole = c.run("--config", "whole.yaml")
    is_close(whole, printed(whole, "y"), (sum(x), math.hypot(*x)))


@feature("Algorithm of all-reduce: auto, ring or tree, shown by trace; it changes no bit")
def algorithms(c):
    results = []
    for algo in ("ring", "tree", "auto"):
        keys = {"mesh": mesh(dp=4), "collectives__all_reduce__algo": algo}
        results.append(gpt(c, env={"TESSERA_COMM_TRACE": "1"}, **keys))
        reductions = [o for o in comm_trace(results[-1]) if o["op"] == "all_reduce"]
        if {o.get("algo") for o in reductions} != {algo.replace("auto", "tree")}:
            results[-1].fail(f"the all-reduces of {algo} are {({o.get('algo') for o in reductions})}")
    same_bits(results + [gpt(c)])
    for tree, chosen in (("binary", "tree"), ("ring", "ring")):
        trace = gpt(c, "trace", "--emit", "schedule-ir", mesh=mesh(dp=4), numerics__reduce_tree=tree)
        trace.matches(r"^ task .* axis .*\balgo\b")
        trace.matches(rf"^ +\d+ .*all_reduce .* dp .*\b{chosen}\b +16,384 ")
    gpt(c, "check", code=2, collectives__all_reduce__algo="rinq").says("did you mean 'ring'?")


@feature("Sequence parallelism: reduce-scatter and all-gather around TP matmuls, with equal bits")
def sequence_parallelism(c):
    keys = {"mesh": mesh(tp=4), "numerics__units__sequence": 4}
    plain, sharded = gpt(c, **keys), gpt(c, **keys, device_config__enable_sp=True)
    same_bits([plain, sharded, gpt(c, numerics__units__sequence=4)])
    before = gpt(c, "trace", "--emit", "schedule-ir", **keys)
    after = gpt(c, "trace", "--emit", "schedule-ir", **keys, device_config__enable_sp=True)
    counts = [len(re.findall(rf"^ +\d+  forward +{op} .* tp ", t.out, re.MULTILINE))
              for t in (before, after) for op in ("reduce_scatter", "all_gather")]
    # Each of the four blocks ends its attention and its MLP with a reduce-scatter, as does the embedding.
    if counts[0] != 0 or counts[2] != 9 or counts[3] < 9:
        after.fail(f"reduce-scatters and all-gathers of the forward pass, without and with: {counts}")


@feature("Send and receive of a pipeline: peers are neighbours, every send has its receive")
def point_to_point(c):
    keys = {"mesh": mesh(pp=4), "pipeline__microbatches": 8}
    result = gpt(c, env={"TESSERA_COMM_TRACE": "1"}, training_config__max_steps=1, **keys)
    pairs = {"send": [], "receive": []}
    for o in comm_trace(result):
        if o["op"] in pairs:
            pairs[o["op"]].append((o["rank"], o["peer"], o["what"]))
    sent, received = sorted(pairs["send"]), sorted((peer, rank, what) for rank, peer, what in pairs["receive"])
    if sent != received or len(sent) < 6 * 8:
        result.fail(f"{len(sent)} sends, {len(received)} receives, which are not the same")
    neighbours = {(str(a), str(b)) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4}
    if {(a, b) for a, b, _ in sent} != neighbours:
        result.fail("the pairs are not those of neighbours")
    trains_like_one_rank(c, keys.pop("mesh"), **keys)


@feature("Example of a local matmul followed by all_reduce(axis=dp)")
def product_example(c):
    x = initial(c)
    path = os.path.join(c.source_root, "configs", "examples", "dp_step.yaml")
    with open(path) as f:
        graph = f.read().split("\ngraph:\n")[1]
    result = c.run("--config", path)
    if not re.match(r"- product: matmul\(x, x, transpose_b=1\)\n- y: all_reduce\(product, axis=dp\)\n", graph):
        result.fail("the example's graph is another: " + graph)
    product = [sum(a * b for a, b in zip(p, q)) for p in x for q in x]
    is_close(result, printed(result, "y"), (sum(product), math.hypot(*product)))


DP_ADVICE = "advice: data parallel (dp) suits this model: parameters, gradients and state are "
TP_ADVICE = "advice: tensor parallel (tp) suits this model: parameters, gradients and state are "


@feature("Advice of the plan for small models with large batches: data parallelism")
def advice_of_dp(c):
    batch = {"training_config__batch_size": 512, "numerics__units__batch": 8}
    plan = gpt(c, "plan", "--machine", "h100", mesh=mesh(dp=8), **batch)
    # 52,736 parameters and 192 of the padded vocabulary, each with a gradient and two moments, 4 bytes each.
    plan.says(DP_ADVICE + f"{52928 * 16 / 1024:.1f} KiB whole, which every rank can hold").never_says(TP_ADVICE)


@feature("Tensor parallelism: parameters a rank fall with tp; plan advises it for very large models")
def advice_of_tp(c):
    # Norms, positions and the biases after row-parallel layers are replicated; every tensor ends on 64 bytes.
    split = 4 * (4 * [32 * 32] + 2 * [128 * 32] + 3 * [32] + [128]) + 2 * [24 * 32]
    replicated = 4 * 6 * [32] + 2 * [32] + [16 * 32]
    for tp in (1, 2, 4):
        sizes = [n // tp for n in split] + replicated
        check = gpt(c, "check", mesh=mesh(tp=tp))
        check.matches(rf"^  parameters +{sum(-(-n * 4 // 64) * 64 for n in sizes):,} ")
    model = os.path.join(c.source_root, "configs", "models", "llama-3.1-70b.yaml")
    c.write("large.yaml", f"training_config: {{model_config: {model}, batch_size: 1, sequence_length: 128}}\n"
                          "mesh: {axes: [tp], shape: [8]}\n")
    plan = c.run("plan", "--config", "large.yaml", "--machine", "h100")
    plan.says(TP_ADVICE, "each rank of tp = n holds 1/n of the weights").never_says(DP_ADVICE)


@feature("1F1B: at most stages − rank microbatches in flight; their number costs no memory")
def microbatches_in_flight(c):
    def activations(count, schedule):
        check = gpt(c, "check", mesh=mesh(pp=4), training_config__batch_size=4 * count, pipeline__schedule=schedule,
                    pipeline__microbatches=count, numerics__units__batch=count)
        rows = re.findall(r"^  (\d)(?:-(\d))? +(?:[\d.]+ [KM]?i?B +){3}([\d.]+ [KM]?i?B) ", check.out, re.MULTILINE)
        values = [bytes_of(size) for first, last, size in rows for _ in range(int(first), int(last or first) + 1)]
        if len(values) != 4:
            check.fail("the rows of memory are not those of four stages")
        return values
    for rank in range(4):
        alive = most = 0
        for action in actions(c, 4, rank, pipeline__microbatches=8):
            alive += {"F": 1, "B": -1}[action[0]]
            most = max(most, alive)
        if most != 4 - rank:
            raise AssertionError(f"stage {rank} has {most} microbatches in flight")
    for stage, (few, many) in enumerate(zip(activations(8, "1f1b"), activations(32, "1f1b"))):
        if many > 1.1 * few:
            raise AssertionError(f"1F1B, stage {stage}: {few} bytes with 8 microbatches, {many} with 32")
    few, many = activations(8, "gpipe")[0], activations(32, "gpipe")[0]
    if many < 3 * few:
        raise AssertionError(f"GPipe should keep all microbatches: {few} bytes with 8, {many} with 32")


@feature("Recompute by memory: auto takes the least work with which the run fits; equal bits")
def recompute_by_memory(c):
    runs = []
    for limit, chosen in (("1GiB", "none"), ("1MiB", "full")):
        check = gpt(c, "check", schedule__recompute="auto", device_config__memory_limit=limit)
        check.matches(f"recompute: auto is {chosen}: a process needs ")
        runs.append(gpt(c, schedule__recompute=chosen))
    same_bits(runs)


@feature("Activation offload on GPUs: less memory of a rank, what the host has, open copies by plan")
def activation_offload(c):
    keys = {"device_config__device": "cuda", "training_config__precision": "f32",
            "transformer_config__num_blocks": 6}
    offload = {"schedule__activation_offload": "blocks", "schedule__activation_offload_min_size": 64}
    row = r"^  work +([\d,]+) "
    check = gpt(c, "check", **keys, **offload)
    kept, moved = (int(result.matches(row)[1].replace(",", "")) for result in (gpt(c, "check", **keys), check))
    host = int(check.matches(r"^  activations on host +([\d,]+) ")[1].replace(",", ""))
    some = gpt(c, "check", **keys, **offload, schedule__activation_offload_blocks=2)
    if not (moved < kept and int(some.matches(r"^  activations on host +([\d,]+) ")[1].replace(",", "")) < host):
        check.fail(f"work has {moved} bytes with activations on the host, and {kept} without; the host has {host}")
    plan = gpt(c, "plan", "--machine", "h100", **keys, **offload)
    plan.matches(r"^  activations in the host's memory: [\d.]+ [KM]iB of each rank$")
    plan.matches(r"^copies of activations to the host and back, of each rank and step: .* each way, 53.55GB/s: ")
    same_bits([gpt(c), gpt(c, **offload).says("note: activation_offload has no effect: ranks on the CPU")])


@feature("Expert parallelism: enable_ep and the axis ep; a rank has E / ep experts; equal bits on every mesh")
def expert_parallelism(c):
    inspect = gpt(c, "inspect", mesh=mesh(ep=2, dp=4))
    inspect.says("ep × dp mesh, 2 × 4\n", "ep groups: 4 of 2\n  [0, 4]\n  [1, 5]\n  [2, 6]\n  [3, 7]\n")
    share = moe(c, "inspect", "--tensor", "up", mesh=mesh(ep=4, dp=2))
    if sorted(slices[0] for _, slices in rank_slices(share).values()) != [(e, e + 2) for e in (0, 0, 2, 2, 4, 4, 6, 6)]:
        share.fail("the 8 experts are not shared out over ep = 4")
    one = moe(c)
    flag = moe(c, device_config={"enable_ep": True, "mesh_shape": [2]})
    meshes = [moe(c, mesh=shape) for shape in (mesh(ep=8), mesh(dp=4, ep=2), mesh(ep=2, tp=2), mesh(ep=2, cp=2))]
    stages = [moe(c, mesh=mesh(dp=2, ep=2), zero__stage=stage) for stage in (1, 2, 3)]
    same_bits([one, flag, *meshes, *stages])
    trains_like_one_rank(c, mesh(dp=2, ep=4))  # a model without experts


@feature("3-D mesh of 72 GPUs planned on any host: 6 × 4 × 3 and its groups")
def mesh_of_72(c):
    keys = {"mesh": {"axes": ["tp", "pp", "dp"], "devices": 72}, "training_config__batch_size": 24,
            "pipeline__microbatches": 8, "numerics": {"threads": 1},
            "transformer_config": {"num_heads": 6, "embedding_dim": 192, "vocab_size": 66}}
    plan = gpt(c, "plan", "--machine", "h100", **keys)
    plan.says("mesh: tp × pp × dp mesh, 6 × 4 × 3, 72 ranks; groups: tp 12 of 6, pp 18 of 4, dp 24 of 3\n")
    plan.says("a step: 8 microbatches of 3 samples through 4 stages, schedule 1f1b\n")
    plan.matches(r"^  bubble of the pipeline: [\d.]+%$")
    trace = gpt(c, "trace", "--rank", "71", "--emit", "schedule-ir", **keys)
    trace.says("\n  its group over tp, 6 ranks: 11 23 35 47 59 71\n", "\n  its group over pp, 4 ranks: 62 65 68 71\n",
               "\n  its group over dp, 3 ranks: 69 70 71\n")


# The list of features goes on with overlap, uneven shards and numerics.

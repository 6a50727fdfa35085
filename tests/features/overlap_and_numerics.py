# SPDX-License-Identifier: Apache-2.0
"""Overlap, uneven shards, what fixes the bits of a run, and advice about it."""
import json
import os
import re
import shutil

from feature import feature
from small_models import (actions, comm_trace, gpt, mesh, rank_slices, safetensors, same_bits, steps, stored,
                          trains_like_one_rank)

# Eight devices in a line, four to a host.
TWO_HOSTS = """\
mesh_descriptors {
  name: "TWO_HOSTS"
  arch: CUDA
  device_topology { dims: [ 1, 8 ] }
  host_topology { dims: [ 1, 2 ] }
  channels { count: 18 policy: RELAXED }
}
top_level_instance { mesh { mesh_descriptor: "TWO_HOSTS" mesh_id: 0 } }
"""


def known_key(c, names, value):
    """What `check` says about a key under the first of these names that it knows, else about the last name."""
    for name in names:
        result = gpt(c, "check", "--set", f"{name}={value}", code=None)
        if "unknown key" not in result.text:
            break
    return result


def processes(c, count, *words, **keys):
    """A command under a launcher, or None where there is no launcher whose plugin was built."""
    for kind, options in (("mpich", []), ("openmpi", ["--oversubscribe"])):
        plugin = os.path.join(os.path.dirname(c.program), f"libtessera-{kind}.so")
        if shutil.which("mpirun." + kind) and os.path.exists(plugin):
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            sets = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in keys.items()]
            sets = [word for key in sets for word in ("--set", key)]
            return c.command("mpirun." + kind, *options, "-n", str(count), c.program, *words, "--config", "run.yaml",
                             *sets, env=root)
    return None



UNEVEN = """\
training_config:
  {seed: 1, batch_size: 4, max_steps: 4, data_path: rows.csv, validation_fraction: 0, eval_every: 0, num_epochs: 9,
   optimizer: {type: AdamW, lr: 0.01}}
mesh: {axes: [tp], shape: [4]}
numerics: {threads: 1, units: {tp: 4}}
inputs:
  features: {shape: [batch, 3], dtype: f32}
  labels: {shape: [batch], dtype: i32}
parameters:
  w1: {shape: [10, 3], init: normal(0.5), tp: shard(0)}
  w2: {shape: [5, 10], init: normal(0.5), tp: shard(1)}
graph:
- h: relu(linear(features, w1))
- out: linear(h, w2)
- loss: cross_entropy(out, labels)
outputs: [loss]
"""

SQUARE = """\
training_config: {seed: 1}
mesh: {axes: [tp, pp, dp], shape: [6, 4, 3]}
tensors:
  w: {shape: [100000, 100000], dtype: bf16, layout: {partition: [row, col], mesh_axes: [tp, pp]}, init: normal(1.0)}
graph:
- y: scale(w, factor=2)
outputs: [y]
"""


def square_slices(c, *words):
    inspect = c.run("inspect", "--tensor", "w", "--config", "square.yaml", *words)
    return inspect, {rank: ranges for rank, (_, ranges) in rank_slices(inspect).items()}


@feature("Uneven shards: 100000 over tp = 6; equal bits, also resharded; strict_divisible refuses")
def uneven_shards(c):
    c.write("square.yaml", SQUARE)
    inspect, slices = square_slices(c)
    ends = [0, 16667, 33334, 50001, 66668, 83334, 100000]
    columns = [(b, b + 25000) for b in range(0, 100000, 25000)]
    expected = {r: [(ends[r // 12], ends[r // 12 + 1]), columns[r // 3 % 4]] for r in range(72)}
    if slices != expected:
        inspect.fail(f"the slices over 6 × 4 × 3 are {slices}")
    c.run("plan", "--config", "square.yaml").says("  w bf16 (100000, 100000) 20,000,000,000 bytes, (16667, 25000) 833,350,000")
    inspect, slices = square_slices(c, "--set", "mesh.shape=[4, 2, 9]")
    if {tuple(e - b for b, e in ranges) for ranges in slices.values()} != {(25000, 50000)} or len(slices) != 72:
        inspect.fail("the slices over 4 × 2 × 9 are not 25000 × 50000")
    rows = ["0.5,0.25,-1,0", "1,2,0.5,3", "-1,0.75,2,4", "0.25,0.5,0.125,1"]
    c.write("rows.csv", "a,b,c,label\n" + "\n".join(rows) + "\n")
    c.write("uneven.yaml", UNEVEN)
    words = ("--config", "uneven.yaml", "--set")
    whole = [c.run(*words, f"mesh.shape=[{n}]") for n in (1, 2, 4)]
    c.run(*words, "training_config.max_steps=2", "--set", "training_config.checkpoint_dir=kept")
    c.run("checkpoint", "reshard", "kept", "--out", "moved", "--shards", "3")
    resumed = c.run(*words, "mesh.shape=[2]", "--resume", "moved").says("resumes from 'moved', after step 2")
    same_bits(whole + [resumed])
    for section in ("", "device_config.", "mesh.", "numerics."):
        strict = c.run("check", *words, section + "strict_divisible=true", code=2)
        if "unknown key" not in strict.text:
            break
    strict.matches(r"error: .*\b10\b.*\b4\b|error: .*\b4\b.*\b10\b")


@feature("Vocabularies of 1,024 and more in a multiple of 128 rows on every device; real sizes in files; equal bits")
def padded_vocabulary(c):
    sizes = {"transformer_config__vocab_size": 1025, "training_config__tokenizer_type": "byte"}
    for device in ("cpu", "cuda"):
        words = ("--set", f"device_config.device={device}")
        dump = gpt(c, "check", "--dump", "graph", *words, **sizes)
        dump.matches(r"^  param wte f32 \(1025, 32\) stored as \(1152, 32\)")
    gpt(c, "check", "--dump", "graph", **sizes | {"transformer_config__vocab_size": 1023}).matches(
        r"^  param wte f32 \(1023, 32\) stored as \(1024, 32\)")  # for the units of tp alone
    one = gpt(c, training_config__checkpoint_dir="one", **sizes)
    many = [gpt(c, mesh=mesh(**axes), **sizes) for axes in ({"tp": 2}, {"dp": 2, "tp": 2}, {"pp": 2})]
    many.append(gpt(c, mesh=mesh(dp=4), zero__stage=3, **sizes))
    same_bits([one] + many)
    if len(stored(c, "one", "wte")) != 1025 * 32:
        one.fail("a checkpoint has other rows than the vocabulary")
    c.run("export", "one", "--out", "exported")
    if safetensors(os.path.join(c.folder, "exported", "model.safetensors"))["transformer.wte.weight"][1025 * 32:]:
        one.fail("an export has other rows than the vocabulary")
    if json.loads(c.read("exported/config.json"))["vocab_size"] != 1025:
        one.fail("an export has another vocabulary")


@feature("Hybrid training step: a Transformer over dp, tp and pp, all of whose groups trace shows")
def hybrid_step(c):
    path = os.path.join(c.source_root, "configs", "runs", "llama3_405b_16384.yaml")
    trace = c.run("trace", "--emit", "schedule-ir", "--rank", "200", "--config", path)
    # Rank 200 of dp 128 × pp 16 × tp 8 is 1 · 128 + 9 · 8 + 0.
    trace.says("rank 200 of 16384: dp 1, pp 9, tp 0\n",
               "  its group over tp, 8 ranks: 200 201 202 203 204 205 206 207\n",
               "  its group over pp, 16 ranks: " + " ".join(str(128 + 8 * i) for i in range(16)) + "\n",
               "  its group over dp, 128 ranks: 72 200 328 ")
    trace.matches(r"^ +\d+ +\w+ +(all_reduce|reduce_scatter|all_gather) .* tp ")
    trace.matches(r"^ +\d+ +\w+ +(all_reduce|reduce_scatter|all_gather) .* dp ")
    trace.matches(r"^ +\d+ +forward +send .* pp .*, to 208$")
    trains_like_one_rank(c, mesh(dp=2, pp=2, tp=2), pipeline__microbatches=4)


@feature("Overlap of gradient all-reduce: buckets begin in the backward pass, with equal losses")
def overlapped_buckets(c):
    overlap = {"schedule__all_reduce_overlap": True, "schedule__bucket_size": "64KiB", "mesh": mesh(dp=4)}
    text = gpt(c, "trace", "--emit", "schedule-ir", **overlap).out
    backward = text[text.index("\nbackward\n"):text.index("\nupdate\n")].splitlines()
    begins = [re.search(r"all_reduce +over dp begins with bucket (\d+) ", line) for line in backward]
    buckets = [match and int(match[1]) for match in begins]
    work = [i for i, line in enumerate(backward) if re.search(r"^ +\d+  linear_d[xw] ", line)]
    # 206.75 KiB of gradients fill three buckets of at least 64 KiB; what remains is the fourth.
    if [b for i, b in enumerate(buckets) if b and b not in buckets[:i]] != [1, 2, 3, 4]:
        raise AssertionError(f"the buckets that begin in the backward pass: {buckets}")
    if not all(any(i > buckets.index(b) for i in work) for b in (1, 2, 3)):
        raise AssertionError("no backward work follows the begin of a bucket")
    waits = re.findall(r"^ +\d+  wait +for bucket (\d+)", text[text.index("\nupdate\n"):], re.MULTILINE)
    if sorted(set(waits)) != ["1", "2", "3", "4"]:
        raise AssertionError(f"the update waits for buckets {waits}")
    gpt(c, "trace", "--emit", "schedule-ir", mesh=mesh(dp=4)).never_says("begins with bucket")
    trains_like_one_rank(c, overlap.pop("mesh"), **overlap)


@feature("Pipeline microbatches: 8 of them are 8 forward and 8 backward passes of every stage")
def number_of_microbatches(c):
    for key in ("schedule__pipeline_microbatches", "pipeline__microbatches"):
        for rank in range(2):
            order = actions(c, 2, rank, **{key: 8})
            if sorted(order) != sorted(f"{a}{i}" for a in "FB" for i in range(8)):
                raise AssertionError(f"stage {rank}: {order}")
            for i in range(8):
                if order.index(f"F{i}") > order.index(f"B{i}"):
                    raise AssertionError(f"stage {rank}: B{i} precedes F{i}")
    trains_like_one_rank(c, mesh(pp=2), schedule__pipeline_microbatches=8)


SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6}


@feature("Overlap hides communication: step time by plan, overlapped share by profile of processes")
def hidden_communication(c):
    path = os.path.join(c.source_root, "configs", "runs", "llama3_405b_1024.yaml")
    times = []
    for overlap in ("true", "false"):
        plan = c.run("plan", "--config", path, "--machine", "h100", "--set", "schedule.all_reduce_overlap=" + overlap)
        step = plan.matches(r"^step: ([\d.]+) (s|ms|us)")
        opened = plan.matches(r"open communication ([\d.]+)%")
        times.append((float(step[1]) * SECONDS[step[2]], float(opened[1])))
    if not (times[0][0] < times[1][0] and times[0][1] < times[1][1]):
        plan.fail(f"step and open communication with and without overlap: {times}")
    keys = {"mesh": mesh(dp=4), "schedule__all_reduce_overlap": True, "schedule__bucket_size": "16KiB"}
    gpt(c, "profile", "--steps", "2", **{**keys, "schedule__all_reduce_overlap": False}).says(
        "overlapped: 0.0 % of communication")
    gpt(c, "profile", "--steps", "2", **keys).matches(r"^overlapped: [\d.]+ % of communication$")
    share = 0
    for _ in range(5):  # on a busy machine messages may come only when they are waited for
        result = processes(c, 2, "profile", "--steps", "2", "--out", "profiled", "--overwrite", **keys)
        share = result and float(result.matches(r"^overlapped: ([\d.]+) % of communication$")[1])
        if share != 0:
            break
    if result:
        ranks = re.findall(r"^ +(\d) +0 +\d+\.\d{6} ", result.out, re.MULTILINE)
        if ranks != ["0", "1", "2", "3"] or not 0 < share <= 100:
            result.fail("the profile of two processes lacks a rank, or nothing is overlapped")


@feature("Overlap by plan: auto is true where collectives go between processes and a step is shorter with it")
def overlap_by_plan(c):
    keys = {"mesh": mesh(dp=4), "schedule__bucket_size": "16KiB"}
    note = "note: all_reduce_overlap: auto is "
    gpt(c, "check", **keys, schedule__all_reduce_overlap="auto").says(note + "false: the ranks of dp are in one process, ")
    for size, chosen in (("16KiB", "true"), ("1GiB", "false")):
        keys["schedule__bucket_size"] = size
        check = gpt(c, "check", **keys, device_config__device="cuda")
        step = check.matches(note + chosen + r": by the plan for 'h100' a step takes ([\d.]+) ms with it, and ([\d.]+) ms")
        if (float(step[1]) < float(step[2])) != (chosen == "true"):
            check.fail("the choice is not that of the shorter step")
    same_bits([gpt(c, **keys, schedule__all_reduce_overlap=overlap) for overlap in (True, False, "auto")])


@feature("Deterministic sums: two runs, other threads, other processes: equal loss bits and weights")
def repeated_runs(c):
    keys = {"mesh": mesh(dp=4), "training_config__batch_size": 16}
    results = [gpt(c, "--metrics", "one.jsonl", **keys), gpt(c, "--metrics", "again.jsonl", **keys),
               gpt(c, "--metrics", "threads.jsonl", **keys, numerics__threads=3)]
    job = processes(c, 2, "--metrics", "job.jsonl", **keys)
    names = ["one.jsonl", "again.jsonl", "threads.jsonl"] + (["job.jsonl"] if job else [])
    if len(steps(c, "one.jsonl")) != 3 or any(steps(c, name) != steps(c, "one.jsonl") for name in names):
        results[0].fail(f"losses differ: {[steps(c, name) for name in names]}")
    same_bits(results + ([job] if job else []))


@feature("Numerics policy deterministic or fast, in the manifest and in every collective's record")
def policy_in_records(c):
    for policy in ("deterministic", "fast"):
        result = gpt(c, mesh=mesh(dp=2), numerics__policy=policy, training_config__checkpoint_dir=policy,
                     schedule__all_reduce_overlap=True, env={"TESSERA_COMM_TRACE": "1"})
        result.says(f"recipe: seed 7, {policy}, ")
        manifest = json.loads(c.read(policy + "/step-00000003/manifest.json"))
        if manifest["recipe"]["numerics.policy"] != policy:
            result.fail(f"the manifest has another policy: {manifest['recipe']}")
        records = comm_trace(result)
        wrong = [r for r in records if r.get("policy") != policy]
        if policy == "deterministic":  # fast sums have no tree that another run would have to follow
            wrong += [r for r in records if r["op"] == "all_reduce" and r.get("tree") != "binary"]
        if wrong or not records:
            result.fail(f"{len(records)} records, of which some lack the policy or the tree, as {wrong[:1]}")
    forced = gpt(c, numerics__policy="fast", env={"TESSERA_DETERMINISTIC": "1"})
    forced.says("recipe: seed 7, deterministic, ")


@feature("Hash of the run and of the recipe in the last line and the metrics: equal on every mesh")
def recipe_hash(c):
    hashes = []
    for shape, seed in ((mesh(dp=1), 7), (mesh(dp=1), 7), (mesh(dp=2, tp=2), 7), (mesh(dp=1), 8)):
        result = gpt(c, "--metrics", "run.jsonl", "--out", "run", "--overwrite", mesh=shape, training_config__seed=seed)
        recipe = json.loads(c.read("run/checkpoints/step-00000003/manifest.json"))["recipe_hash"]
        end, last = c.metrics("run.jsonl")[-1], result.out.splitlines()[-1]
        if end["weights_sha256"] not in last or not re.search(rf"\brecipe (\w+ )?{recipe}\b", last):
            result.fail(f"the last line lacks the hash of the weights or of the recipe, {recipe}")
        if recipe not in end.values():
            result.fail(f"the metrics' last line lacks the hash of the recipe, {recipe}")
        hashes.append((recipe, end["weights_sha256"]))
    if len(set(hashes[:3])) != 1 or hashes[3][0] == hashes[0][0] or hashes[3][1] == hashes[0][1]:
        result.fail(f"hashes of the recipe and the weights: {hashes}")


@feature("Note for models of more than 10¹² parameters on fewer than three axes")
def trillion_parameters(c):
    size = {"embedding_dim": 65536, "num_heads": 512, "num_blocks": 20, "vocab_size": 50304}
    keys = {f"transformer_config__{key}": value for key, value in size.items()}
    note = "models of more than 10^12 need three, such as dp, pp and tp\n"
    note = "note: 1.04e+12 parameters on a mesh of 2 axes: " + note
    gpt(c, "plan", "--machine", "h100", mesh=mesh(dp=2, tp=4), **keys).says(note)
    gpt(c, "plan", "--machine", "h100", mesh=mesh(dp=2, tp=4), **{**keys, "transformer_config__num_blocks": 19}
        ).never_says("need three")  # 0.99e+12
    gpt(c, "plan", "--machine", "h100", mesh=mesh(dp=2, pp=2, tp=2), **keys, pipeline__microbatches=4
        ).never_says("need three")


@feature("Warning for fewer microbatches than stages, with the pipeline's idle share")
def few_microbatches(c):
    for count in (1, 2):
        idle = round(100 * 3 / (count + 3))
        plural = "es" if count > 1 else ""
        gpt(c, "check", mesh=mesh(pp=4), pipeline__microbatches=count).says(
            f"warning: {count} microbatch{plural} for 4 stages: {idle} % of the pipeline's time is idle\n")
    gpt(c, "check", mesh=mesh(pp=4), pipeline__microbatches=4).never_says("warning: ")


@feature("Note for the policy fast without overlap")
def fast_without_overlap(c):
    note = "note: 'fast' without schedule.all_reduce_overlap: the gradients' sums wait for the backward pass\n"
    keys = {"mesh": mesh(dp=2), "numerics__policy": "fast"}
    gpt(c, "check", **keys, schedule__all_reduce_overlap=False).says(note)
    for overlap in ({}, {"schedule__all_reduce_overlap": True}):
        gpt(c, "check", **keys, **overlap).never_says("note: ")
    gpt(c, "check", mesh=mesh(dp=2)).never_says("note: ")


@feature("Hierarchical all-reduce: in the node, between nodes, in the node again; equal bits")
def hierarchical_all_reduce(c):
    words = ("--mesh", c.write("hosts.textproto", TWO_HOSTS))
    keys = {"mesh": mesh(dp=8), "collectives__all_reduce__algo": "hier"}
    trace = gpt(c, "trace", "--emit", "schedule-ir", *words, **keys)
    trace.matches(r"^ +\d+ +\w+ +all_reduce .*\bhier\b")
    # Of N bytes a rank sends 3/4 N twice in its node of four, and half of a quarter twice between the two nodes.
    plan = gpt(c, "plan", "--machine", "h100", *words, **keys)
    sent = plan.matches(r"over links: nvlink ([\d.]+) KiB, ib ([\d.]+) KiB")
    if abs(float(sent[1]) - 6 * float(sent[2])) > 0.01 * float(sent[1]):
        plan.fail("NVLink should carry six times what InfiniBand carries")
    flat = {**keys, "collectives__all_reduce__algo": "tree"}
    same_bits([gpt(c, *words, **keys), gpt(c, *words, **flat), gpt(c)])


@feature("DP, TP and PP compose: every combination on 8 ranks computes the same bits")
def composed_modes(c):
    sizes = {"transformer_config__num_heads": 8, "transformer_config__num_blocks": 8, "numerics__units__tp": 8}
    results = [gpt(c, **sizes)]
    for dp, tp, pp in ((d, t, 8 // (d * t)) for d in (1, 2, 4, 8) for t in (1, 2, 4, 8) if d * t <= 8):
        shape = {axis: n for axis, n in (("dp", dp), ("tp", tp), ("pp", pp)) if n > 1}
        results.append(gpt(c, mesh=mesh(**shape), pipeline__microbatches=8 // dp if pp > 1 else 1, **sizes))
        results[-1].says(f"mesh_shape: {list(shape.values())}, 8 ranks\n")
    same_bits(results)


@feature("Autotuning of tile and bucket sizes with a cache", state="refused")
def autotuning(c):
    names = ("autotune", "schedule.autotune", "numerics.autotune")
    refused = known_key(c, names, "true").ends(2).never_says("unknown key").never_says("no effect")
    refused.matches(r"^--set:1:\d+: error: .*autotun")
    refused.matches(r"^ +\| +\^~*$")
    refused.matches(r"^      = \S")  # what would make it work
    misspelt = known_key(c, names, "tru").ends(2)
    misspelt.never_says("unknown key").matches(r"^--set:1:\d+: error: .*'tru'")

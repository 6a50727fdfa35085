# SPDX-License-Identifier: Apache-2.0
"""Collectives, their transports, and the three levels of the program: graph, schedule, tiles."""
import json
import os
import re
import shutil

from feature import Missing, feature

# A GPT of four blocks. The units let meshes of dp up to 8 and tp up to 2 add in the same order.
SMALL = """\
training_config:
  seed: 7
  data_path: text.txt
  tokenizer_type: char
  batch_size: 8
  max_steps: 3
  num_epochs: 100
  log_every: 1
  eval_every: 0
  sample_tokens: 0
  optimizer: {type: AdamW, lr: 0.001}
scheduler_config: {type: constant}
numerics: {threads: 1, units: {batch: 8, tp: 2}}
transformer_config:
  {model_type: gpt2, vocab_size: 0, num_heads: 4, embedding_dim: 32, num_blocks: 4, max_sequence_length: 16}
"""
PARAMETERS = 69  # tensors of that model: two embeddings, 16 in each block, the last norm's two, the head
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def small(c):
    c.write("run.yaml", SMALL)
    return c


def mesh(**axes):
    """A mesh of named axes, outermost first, as the value of a --set."""
    names, sizes = ", ".join(axes), ", ".join(map(str, axes.values()))
    return f"{{axes: [{names}], shape: [{sizes}]}}"


def weights(result):
    return result.matches(r"weights sha256 ([0-9a-f]{64})")[1]


def losses(c, name):
    """The losses of a metrics file; JSON holds all their bits."""
    return [m["loss"] for m in c.metrics(name) if m["event"] == "step"]


def number(text):
    return int(text.replace(",", ""))


def key_named(c, name):
    """The full name of the configuration key `name`, from the JSON schema of the program."""
    def find(node, path):
        if isinstance(node, list):
            return next(filter(None, (find(n, path) for n in node)), None)
        if not isinstance(node, dict):
            return None
        for word, inner in node.get("properties", {}).items():
            if word == name:
                return ".".join(path + [word])
            found = find(inner, path + [word])
            if found:
                return found
        return find([v for k, v in node.items() if k != "properties"], path)

    found = find(json.loads(c.run("--print-schema").out), [])
    if not found:
        raise Missing(f"no configuration key is called {name}")
    return found


def refused(c, key, value, *texts):
    """The value is known and refused: the place, its name, and a line with what would make it work."""
    result = c.with_keys("check", **{key_named(c, key).replace(".", "__"): value}, code=2)
    result.matches(r"^--set:1:\d+: error: ")
    result.matches(r"^ +(=|→) \S")
    return result.says(key, *texts).never_says("unknown key")


def wrong_value(c, key, value):
    """A value that does not exist is an error that lists those that do."""
    result = c.with_keys("check", **{key_named(c, key).replace(".", "__"): value}, code=2)
    result.matches(r"^--set:1:\d+: error: ")
    result.matches(r"^ += valid: ")
    return result


def launcher(c, libraries=("openmpi", "mpich")):
    """The words that start processes with the first MPI that is there with the program's plugin; none without any."""
    for name in libraries:
        plugin = os.path.join(os.path.dirname(c.program), f"libtessera-{name}.so")
        if os.path.exists(plugin) and shutil.which(f"mpirun.{name}"):
            return [f"mpirun.{name}"] + (["--oversubscribe"] if name == "openmpi" else [])
    return []


def comm_trace(result):
    """{rank: its collectives, sends and receives in order}, without their times."""
    ranks = {}
    for line in result.err.splitlines():
        if line.startswith("comm "):
            words = dict(word.split("=", 1) for word in line.split()[1:])
            words.pop("ms")
            ranks.setdefault(int(words["rank"]), []).append(words)
    return ranks


def example_with(c, name, old, new):
    """An example configuration of the source tree with one text replaced, as a file of the check's folder."""
    with open(os.path.join(c.source_root, "configs", "examples", name)) as f:
        text = f.read()
    if old not in text:
        raise Missing(f"{name} has no {old}")
    return c.write("example.yaml", text.replace(old, new))


@feature("--strict: breaches of normative semantics are errors, advice stays a note")
def strict(c):
    small(c)
    c.write("unseeded.yaml", SMALL.replace("  seed: 7\n", ""))
    c.run("check", "--config", "unseeded.yaml").matches(r": note: .*\bseed\b")
    c.run("check", "--config", "unseeded.yaml", "--strict", code=2).matches(r": error: .*\bseed\b")
    few = c.with_keys("check", "--strict", mesh=mesh(pp=4), pipeline__microbatches=4)
    few.says("note: 4 microbatches for 4 stages: a bubble of 43 %")
    c.run("check", "--help").says("--strict")
    c.run("--print-manual").matches(r"[Nn]ormative")


@feature("The sharded graph that trains also evaluates and generates, forward pass only")
def training_and_inference(c):
    small(c).with_keys(training_config__checkpoint_dir="kept")
    sharded = ("--set", f"mesh={mesh(dp=2, tp=2)}")
    one = c.run("evaluate", "--checkpoint", "kept", "--data", "text.txt")
    many = c.run("evaluate", "--checkpoint", "kept", "--data", "text.txt", *sharded)
    many.says(one.matches(r"^loss: \d\.\d{4,}$")[0])
    # A limit that no run keeps makes the program say what a rank needs: its shard of the parameters, and neither
    # gradients nor optimizer state.
    held = c.with_keys("check", mesh=mesh(dp=2, tp=2)).matches(r"^  parameters +[\d,]+ +([\d.]+ KiB)$")[1]
    for words in (("evaluate", "--data", "text.txt"), ("generate", "--prompt", "word ")):
        limited = c.run(*words, "--checkpoint", "kept", *sharded, "--set", "device_config.memory_limit=1KiB", code=1)
        limited.says(f"a rank needs {held} of parameters, 0 B of optimizer state")
    words = ("generate", "--checkpoint", "kept", "--prompt", "word ", "--max-new-tokens", "8", "--seed", "1", "--quiet")
    text = c.run(*words).out
    c.run(*words, *sharded).says(text)
    if not text.startswith("word ") or len(text.rstrip("\n")) < len("word ") + 4:
        raise Missing(f"generated: {text}")


@feature("Reductions, sends and receives keep one order, recorded in the communication trace")
def fixed_order(c):
    runs = []
    for threads in (1, 2):
        result = small(c).with_keys(mesh=mesh(dp=2, pp=2), pipeline__microbatches=4, numerics__threads=threads,
                                    env={"TESSERA_COMM_TRACE": "1"})
        runs.append((comm_trace(result), weights(result)))
    if runs[0] != runs[1]:
        raise Missing("the order of two runs differs")
    trace = runs[0][0]
    ops = [words["op"] for words in trace[0]]
    if sorted(trace) != [0, 1, 2, 3] or ops.count("send") != 3 * 4 or "all_reduce" not in ops:
        raise Missing(f"ranks {sorted(trace)}; rank 0: {ops}")
    for words in sum(trace.values(), []):
        if words["op"] == "all_reduce" and words["algo"] != "tree":
            raise Missing(f"an unordered sum: {words}")


@feature("NCCL's collectives as graph ops: all_reduce, reduce_scatter, all_gather, broadcast")
def nccl_collectives(c):
    # x is split by columns over dp; on the host the sum over the ranks' parts is x·xᵀ.
    value = r"^y \(4, 4\): sum (\S+), norm (\S+)$"
    path = example_with(c, "dp_step.yaml", "all_reduce(product, axis=dp)", "scale(product, factor=1)")
    alone = c.run("--config", path, "--set", "device_config={mesh_shape: [1]}").matches(value)
    summed = c.run("--config", os.path.join(c.source_root, "configs/examples/dp_step.yaml")).matches(value)
    for a, b in zip(alone.groups(), summed.groups()):
        if abs(float(a) - float(b)) > 1e-5 * abs(float(a)):
            raise Missing(f"one rank {alone[0]}, two {summed[0]}")
    for statements in ("all_gather(reduce_scatter(product, axis=dp, dim=0), axis=dp, dim=0)",
                       "broadcast(all_reduce(product, axis=dp), axis=dp)"):
        c.run("--config", example_with(c, "dp_step.yaml", "all_reduce(product, axis=dp)", statements)).says(summed[0])
    c.run("doctor").matches(r"^nccl +(found|missing|mismatched) ")


@feature("NVSHMEM transport: device-side put and signal", state="refused")
def nvshmem(c):
    refused(small(c), "transport", "nvshmem", "nvshmem")
    refused(c, "transport", "{type: nvshmem}", "nvshmem")
    wrong_value(c, "transport", "pigeon").says("mpi", "nccl", "auto")
    c.run("doctor").matches(r"^nvshmem +(found|missing|mismatched) ")


@feature("DeepEP transport: the all-to-all of mixture-of-experts ops, and no other op", state="refused")
def deepep(c):
    refused(small(c), "transport", "deepep", "deepep", "experts")
    path = example_with(c, "dp_step.yaml", "axis=dp)", "axis=dp, transport=deepep)")
    result = c.run("check", "--config", path, code=2)
    result.matches(r"^\S*example\.yaml:20:\d+: error: .*deepep")
    result.says("all_reduce").never_says("unknown")


@feature("plan: all-reduce over DP, RS/AG over TP, sends over PP; checkpoints to a path or file URI")
def mapping_and_checkpoint_target(c):
    plan = small(c).with_keys("plan", "--machine", "h100", mesh=mesh(dp=2, pp=2, tp=2), pipeline__microbatches=4,
                              device_config__enable_sp=True)
    for row in ("all_reduce     dp   nvlink", "reduce_scatter tp   nvlink", "all_gather     tp   nvlink",
                "send           pp   nvlink"):
        plan.says(row)
    c.with_keys(checkpoint__dir=f"file://{c.folder}/kept")
    # Parameters, both moments of AdamW, and the history of losses and gradient norms.
    c.run("checkpoint", "verify", "kept").says(f"{3 * PARAMETERS + 2} tensors in ", "all hashes agree")
    bucket = c.with_keys("check", checkpoint__dir="s3://bucket/kept", code=2)
    bucket.says("error: 's3://bucket/kept': files are read and written by path; there is no access to 's3'",
                "= copy it, or mount it as a folder of this machine")


@feature("doctor lists each layer: MPI, NCCL, NVSHMEM, DeepEP, NVLink, InfiniBand, GPUDirect")
def layers(c):
    report = c.run("doctor")
    for layer in ("openmpi", "mpich", "driver", "cuda", "nccl", "nvshmem", "deepep", "nvlink", "infiniband",
                  "gpudirect"):
        report.matches(rf"(?i)^{layer} +(found|missing|mismatched|none) +\S")


@feature("ZeRO stages 1 to 3 over dp, with the optimizer state on the host or NVMe")
def zero_stages(c):
    def bytes_of(what, stage, dp):
        text = small(c).with_keys("check", mesh=mesh(dp=dp), zero__stage=stage)
        return number(text.matches(rf"^  {what} +([\d,]+) ")[1])

    parameters, state = bytes_of("parameters", 0, 1), bytes_of("optimizer state", 0, 1)
    if state != 2 * parameters or bytes_of("optimizer state", 0, 4) != state:
        raise Missing(f"unsharded: {parameters} bytes of parameters, {state} of state")
    for stage in (1, 2, 3):
        found = bytes_of("optimizer state", stage, 4), bytes_of("parameters", stage, 4)
        # Each shard is rounded up to the alignment of memory.
        if not all(whole / 4 <= part < 1.1 * whole / 4 for part, whole in zip(found, (state, parameters))):
            raise Missing(f"stage {stage}, dp 4: {found} of {state}, {parameters}")
    if bytes_of("gradients", 2, 4) >= bytes_of("gradients", 1, 4):
        raise Missing("stage 2 does not shard gradients")
    hashes = {weights(c.with_keys(mesh=mesh(dp=2), zero=f"{{stage: 1, offload: {where}}}"))
              for where in ("none", "cpu", "nvme")}
    if len(hashes) != 1:
        raise Missing(f"offload changes the weights: {hashes}")


@feature("Every tensor has one placement for each mesh axis: shard(d), partial or replicate")
def placements(c):
    text = small(c).with_keys("check", "--dump", "placement,memory", mesh=mesh(dp=2, tp=2)).never_says("unset")
    text.says("  input tokens i32 (8, 16) dp:shard(0)\n", "attn.wq f32 (32, 32) tp:shard(0)\n",
              "attn.wo f32 (32, 32) tp:shard(1)\n", "  param ln_f.bias f32 (32)\n")
    text.matches(r"^  h f32 \(8, 16, 32\) dp:shard\(0\) tp:partial = embedding\(tokens, wte\)")
    for states in re.findall(r" (?:f32|stored as) \([\d, ]+\)((?: [a-z]+:\S+)*)", text.out):
        axes = [s.split(":")[0] for s in states.split() if not s.startswith("units:")]
        if len(set(axes)) != len(axes) or set(axes) - {"dp", "tp"}:
            text.fail(f"placements {states}")
    # The placements are what a rank holds: their sum is the memory plan's.
    held = 0
    for shape, states in re.findall(r"^  param \S+ f32 (?:\(.*\) stored as )?\(([\d, ]+)\)(.*)$", text.out, re.MULTILINE):
        elements = 1
        for size in shape.split(", "):
            elements *= int(size)
        held += 4 * elements // (2 if "tp:shard" in states else 1)
    planned = number(text.matches(r"^  parameters +([\d,]+)$")[1])
    if held != planned:
        text.fail(f"placements hold {held} bytes of parameters, the plan {planned}")


@feature("48 devices on the axes dp, tp, pp make a 4 × 4 × 3 mesh")
def factorisation(c):
    for axes, devices, shape, sizes in (("dp, tp, pp", 48, "4 × 4 × 3", (4, 4, 3)), ("dp, tp", 16, "4 × 4", (4, 4)),
                                        ("dp, tp, pp", 72, "6 × 4 × 3", (6, 4, 3))):
        result = small(c).with_keys("inspect", mesh=f"{{axes: [{axes}], devices: {devices}}}", numerics__units={},
                                    training_config__batch_size=144)
        result.says(f"{axes.replace(', ', ' × ')} mesh, {shape}", f"ranks: {devices}\n")
        for position, (axis, size) in enumerate(zip(axes.split(", "), sizes)):
            result.says(f"  {axis}: size {size}, axis {position}, {devices // size} groups")


@feature("Graph IR: collectives as nodes, with shapes, dtypes and placements (--emit graph-ir)")
def graph_ir(c):
    text = small(c).with_keys("trace", "--emit", "graph-ir", mesh=mesh(dp=2, tp=2))
    before, after = text.out.split("after placement:")
    if "all_reduce(" in before or "schedule" in before:
        text.fail("the graph before placement has collectives")
    for line in ("  block.0.o.product f32 (8, 16, 32) dp:shard(0) tp:partial = linear(block.0.a, block.0.attn.wo)\n",
                 "  block.0.o.product.reduced_tp f32 (8, 16, 32) dp:shard(0) = all_reduce(block.0.o.product, axis: tp",
                 "  loss.reduced_dp f32 (1) = all_reduce(loss, axis: dp"):
        if line not in after:
            text.fail(f"after placement there is no line: {line}")
    if c.with_keys("trace", "--emit=graph-ir", mesh=mesh(dp=2, tp=2)).out != text.out:
        text.fail("--emit=graph-ir prints something else")


@feature("Schedule IR: streams, events and overlapped collectives (--emit schedule-ir)")
def schedule_ir(c):
    text = small(c).with_keys("trace", "--emit", "schedule-ir", mesh=mesh(dp=2), schedule__bucket_size="16KiB",
                              schedule__all_reduce_overlap=True)
    text.matches(r"^ task +section +op +stream +event +axis +")
    begun = re.findall(r"^ +(\d+) +backward +all_reduce +1 +ends in b(\d+) +dp ", text.out, re.MULTILINE)
    waits = dict(re.findall(r"^ +\d+ +(update) +wait +0 +after b(\d+) ", text.out, re.MULTILINE))
    waited = set(re.findall(r" wait +0 +after b(\d+) ", text.out))
    if len(begun) < 4 or {bucket for _, bucket in begun} != waited or len(waited) < 2 or not waits:
        text.fail(f"buckets begun {begun}, waited for {waited}")
    synchronous = c.with_keys("trace", "--emit", "schedule-ir", mesh=mesh(dp=2))
    if re.search(r" all_reduce +1 ", synchronous.out):
        synchronous.fail("without overlap there are collectives on stream 1")


@feature("Tile IR: grid, blocks and warps of each task, from the plan (--emit tile-ir)")
def tile_ir(c):
    text = small(c).with_keys("trace", "--emit", "tile-ir", device_config__device="cuda", mesh=mesh(tp=2))
    text.matches(r"\bgrid\b.*\b(block|threads)\b.*\bwarps\b")
    for op in ("linear", "attention", "layernorm", "adamw", "all_reduce"):
        text.matches(rf"^ +\d+ .*\b{op}\b.*\b\d+\b.*\b\d+\b.*\b\d+\b")
    unsplit = c.with_keys("trace", "--emit", "tile-ir", device_config__device="cuda")
    if unsplit.out == text.out:
        text.fail("one rank has the geometry of two")
    c.run("trace", "--help").says("tile-ir")


@feature("On a GPU a few launches sum the squares of all gradients, cast all parameters and update them")
def few_launches(c):
    keys = {"device_config__device": "cuda", "training_config__precision": "bf16",
            "training_config__use_clip_grad_norm": "true"}
    text = small(c).with_keys("trace", "--emit", "tile-ir", **keys)
    for op, kernel in (("cast", "casts"), ("norm_stats", "rectangle_squares"), ("adamw", "adamw")):
        text.matches(rf"^ +\d+ +\w+ +{PARAMETERS} {op} +\(.*  {kernel}\b")
        launches = len(re.findall(rf"  {kernel}\b", text.out))
        if launches > 4:
            text.fail(f"{launches} launches of {kernel}")


@feature("On a GPU the GEMMs of q, k and v, of gate and up, and of their weights' gradients are one batched call")
def batched_gemms(c):
    llama = {"transformer_config__model_type": "llama", "transformer_config__num_groups": 2}
    models = {"gpt2": {}, "llama": {**llama, "training_config__batch_size": 32}}
    for model, keys in models.items():
        text = small(c).with_keys("trace", "--emit", "tile-ir", device_config__device="cuda", **keys)
        for op in ("linear", "linear_dw"):
            count = 2 if model == "llama" else 3
            text.matches(rf"^ +\d+ +\w+ +{count} {op}\b.*  cuBLASLt .* batch of {count}\b")


@feature("On a GPU attention with sinks runs on the device")
def device_attention(c):
    text = small(c).with_keys("check", "--dump", "program", device_config__device="cuda",
                              transformer_config__model_type="gpt_oss", transformer_config__num_groups=2)
    text.matches(r"^ +\d+ +attention .*attn\.sinks")
    text.matches(r"^ +\d+ +attention_sinks_dx ")
    if re.search(r" attention\S* +on the host", text.out):
        text.fail("the host has attention")


@feature("transport: per op nccl or auto; plan prints the choice and its reason")
def transport_auto(c):
    plan = small(c).with_keys("plan", "--machine", "h100", mesh=mesh(dp=2, tp=2),
                              **{key_named(c, "transport").replace(".", "__"): "auto"})
    plan.matches(r"(?i)^.*transport\b.*\bnccl\b.*\bauto\b.*|^.*transport\b.*\bauto\b.*\bnccl\b.*")
    whole = c.run("--config", os.path.join(c.source_root, "configs/examples/dp_step.yaml")).matches(r"^y .*")[0]
    c.run("--config", example_with(c, "dp_step.yaml", "axis=dp)", "axis=dp, transport=auto)")).says(whole)
    path = example_with(c, "dp_step.yaml", "axis=dp)", "axis=dp, transport=nccl)")
    named = c.run("plan", "--config", path, "--machine", "galaxy", "--set", "device_config.device=cuda")
    named.says("transport: nccl (transport=nccl in the graph)").matches(r"^  all_reduce +dp .* nccl ")
    path = example_with(c, "dp_step.yaml", "axis=dp)", "axis=dp, transport=nvshmem)")
    c.run("check", "--config", path, code=2).matches(r":20:\d+: error: .*nvshmem")


@feature("All-reduces of processes of one host in shared memory, with the bits of messages")
def shared_all_reduce(c):
    words = launcher(c)
    if not words:
        raise Missing("no MPI is here with the program's plugin")
    found = {}
    for algorithm in ("auto", "tree"):
        result = small(c).command(*words, "-n", "2", c.program, "--config", "run.yaml", "--set", f"mesh={mesh(dp=4)}", "--set",
                                  f"collectives.all_reduce={algorithm}", env={**MPI, "TESSERA_COMM_TRACE": "1"})
        line = r"^comm step=\d+ rank=\d+ seq=\d+ op=all_reduce axis=dp bytes=\d+ algo=(\w+) tree=.*path=\w+ ms=\S+ what=\S+$"
        found[algorithm] = set(re.findall(line, result.text, re.MULTILINE)), weights(result)
    if [found[name][0] for name in ("auto", "tree")] != [{"shared"}, {"tree"}] or found["auto"][1] != found["tree"][1]:
        raise Missing(f"algorithms and weights: {found}")


@feature("Under the deterministic policy no collective takes an unordered algorithm")
def ordered_paths(c):
    words = [*launcher(c), "-n", "2"] if launcher(c) else []
    algorithms = {}
    for policy in ("deterministic", "fast"):
        result = small(c).command(*words, c.program, "--config", "run.yaml", "--set", f"mesh={mesh(dp=4)}", "--set",
                                  f"numerics.policy={policy}", env={**MPI, "TESSERA_COMM_TRACE": "1"})
        # Of two processes, mpirun may mix lines, so this reads whole lines only.
        line = r"^comm step=\d+ rank=\d+ seq=\d+ op=all_reduce axis=dp bytes=\d+ algo=(tree|shared|hier|mpi|nccl) tree=.*path=\w+ ms=\S+ what=\S+$"
        algorithms[policy] = set(re.findall(line, result.text, re.MULTILINE))
    if algorithms["deterministic"] != {"shared" if words else "tree"} or (words and "mpi" not in algorithms["fast"]):
        raise Missing(f"algorithms: {algorithms}")


@feature("validate: replicas compares weights and optimizer state of ranks that hold the same part, every N steps")
def validate_replicas(c):
    key = key_named(small(c), "validate").replace(".", "__")
    plain = weights(c.with_keys(mesh=mesh(dp=4)))
    result = c.with_keys(mesh=mesh(dp=4), **{key: "replicas"})
    if weights(result) != plain:
        result.fail("validation changes the weights")
    result.matches(r"(?m)^.*replicas.*\b(3 steps|equal|agree)\b.*$")
    c.with_keys(mesh=mesh(dp=4), validate_every=2, **{key: "replicas"}).says("replicas: equal at 2 checks")
    wrong_value(c, "validate", "copies").says("replicas")
    wrong_value(c, "validate_policy", "retry").says("stop, warn, resume")

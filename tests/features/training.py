# SPDX-License-Identifier: Apache-2.0
"""Checks of the trainer: loss, precision, optimizers, data and tensor parallel training.

Numbers come from a bigram model, a table of logits by token: its loss, gradients and updates are computed here in
double precision, and its batch is the whole text, so that the order of the samples does not matter.
"""
import json
import math
import os
import re
import shutil
import struct

from feature import Missing, feature

# A GPT whose sums have the units that all meshes here need, so that their bits agree.
GPT = """\
training_config:
  seed: 7
  batch_size: 8
  max_steps: 3
  data_path: text.txt
  tokenizer_type: char
  eval_every: 0
  sample_tokens: 0
  log_every: 1
  precision: f32
  optimizer: {type: AdamW, lr: 0.001}
transformer_config: {model_type: gpt2, vocab_size: 0, num_heads: 4, embedding_dim: 32, num_blocks: 4,
                     max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 8, tp: 4}}
"""

BIGRAM = """\
training_config:
  seed: 3
  batch_size: 4
  sequence_length: 4
  sample_stride: 4
  max_steps: 3
  num_epochs: 1000
  data_path: letters.txt
  tokenizer_type: byte
  validation_fraction: 0
  eval_every: 0
  sample_tokens: 0
  log_every: 1
  precision: f32
  optimizer: {type: SGD, lr: 8.0}
transformer_config: {graph: bigram.yaml}
numerics: {threads: 1, units: {batch: 4}}
"""
BIGRAM_GRAPH = """\
name: bigram
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  table: {shape: [256, 256], init: zeros}
graph:
- logits: scale(embedding(tokens, table), factor=1)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss}
"""
LETTERS = "banana and cabana"  # four samples of four tokens, and the last target

# A block of attention whose weight holds q, k and v of each head together, so that a slice of it holds whole heads.
FUSED_QKV = """\
name: fused_qkv
sizes: {embedding_dim: 16, num_heads: 4, head_dim: embedding_dim / num_heads}
inputs:
  tokens: {shape: [batch, sequence], dtype: i32}
  targets: {shape: [batch, sequence], dtype: i32}
parameters:
  wte: {shape: [256, embedding_dim], init: normal(0.5)}
  w_qkv: {shape: [3 * embedding_dim, embedding_dim], init: normal(0.3), tp: shard(0)}
  w_out: {shape: [embedding_dim, embedding_dim], init: normal(0.3), tp: shard(0)}
graph:
- x: embedding(tokens, wte)
- by_head: "reshape(linear(x, w_qkv), shape=[batch, sequence, num_heads, 3 * head_dim])"
- q, k, v: split(by_head, sections=3, dim=-1)
- a: flash_attention(transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2), causal=True)
- heads: "reshape(transpose(a, 1, 2), shape=[batch, sequence, embedding_dim])"
- rows: "matmul(reshape(heads, shape=[batch * sequence, embedding_dim]), w_out)"
- x: "add(x, reshape(rows, shape=[batch, sequence, embedding_dim]))"
- logits: linear(x, wte)
- loss: cross_entropy(logits, targets)
outputs: {loss: loss}
"""


def mesh(**sizes):
    return {"axes": list(sizes), "shape": list(sizes.values())}


def gpt(c):
    c.write("run.yaml", GPT)


def bigram(c, letters=LETTERS):
    c.write("run.yaml", BIGRAM)
    c.write("bigram.yaml", BIGRAM_GRAPH)
    c.write("letters.txt", letters)


def trained(c, **keys):
    """The metrics' step lines and end line of a run of run.yaml."""
    name = f"metrics{c.commands}.jsonl"
    c.with_keys("train", "--quiet", "--metrics", name, **keys)
    lines = c.metrics(name)
    return [line for line in lines if line["event"] == "step"], lines[-1]


def bits(c, **keys):
    """All losses and gradient norms of a run, and the hash of its weights."""
    steps, end = trained(c, **keys)
    return [(s["step"], s["loss"], s["grad_norm"]) for s in steps], end["weights_sha256"]


def same(what, values):
    if any(value != values[0] for value in values):
        raise Missing(f"{what} differ: {values}")


def expect(truth, why):
    if not truth:
        raise Missing(why)


def close(got, want, tolerance, what):
    if len(got) != len(want) or any(abs(g - w) > tolerance * max(1e-3, abs(w)) for g, w in zip(got, want)):
        raise Missing(f"{what}: {got}, not {want}")


def update_sgd(rate):
    return lambda table, gradient: [[w - rate * g for w, g in zip(*rows)] for rows in zip(table, gradient)]


def update_adam(rate, decay, decoupled):
    """torch.optim.AdamW, or Adam, which adds its decay to the gradient."""
    moments = {}

    def element(key, w, g, step):
        g += 0 if decoupled else decay * w
        m, v = moments.get(key, (0.0, 0.0))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        moments[key] = m, v
        w *= 1 - rate * decay if decoupled else 1
        return w - rate * m / (1 - 0.9 ** step) / (math.sqrt(v / (1 - 0.999 ** step)) + 1e-8)

    def update(table, gradient):
        moments["step"] = step = moments.get("step", 0) + 1
        return [[element((i, j), w, g, step) for j, (w, g) in enumerate(zip(*rows))]
                for i, rows in enumerate(zip(table, gradient))]
    return update


def by_hand(letters, steps, update, ignored=None, clip=0.0):
    """Losses and gradient norms of the bigram model: the rows of its table, zeros at first, of letters that occur.

    A column of the table is a letter; those that do not occur are alike, so which they are makes no difference."""
    names = sorted(set(letters))
    pairs = [(names.index(a), names.index(b)) for a, b in zip(letters, letters[1:]) if b != ignored]
    table, numbers = [[0.0] * 256 for _ in names], []
    for _ in range(steps):
        loss, gradient = 0.0, [[0.0] * 256 for _ in names]
        for a, b in pairs:
            powers = [math.exp(x) for x in table[a]]
            total = sum(powers)
            loss -= math.log(powers[b] / total) / len(pairs)
            gradient[a] = [g + p / total / len(pairs) for g, p in zip(gradient[a], powers)]
            gradient[a][b] -= 1 / len(pairs)
        norm = math.sqrt(sum(g * g for row in gradient for g in row))
        if clip and norm > clip:
            gradient = [[g * clip / norm for g in row] for row in gradient]
        numbers.append((loss, norm))
        table = update(table, gradient)
    return [n[0] for n in numbers], [n[1] for n in numbers]


def agrees(c, letters, want, tolerance=2e-5, **keys):
    """The run's losses and gradient norms are those computed by hand."""
    steps, _ = trained(c, **keys)
    close([s["loss"] for s in steps], want[0], tolerance, "losses")
    close([s["grad_norm"] for s in steps], want[1], tolerance, "gradient norms")


def parameters(said):
    """The number of the model's parameters that `check` prints."""
    return int(said.matches(r"^(?:parameters: |model: \w+, )([\d,]+)(?: parameters)?$")[1].replace(",", ""))


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def tensors(c, folder):
    """{name: (file, dtype, bytes)} of a checkpoint's tensors and pieces of tensors."""
    found, folder = {}, os.path.join(c.folder, folder)
    for name in sorted(n for n in os.listdir(folder) if n.startswith("rank-")):
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        size = struct.unpack("<Q", data[:8])[0]
        for tensor, entry in json.loads(data[8:8 + size]).items():
            if tensor != "__metadata__":
                begin, end = (8 + size + offset for offset in entry["data_offsets"])
                found[tensor] = (name, entry["dtype"], data[begin:end])
    return found


def launched(c, processes, *words, code=0):
    """The program under an mpirun, or None where there is none."""
    for name, more in (("mpich", []), ("openmpi", ["--oversubscribe"])):
        if shutil.which(f"mpirun.{name}") and os.path.exists(
                os.path.join(os.path.dirname(c.program), f"libtessera-{name}.so")):
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            return c.command(f"mpirun.{name}", *more, "-n", str(processes), c.program, *words, code=code, env=root)
    return None


@feature("From one GPU to 72 and more: plan of DP × TP × PP meshes of any size on any machine")
def from_one_to_72(c):
    gpt(c)
    wide = {"transformer_config__num_heads": 12, "transformer_config__embedding_dim": 48, "numerics__units": {},
            "pipeline__microbatches": 8, "training_config__batch_size": 48}
    for shape, groups in (([1, 1, 1], None), ([6, 4, 3], "tp 12 of 6, pp 18 of 4, dp 24 of 3"),
                          ([12, 4, 6], "tp 24 of 12, pp 72 of 4, dp 48 of 6")):
        ranks = math.prod(shape)
        said = c.with_keys("plan", "--machine", "h100", mesh={"axes": ["tp", "pp", "dp"], "shape": shape}, **wide)
        if groups:
            text = " × ".join(map(str, shape))
            said.says(f"mesh: tp × pp × dp mesh, {text}, {ranks} ranks; groups: {groups}\n")
        said.says(f"model / ({ranks} device")
    c.with_keys("plan", mesh={"axes": ["tp", "pp", "dp"], "devices": 72}, **wide).says("6 × 4 × 3, 72 ranks")


# Section, example, a line of its check, and the page that describes it with a text of that page.
SECTIONS = (
    ("single device", "bench_gpt2_124m", r"^ParallelismContext: a single rank, no axes$", "tutorial.md",
     "**3. Train**"),
    ("data parallel", "qwen3_dp", r"^ParallelismContext: DP axis 0 \(size 4\)$", "parallelism.md", "\n## Axes\n"),
    ("tensor parallel", "llama_tp", r"^ParallelismContext: TP axis 0 \(size 4\)$", "parallelism.md", "\n| `tp` |"),
    ("pipeline parallel", "llama_pp", r"^ParallelismContext: DP axis 0 \(size 2\), PP axis 1 \(size 2\)$",
     "parallelism.md", "\n## Pipeline\n"),
    ("hybrid", "llama_dp_tp", r"^ParallelismContext: DP axis 0 \(size 4\), TP axis 1 \(size 2\)$", "parallelism.md",
     "\n## Which combinations keep the bits\n"),
    ("memory", "gpt2_zero3_recompute", r"^parameters: sharded over fsdp = 4, replicated over dp = 1$",
     "parallelism.md", "\n## ZeRO\n"),
    ("loops and optimization", "gpt2_bf16", r"^recipe: .*, bf16, ", "tessera-train.1", "gradient_accumulation_steps"))


@feature("An example and a page for single device, DP, TP, PP, hybrid, memory, loop and monitoring")
def examples_and_pages(c):
    def page(name):
        with open(os.path.join(c.source_root, "docs", name)) as f:
            return f.read()
    for section, name, pattern, file, text in SECTIONS:
        c.run("check", "--config", os.path.join(c.source_root, "configs", "runs", f"{name}.yaml")).matches(pattern)
        expect(text in page(file), f"docs/{file} has nothing of {section}: {text!r}")
    gpt(c)
    c.with_keys("profile", "--steps", "1").matches(r"^profile of 1 step, ")
    expect("\n## Trace and profile\n" in page("parallelism.md"), "docs/parallelism.md has nothing of monitoring")


@feature("Cross-entropy with ignore_index: ignored targets have no loss and gradient; all ignored: 0")
def ignored_targets(c):
    bigram(c)
    for extra in ({}, {"mesh": mesh(dp=2)}, {"mesh": mesh(dp=4)}):
        agrees(c, LETTERS, by_hand(LETTERS, 3, update_sgd(8.0)), **extra)
        agrees(c, LETTERS, by_hand(LETTERS, 3, update_sgd(8.0), ignored="a"),
               training_config__ignore_index=ord("a"), **extra)
    bigram(c, "a" * 17)
    steps, _ = trained(c, training_config__ignore_index=ord("a"))
    expect([(s["loss"], s["grad_norm"]) for s in steps] == [(0, 0)] * 3, f"all ignored: {steps}")


@feature("Typed shapes with symbolic dimensions: a mismatch names the dimension, such as sequence")
def symbolic_shapes(c):
    bigram(c)
    other = "table: {shape: [256, 256], init: zeros}\n  other: {shape: [%s], init: zeros}"
    graph = BIGRAM_GRAPH.replace("table: {shape: [256, 256], init: zeros}", other)
    c.write("bigram.yaml", graph.replace("scale(embedding(tokens, table), factor=1)",
                                         "linear(embedding(tokens, table), other)") % "8, sequence")
    c.with_keys("check", code=2).matches(r"^bigram.yaml:9:\d+: error: linear: .*\bsequence\b")
    c.write("bigram.yaml", graph.replace("scale(", "add(").replace("factor=1", "other") % "sequence, 8")
    c.with_keys("check", code=2).matches(r"^bigram.yaml:9:\d+: error: add: .*\bsequence\b")
    c.write("bigram.yaml", BIGRAM_GRAPH.replace("embedding(tokens", "embedding(table"))
    c.with_keys("check", code=2).says("error: embedding: 'table' holds numbers, not tokens\n")


@feature("Order of a step: forward, backward, gradient clipping, optimizer")
def order_of_a_step(c):
    gpt(c)
    text = c.with_keys("trace", "--emit", "schedule-ir", training_config__use_clip_grad_norm=True).out
    order = [r"^runs: (prologue )?F0 B0 update$", r"^forward$", r"^ +\d+  softmax_loss ", r"^backward$",
             r"^ +\d+  softmax_loss_dx ", r"^update$", r"^ +\d+  norm_join ", r"^ +\d+  clip ", r"^ +\d+  adamw "]
    places = [re.search(pattern, text, re.MULTILINE) for pattern in order]
    expect(all(places), f"missing in the trace: {[o for o, p in zip(order, places) if not p]}")
    starts = [place.start() for place in places]
    expect(starts == sorted(starts), f"the trace has another order: {starts}")


@feature("Clipping by the global norm of all shards, equal on every mesh; gradient_clip_norm 0: none")
def clip_by_global_norm(c):
    bigram(c)
    clip = by_hand(LETTERS, 1, update_sgd(8.0))[1][0] / 2
    agrees(c, LETTERS, by_hand(LETTERS, 3, update_sgd(8.0), clip=clip), training_config__gradient_clip_norm=clip)
    agrees(c, LETTERS, by_hand(LETTERS, 3, update_sgd(8.0)), training_config__gradient_clip_norm=0)
    gpt(c)
    clipped = {"training_config__gradient_clip_norm": 0.5}
    runs = [bits(c, **clipped), bits(c, mesh=mesh(tp=4), **clipped), bits(c, mesh=mesh(dp=2, tp=2), **clipped),
            bits(c, mesh=mesh(pp=2, tp=2), pipeline__microbatches=4, **clipped),
            bits(c, mesh=mesh(dp=4), zero__stage=3, **clipped)]
    same("losses, gradient norms and weights", runs)
    expect(runs[0] != bits(c), "clipping changes nothing")


@feature("Defaults of an empty training section, printed with their origin by --print-config")
def defaults(c):
    c.write("empty.yaml", "training_config: {}\n")
    said = c.run("check", "--config", "empty.yaml", "--print-config")
    # first keys that tt-train has, with its defaults, then those that it lacks
    for key, value in {"batch_size": "64", "max_steps": "5000", "weight_decay": "0.01",
                       "clip_grad_norm_max_norm": "1.0", "use_clip_grad_norm": "false"}.items():
        said.matches(rf"^ +{key}: {re.escape(value)}  # default$")
    # Trained in bf16 by default where the device is a GPU; a CPU computes in f32.
    said.matches(r"^ +mixed_precision: false  # default$")
    said = c.run("check", "--config", "empty.yaml", "--print-config", "--set", "device_config.device=cuda", code=None)
    said.matches(r"^ +mixed_precision: true  # default$")
    c.write("named.yaml", "training_config: {total_steps: 7, learning_rate: 1e-4, gradient_clip_norm: 1.0}\n")
    said = c.run("check", "--config", "named.yaml", "--print-config")
    said.matches(r"^  max_steps: 7  # named.yaml:1$")
    said.matches(r"^    lr: 0.0001  # named.yaml:1$")
    said.matches(r"^  use_clip_grad_norm: true  # named.yaml:1$")


@feature("Training runs exactly total_steps; an earlier end by num_epochs is a warning with reason")
def exact_steps(c):
    bigram(c)
    c.write("run.yaml", BIGRAM.replace("max_steps: 3", "total_steps: 5"))
    steps, end = trained(c)
    expect([s["step"] for s in steps] == [1, 2, 3, 4, 5], f"steps: {steps}")
    expect(end["step"] == 5 and end.get("reason") == "max_steps", f"the end line has no such reason: {end}")
    said = c.with_keys("train", "--metrics", "short.jsonl", training_config__num_epochs=2)
    end = c.metrics("short.jsonl")[-1]
    expect(end["step"] == 2 and end.get("reason") == "num_epochs", f"the end line has no such reason: {end}")
    said.matches(r"warning: .*num_epochs")


@feature("A step is compiled once: every step runs the launch plan that trace prints")
def compiled_once(c):
    gpt(c)
    dp = {"mesh": mesh(dp=2, pp=2), "pipeline__microbatches": 2}
    said = c.run("train", "--quiet", "--config", "run.yaml", "--set", f"mesh={json.dumps(dp['mesh'])}", "--set",
                 "pipeline.microbatches=2", env={"TESSERA_COMM_TRACE": "1"})
    steps = {}
    for step, rest, what in re.findall(r"^comm step=(\d+) rank=1 seq=\d+ (.*?) ms=\S+ what=(\S+)$", said.err, re.M):
        steps.setdefault(step, []).append((rest, what))
    expect(len(steps) == 3 and steps["1"], f"collectives of steps {list(steps)} are traced")
    same("the collectives of steps", list(steps.values()))
    table = c.with_keys("trace", "--rank", "1", **dp).out.split("communication of rank 1:\n")[1]
    planned = {}
    for op, times, what in re.findall(r"^ *\d+  \w+ +(\w+) .* (\d+)  (\S+), (?:with|to|from)", table, re.M):
        planned[op, what] = planned.get((op, what), 0) + int(times)
    ran = {}
    for rest, what in steps["1"]:
        op = re.search(r"op=(\w+)", rest)[1]
        ran[op, what] = ran.get((op, what), 0) + 1
    expect(ran == planned, f"a step runs {ran}, the trace has {planned}")


@feature("Log lines `Step {n}: Loss = {x:.4f}` every log_every steps, every 100 by default")
def log_lines(c):
    bigram(c)
    c.write("run.yaml", BIGRAM.replace("  log_every: 1\n", ""))
    said = c.with_keys("train", "--metrics", "metrics.jsonl", training_config__max_steps=250)
    losses = {m["step"]: m["loss"] for m in c.metrics("metrics.jsonl") if m["event"] == "step"}
    lines = re.findall(r"^Step (\d+): Loss = (\d+\.\d{4})\b", said.out, re.M)
    expect(lines[:2] == [(str(n), f"{losses[n]:.4f}") for n in (100, 200)], f"lines: {lines}")
    said = c.with_keys("train", training_config__max_steps=5, training_config__log_every=2)
    expect(re.findall(r"^Step (\d+): Loss", said.out, re.M)[:2] == ["2", "4"], f"not at steps 2 and 4: {said.out}")


@feature("Checkpoint every checkpoint_every steps and at the end")
def checkpoint_every(c):
    bigram(c)
    c.with_keys("train", "--quiet", training_config__max_steps=5, training_config__checkpoint_every=2,
                training_config__checkpoint_dir="kept")
    said = c.run("checkpoint", "ls", "kept").out
    expect(re.findall(r"^ +(\d+) ", said, re.M) == ["2", "4", "5"], f"checkpoints: {said}")
    c.with_keys("check", "--print-config", training_config__checkpoint_every=5000).matches(
        r"^  model_save_interval: 5000  # --set$")


@feature("Mixed precision bf16: bf16 activations, f32 master weights, gradients and optimizer state")
def bf16_master_weights(c):
    gpt(c)
    half = {"training_config__precision": "bf16"}
    text = c.with_keys("trace", "--emit", "graph-ir", **half).out.split("after placement")[1]
    for pattern in (r"^  param lm_head f32 ", r"^  state lm_head.m f32 ", r"^  lm_head.bf16 bf16 .* = cast\(lm_head\)",
                    r"^  block.0.f bf16 ", r"^  d.block.0.a bf16 ", r"^  d.lm_head@logits f32 "):
        expect(re.search(pattern, text, re.M), f"the trace has nothing like: {pattern}")
    full, half = trained(c)[0], trained(c, training_config__checkpoint_dir="kept", **half)[0]
    close([s["loss"] for s in half], [s["loss"] for s in full], 1e-2, "losses of bf16 and f32")
    expect(full[-1]["loss"] != half[-1]["loss"], "bf16 computes the bits of f32")
    kinds = {dtype for _, dtype, _ in tensors(c, "kept/step-00000003").values()}
    expect(kinds == {"F32"}, f"the checkpoint has tensors of {kinds}")


@feature("numerics.isa: amx-bf16 and v4-bf16 multiply bf16 with instructions for it: equal bits on every mesh, "
         "other bits than x86-64-v4")
def bf16_levels(c):
    gpt(c)
    half = {"training_config__precision": "bf16", "numerics__units": {"batch": 4, "tp": 2}}
    lines = re.findall(r"^  (\S+)( +not on this machine)?", c.run("kernels").out.split("levels:")[1], re.M)
    missing = {level: bool(without) for level, without in lines}
    for level in ("amx-bf16", "v4-bf16"):
        if missing.get(level, True):
            c.run("train", "--config", "run.yaml", "--set", f"numerics.isa={level}", code=2)
            continue
        one, two, below = (trained(c, numerics__isa=isa, mesh=shape, **half)[1]["weights_sha256"] for isa, shape in (
            (level, mesh(dp=1)), (level, mesh(dp=2, tp=2)), ("x86-64-v4", mesh(dp=1))))
        same(f"weights of {level} on two meshes", [one, two])
        expect(one != below, f"{level} has the bits of x86-64-v4")


@feature("Precision fp8: linear layers read e4m3 or e5m2 by blocks, all else is bf16; named layers stay out; checkpoints are f32")
def fp8_layers(c):
    gpt(c)
    fp8 = {"training_config__precision": "fp8"}
    text = c.with_keys("trace", "--emit", "graph-ir", **fp8).out.split("after placement")[1]
    # What lies between a linear layer and its bias is f32, and rounded to bf16 behind the bias.
    for pattern in (r"^  param lm_head f32 ", r"^  block.0.q.product f32 .* = linear\(.*, fp8: e4m3\)", r"^  logits f32 .* = linear\([^:]*\)$",
                    r"^  block.0.q bf16 .* = add\(block.0.q.product,",
                    r" = linear_dx\(.*, fp8: e4m3\)", r" = linear_dw\(.*, fp8: e4m3\)"):
        expect(re.search(pattern, text, re.M), f"the trace has nothing like: {pattern}")
    keys = {"training_config__fp8": "{gradients: e5m2, scales: f32, exclude: [wq]}"}
    text = c.with_keys("trace", "--emit", "graph-ir", **fp8, **keys).out.split("after placement")[1]
    expect(re.search(r"^  block.0.q.product f32 .* = linear\([^:]*\)$", text, re.M), "q is not left out")
    expect("fp8: e5m2 gradients with f32 scales" in text, "the trace has no e5m2")
    runs = [trained(c, training_config__checkpoint_dir=f"kept{i}", **more)[0]
            for i, more in enumerate(({"training_config__precision": "bf16"}, fp8, fp8 | keys))]
    losses = [[s["loss"] for s in run] for run in runs]
    close(losses[1], losses[0], 3e-2, "losses of fp8 and bf16")
    expect(losses[0] != losses[1] != losses[2], "fp8 computes other bits")
    kinds = {dtype for _, dtype, _ in tensors(c, "kept1/step-00000003").values()}
    expect(kinds == {"F32"}, f"the checkpoint has tensors of {kinds}")


@feature("Loss scaling: gradients do not depend on the scale, equal bits for powers of two")
def scale_independence(c):
    bigram(c)
    runs = []
    for scale in (1, 256, 65536):
        scaled = {"precision": "fp16", "loss_scale": {"mode": "static", "init": scale}}
        steps, end = trained(c, **{f"training_config__{k}": v for k, v in scaled.items()})
        expect(all(s["underflows"] == 0 and s["overflows"] == 0 and s["loss_scale"] == scale for s in steps), steps)
        runs.append(([(s["loss"], s["grad_norm"]) for s in steps], end["weights_sha256"]))
    same("losses, norms and weights of three scales", runs)
    want = by_hand(LETTERS, 3, update_sgd(8.0))
    close([loss for loss, _ in runs[0][0]], want[0], 2e-3, "losses")
    close([norm for _, norm in runs[0][0]], want[1], 2e-2, "gradient norms")


@feature("Dynamic loss scale: grows by 1.0001 a good step up to 65536, or doubles every interval")
def growing_scale(c):
    bigram(c)
    fp16 = {"training_config__precision": "fp16", "training_config__max_steps": 101}
    steps, _ = trained(c, training_config__loss_scale={"mode": "tessera", "init": 1024}, **fp16)
    want = [1024.0]
    for _ in range(100):
        want.append(min(float32(want[-1] * float32(1.0001)), 65536.0))
    close([s["loss_scale"] for s in steps], want, 1e-7, "loss scales")
    expect(f"{steps[100]['loss_scale']:.4f}" == "1034.2926", steps[100])
    steps, _ = trained(c, training_config__loss_scale={"mode": "tessera", "init": 65530}, **fp16)
    expect([s["loss_scale"] for s in steps[:3]] == [65530, 65536, 65536], f"no end at 65536: {steps[:3]}")
    steps, _ = trained(c, training_config__loss_scale={"mode": "interval", "init": 512, "interval": 50}, **fp16)
    expect([steps[i]["loss_scale"] for i in (0, 49, 50, 99, 100)] == [512, 512, 1024, 1024, 2048], "no doubling")


@feature("Gradient overflow: the step changes no weight on any rank, and the loss scale is halved")
def overflow(c):
    bigram(c)
    c.write("bigram.yaml", BIGRAM_GRAPH.replace("factor=1)", "factor=4000)"))  # gradients of 4000 × 65536 / 16
    said = c.with_keys("train", "--metrics", "m.jsonl", training_config__precision="fp16")
    said.says(*(f"Gradient overflow detected, reducing loss scale to {s}\n" for s in (32768, 16384, 8192)))
    losses = [m["loss"] for m in c.metrics("m.jsonl") if m["event"] == "step"]
    expect(losses == [losses[0]] * 3 and abs(losses[0] - math.log(256)) < 1e-6, f"weights changed: {losses}")
    gpt(c)
    huge = {"training_config__precision": "fp16", "training_config__loss_scale": {"mode": "static", "init": 2 ** 30}}
    meshes = ({}, {"mesh": mesh(dp=2, tp=2)}, {"mesh": mesh(dp=2, pp=2, tp=2), "pipeline__microbatches": 2},
              {"mesh": mesh(dp=4), "zero__stage": 2})
    ends = [trained(c, training_config__max_steps=n, **m, **huge)[1]["weights_sha256"] for m in meshes for n in (1, 3)]
    same("weights after skipped steps", ends)

# SPDX-License-Identifier: Apache-2.0
"""Checks of runs on devices: the start of a run, its errors, the C interface, signals, and two whole examples."""
import csv
import json
import os
import re
import struct
import sys

from devices import CUSTOM, HOME, config, descriptor, wide
from feature import feature
from training import GPT, bits, close, expect, gpt, launched, parameters, same, tensors

LLAMA_RUN = """\
training_config:
  project_name: "tt_train_llama8b_tp_dp"
  batch_size: 4  # Total batch size across all DP groups
  model_config: "configs/model_configs/llama8b_galaxy_tp_dp.yaml"

device_config:
  enable_tp: true
  enable_ddp: true
  mesh_shape: [4, 8]  # 4 DP groups × 8 TP devices = 32 devices
"""
LLAMA = """\
transformer_config: {model_type: llama, vocab_size: %d, embedding_dim: 64, num_blocks: 2, num_heads: 8, num_groups: 8,
                     max_sequence_length: 16}
"""
# A C program of tt-train's calls, with what they return and report.
C_CALLS = """\
#include "parallel/parallel.h"

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  static tsr_parallel parallel = {.size = {[TSR_DP] = 4, [TSR_TP] = 8}};
  const tsr_parallel *got = NULL;
  int size = 0;
%s
  fflush(stdout);
  tsr_diags_print(diags, stdout);
  tsr_arena_free(arena);
}
"""
BASE = ("arena", "text", "diag", "utf8", "memory")
# Sends a signal to a run when it has logged its third step; for words: program, signal, arguments.
SIGNALLER = """\
import subprocess, sys
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, text=True)
for line in run.stdout:
    print(line, end="")
    if line.startswith("Step 3:"):
        run.send_signal(int(sys.argv[1]))
sys.exit(run.wait())
"""
ENDLESS = {"max_steps": 1000000, "num_epochs": 1000000}


def c_calls(c, *calls):
    """What a C program prints that makes these calls: the results, then the errors."""
    c.write("calls.c", C_CALLS % "\n".join(f'  printf("%d\\n", {call});' for call in calls))
    src = os.path.join(c.source_root, "src")
    files = [os.path.join(src, "parallel", "parallelism_context.c")] + [
        os.path.join(src, "base", f"{name}.c") for name in BASE]
    c.command("cc", "-std=gnu2x", f"-I{src}", "calls.c", *files, "-o", "calls")
    return c.command(os.path.join(c.folder, "calls"))


GET, SIZE = "tsr_parallelism_context_get(&got, diags)", "tsr_parallelism_context_size(TSR_TP, &size, diags)"
OPEN, DEVICE = "tsr_parallelism_context_open(&parallel, diags)", "tsr_parallelism_device_open(diags)"


@feature("tt-train's YAML is read verbatim; model_config is found from cwd, then beside the file")
def training_yaml(c):
    path = "configs/model_configs/llama8b_galaxy_tp_dp.yaml"
    c.write("far/run.yaml", LLAMA_RUN)
    c.run("check", "--config", "far/run.yaml", code=2).says(f"cannot find '{path}'", "far/run.yaml:4:17: error: ")
    c.write(f"far/{path}", LLAMA % 96)
    said = c.run("check", "--config", "far/run.yaml", "--print-config")
    said.says("  project_name: tt_train_llama8b_tp_dp  # far/run.yaml:2\n", "  batch_size: 4  # far/run.yaml:3\n",
              "  mesh_shape: [4, 8]  # far/run.yaml:9\n", f"  num_blocks: 2  # far/{path}:1\n")
    two = parameters(c.run("check", "--config", "far/run.yaml"))
    c.write(path, (LLAMA % 96).replace("num_blocks: 2", "num_blocks: 4"))
    four = parameters(c.run("check", "--config", "far/run.yaml"))
    rest = 2 * 96 * 64 + 64  # embedding, output, last norm
    expect(four - rest == 2 * (two - rest) > 0, f"{two} parameters beside the file, {four} from the working directory")


@feature("The start prints six lines: mesh shape, devices, descriptor, context, parameters, batches")
def six_lines(c):
    wide(c)
    c.write("m.textproto", descriptor(4, 8))
    want = ("mesh_shape: [4, 8], 32 ranks\ndevices: 32 of 32\n"
            "descriptor: mesh [4, 8] fits; m.textproto (from --mesh)\n"
            "ParallelismContext: DP axis 0 (size 4), TP axis 1 (size 8)\n"
            "parameters: sharded over tp = 8, replicated over dp = 4\nbatches: 32 samples over dp = 4, 8 a rank\n")
    for command in ("check", "train"):
        said = c.with_keys(command, "--mesh", "m.textproto", training_config__max_steps=1,
                           **config([4, 8], ddp=True, tp=True))
        expect(said.out.startswith(want), f"the start prints {said.out[:600]}")


@feature("batch_size is the total over all DP groups; one that they do not divide is an error")
def total_batch(c):
    gpt(c)
    keys = {"numerics__units": {}, **config([4], ddp=True)}
    c.with_keys("check", training_config__batch_size=4, **keys).says("batches: 4 samples over dp = 4, 1 a rank\n")
    steps = c.with_keys("train", "--metrics", "m.jsonl", training_config__batch_size=4, **keys)
    steps.never_says("error")
    tokens = [m["tokens"] for m in c.metrics("m.jsonl") if m["event"] == "step"]
    expect(tokens == [4 * 16 * n for n in (1, 2, 3)], f"the steps have {tokens} tokens in all")
    c.with_keys("check", training_config__batch_size=6, code=2, **keys).says(
        "error: batch_size 6 does not divide over dp = 4\n", "= 4 or 8 would\n")


@feature("--config FILE, a file alone, or - for standard input; a missing file is an error")
def config_option(c):
    gpt(c)
    said = [c.run("check", *words, stdin=GPT) for words in (
        ("--config", "run.yaml"), ("--config=run.yaml",), ("run.yaml",), ("--config", "-"))]
    expect(parameters(said[0]) == 52736, f"not the model of the file: {said[0].out}")
    same("the outputs", [s.out for s in said])
    c.run("check", "--config", "nowhere.yaml", code=2).says("error: cannot read 'nowhere.yaml': No such file")


@feature("Parameters are sharded over TP, batches over DP groups: inspect shows each rank's slices")
def slices_of_ranks(c):
    gpt(c)
    keys = config([2, 2], ddp=True, tp=True)
    c.with_keys("check", **keys).says("parameters: sharded over tp = 2, replicated over dp = 2\n",
                                      "batches: 8 samples over dp = 2, 4 a rank\n")
    said = c.with_keys("inspect", "--tensor", "block.0.attn.wq", **keys).says("f32", "2,048")
    for rank in range(4):
        begin = rank % 2 * 16
        said.matches(rf"^ *rank {rank}: dp {rank // 2}, tp {rank % 2}\b.*\b{begin}\D{{1,4}}{begin + 16}\b")
    said = c.with_keys("inspect", "--tensor", "tokens", **keys)
    for rank in range(4):
        begin = rank // 2 * 4
        said.matches(rf"^ *rank {rank}: dp {rank // 2}, tp {rank % 2}\b.*\b{begin}\D{{1,4}}{begin + 4}\b")


@feature("A descriptor that does not fit: an error with both shapes, the shapes that fit, a hint")
def mismatch_hint(c):
    wide(c)
    for dims, shape, texts in (
            ((2, 4), [4, 8], ("mesh_shape [4, 8] (32 devices) is not the descriptor's mesh [2, 4] (8 devices)\n",
                              "= the shape that fits: [2, 4]; other shapes need a descriptor of one line, [1, 32]")),
            ((1, 8), [4, 8], ("mesh_shape [4, 8] needs 32 devices, but the descriptor's mesh [1, 8] has 8\n",
                              "= shapes that fit: [1, 8], [2, 4], [4, 2], [8, 1]\n")),
            ((4, 8), [2, 4], ("mesh_shape [2, 4] (8 devices) is not the descriptor's mesh [4, 8] (32 devices)\n",
                              "or device_ids for a part of this one\n"))):
        c.write("m.textproto", descriptor(*dims))
        said = c.with_keys("train", "--mesh", "m.textproto", code=2, **config(shape, ddp=True, tp=True))
        said.says(*texts)
        said.matches(r"^--set:\d+:\d+: error: mesh_shape ")


OTHER_WAYS = ("= or name a file by --mesh, device_config.mesh_graph_descriptor or TT_MESH_GRAPH_DESC_PATH\n",
              "8 and 32 devices")


@feature("A descriptor that is not found, or TT_METAL_HOME unset: two errors, each with remedies")
def not_found(c):
    gpt(c)
    for value, source in (("device_config.mesh_graph_descriptor", None), ("TT_MESH_GRAPH_DESC_PATH", "environment")):
        def check(path, env, value=value, source=source):
            keys = {} if source else {"device_config__mesh_graph_descriptor": path}
            return c.with_keys("check", code=2, env={**env, **({value: path} if source else {})}, **keys)
        said = check("no.textproto", {})
        said.says(f"error: mesh descriptor 'no.textproto' not found (from {value})\n", "= looked for 'no.textproto', ",
                  "= with TT_METAL_HOME set, tt-metal's own descriptors are searched too\n", *OTHER_WAYS)
        check("no.textproto", HOME).matches(r"^ += looked for 'no.textproto', .*folders of descriptors of 'home'$")
        said = check("${TT_METAL_HOME}/no.textproto", {})
        said.says("error: TT_METAL_HOME is not set, but the mesh descriptor '${TT_METAL_HOME}/no.textproto' "
                  f"(from {value}) needs it\n", "= export TT_METAL_HOME=/path/to/tt-metal\n", *OTHER_WAYS)
        said = check("${TT_METAL_HOME}/no.textproto", HOME)
        said.says(f"no.textproto' not found (from {value})\n", "= looked for 'home/no.textproto'")
        said.never_says("is not set")


@feature("C: sizes and the context before it is open: `ParallelismContext is not initialized.`")
def not_initialized(c):
    said = c_calls(c, GET, SIZE, "size", "got != NULL")
    expect(said.out == "0\n0\n0\n0\n" + "error: ParallelismContext is not initialized.\n" * 2, said.out)
    gpt(c)
    c.with_keys("train", **config([2, 2], ddp=True, tp=True)).never_says("not initialized")


@feature("C: a second initialization is refused: `ParallelismContext is already initialized.`")
def already_initialized(c):
    said = c_calls(c, DEVICE, OPEN, OPEN, SIZE, "size", GET, "got == &parallel")
    expect(said.out == "1\n1\n0\n1\n8\n1\n1\nerror: ParallelismContext is already initialized.\n", said.out)
    gpt(c)
    # several meshes in one process open it once
    c.with_keys("check", "--prove", **config([2, 2], ddp=True, tp=True)).never_says("already initialized")


@feature("Order enforced: the context opens after the device and before the model, exactly once")
def enforced_order(c):
    gpt(c)
    plugin = {"TESSERA_PLUGIN_PATH": "nowhere", "CUDA_VISIBLE_DEVICES": ""}
    said = c.with_keys("train", code=None, env=plugin, **config([2], ddp=True, device="cuda"))
    expect(said.code in (1, 2), f"exit code {said.code} without a device")
    said.says("error: the device is cuda").never_says("ParallelismContext")
    lines = c.with_keys("train", **config([2], ddp=True)).out.splitlines()
    places = [[line.startswith(word) for line in lines].index(True) for word in (
        "devices: ", "ParallelismContext: ", "parameters: ", "Step 1: ")]
    expect(places == sorted(places), f"the start has another order: {lines}")
    expect(sum(line.startswith("ParallelismContext: ") for line in lines) == 1, f"the context opens twice: {lines}")
    said = c_calls(c, OPEN, DEVICE, DEVICE, SIZE, OPEN, OPEN, SIZE, "size")
    expect(said.out.startswith("0\n1\n0\n0\n1\n0\n1\n8\n"), f"another order is accepted: {said.out}")
    said.says("error: The device is not initialized.\nerror: The device is already initialized.\n"
              "error: ParallelismContext is not initialized.\nerror: ParallelismContext is already initialized.\n")


@feature("A physical chip id outside the descriptor or the visible GPUs is an error with a hint")
def physical_ids(c):
    gpt(c)
    c.write("m.textproto", descriptor(1, 8))
    for ids, unknown, place in (([0, 16], 16, 4), ([99, 1], 99, 1)):
        said = c.with_keys("train", "--mesh", "m.textproto", code=2, **config([2], ddp=True, device_ids=ids))
        said.says(f"error: Physical chip id {unknown} not found in control plane chip mapping. "
                  "The descriptor's mesh [1, 8] has devices 0 to 7\n",
                  "= check device_ids against the descriptor's device_topology\n")
        said.matches(rf"^ +\| +\^~\n +=")
    emulated = os.path.join(os.path.dirname(c.program), "tests", "cuda")
    if os.path.exists(os.path.join(emulated, "libtessera-cuda.so")):
        said = c.with_keys("train", code=None, env={"TESSERA_PLUGIN_PATH": emulated},
                           **config([1], device="cuda", device_ids=[7]))
        expect(said.code in (1, 2), f"exit code {said.code} with a GPU that is not there")
        said.says("error: Physical chip id 7 not found in control plane chip mapping. ")


@feature("doctor --topology prints a descriptor of the GPUs and their links, for --mesh")
def topology(c):
    fake = os.path.join(os.path.dirname(c.program), "tests", "doctor")
    if os.path.exists(os.path.join(fake, "libtessera-cuda.so")):  # three GPUs that are not there
        said = c.run("doctor", "--topology", env={"TESSERA_PLUGIN_PATH": fake})
        said.says("# The 3 GPUs of this host, each pair over NVLink.\n",
                  "  device_topology { dims: [ 1, 3 ] dim_types: [ RING, RING ] }\n", "  channels { count: 18 ")
        c.write("saved.textproto", said.out)
        c.run("inspect", "--mesh", "saved.textproto").says("  shape     1 × 3  (ring × ring)\n", "  devices   3\n")
        gpt(c)
        c.with_keys("check", "--mesh", "saved.textproto", training_config__batch_size=12, numerics__units={},
                    **config([3], ddp=True)).says("descriptor: mesh [1, 3] fits; saved.textproto (from --mesh)\n")
        pcie = c.run("doctor", "--topology", env={"TESSERA_PLUGIN_PATH": fake, "FAKE_CUDA": "mixed"})
        pcie.says("not all of them over NVLink.\n", "dim_types: [ LINE, LINE ]")
    said = c.run("doctor", "--topology", code=1, env={"TESSERA_PLUGIN_PATH": "nowhere", "CUDA_VISIBLE_DEVICES": ""})
    said.matches(r"^error: no topology of GPUs: .*\n +=")


@feature("A mesh of fewer devices than there are is a warning with both counts")
def fewer_devices(c):
    gpt(c)
    c.write("m.textproto", descriptor(4, 8))
    for shape, ids in (([2, 2], [0, 1, 8, 9]), ([1, 2], [0, 1])):
        flags = {"ddp": shape[0] > 1, "tp": True}
        said = c.with_keys("check", "--mesh", "m.textproto", **config(shape, device_ids=ids, **flags))
        said.matches(rf"^--set:\d+:\d+: warning: the mesh uses {len(ids)} of the descriptor's 32 devices$")
    c.with_keys("check", **config([2, 2], ddp=True, tp=True)).never_says("warning")


@feature("A task without a GPU kernel runs on the host: the dump has the bytes copied there and back")
def tasks_of_the_host(c):
    gpt(c)
    keys = {"device_config__device": "cuda", "transformer_config__num_heads": 1, "numerics__units": {}}
    wide = c.with_keys("check", "--dump", "program,memory", transformer_config__embedding_dim=264, **keys)
    wide.matches(r"^ +\d+ +attention +on the host \(\d[\d,]* bytes there, \d[\d,]* back\)")
    counts = re.findall(r"\((\S+) bytes there, (\S+) back\)", wide.out)[0]
    there, back = (int(count.replace(",", "")) for count in counts)
    expect(there > back > 0, f"{there} bytes to the host, {back} back")
    wide.matches(r"^copies on the host, for the tasks that it runs: \d[\d,]* bytes$")
    narrow = c.with_keys("check", "--dump", "program,memory", transformer_config__embedding_dim=256, **keys)
    narrow.never_says("on the host")


@feature("A GPU's context, libraries and a reserve are left out of the plan, in a line of the start")
def memory_outside_the_plan(c):
    gpt(c)
    emulated = os.path.join(os.path.dirname(c.program), "tests", "cuda")
    if not os.path.exists(os.path.join(emulated, "libtessera-cuda.so")):
        return
    env = {"TESSERA_PLUGIN_PATH": emulated}
    keys = {"training_config__max_steps": 1, **config([1], device="cuda")}
    c.with_keys("train", env=env, **keys).matches(
        r"^memory: cuda:0 has 4.0 GiB; outside of the plan: \S+ M?B of its context and other programs, "
        r"\S+ MiB of libraries, 64.0 MiB kept for kernels and graphs$")
    full = c.with_keys("train", code=1, env={**env, "EMULATED_CUDA": "bytes=33655000"}, **keys)
    full.matches(r"error: the model does not fit: .* needed for 1 rank, 0 B available on cuda:0\n(.*\n)*"
                 r" +=.*cuda:0 has 32.1 MiB; outside of the plan: ")


def sets(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@feature("SIGINT, SIGTERM: end after the step with a checkpoint, exit code 130, 143; exact resume")
def signals(c):
    gpt(c)
    endless = {f"training_config.{key}": value for key, value in ENDLESS.items()}
    mesh = {"mesh": {"axes": ["dp", "tp"], "shape": [2, 2]}}
    for signal, code in ((2, 130), (15, 143)):
        kept = f"kept{signal}"
        train = ["train", "--config", "run.yaml", *sets({**mesh, "training_config.checkpoint_dir": kept})]
        said = c.command(sys.executable, "-c", SIGNALLER, str(signal), c.program, *train, *sets(endless), code=code)
        step = int(said.matches(r"^stopped: step (\d+), ")[1])
        c.run("checkpoint", "verify", kept).says(f"{kept}/step-{step:08}: step {step}, ", ": all hashes agree\n")
        more = {**endless, "training_config.max_steps": step + 3}
        resumed = c.run(*train, *sets(more), "--resume").says(f"resumes from '{kept}/step-{step:08}'")
        whole = c.run("train", "--config", "run.yaml", *sets(more))
        same("weights", [said.matches(r"weights sha256 ([0-9a-f]{64})")[1] for said in (resumed, whole)])
        expect(not [n for n in os.listdir(os.path.join(c.folder, kept)) if n.endswith(".partial")], "a torn checkpoint")
    launched(c, 2, *train, *sets({**endless, "training_config.max_steps": step + 5}), "--resume")


def least_squares(rows):
    """Weights and bias of the least-squares fit, and its mean squared error, by the normal equations."""
    x, y = [row[:-1] + [1.0] for row in rows], [row[-1] for row in rows]
    n = len(x[0])
    a = [[sum(r[i] * r[j] for r in x) for j in range(n)] + [sum(r[i] * t for r, t in zip(x, y))] for i in range(n)]
    for i in range(n):
        a[i], a[i:] = max(a[i:], key=lambda row: abs(row[i])), sorted(a[i:], key=lambda row: -abs(row[i]))
        for k in range(n):
            if k != i:
                factor = a[k][i] / a[i][i]
                a[k] = [p - factor * q for p, q in zip(a[k], a[i])]
    fit = [a[i][n] / a[i][i] for i in range(n)]
    return fit, sum((sum(w * v for w, v in zip(fit, r)) - t) ** 2 for r, t in zip(x, y)) / len(y)


@feature("Linear regression on DP × TP, the example that converges to the least-squares fit")
def linear_regression(c):
    configs = os.path.join(c.source_root, "configs")
    with open(os.path.join(configs, "data", "linear_regression.csv")) as f:
        fit, error = least_squares([list(map(float, row)) for row in list(csv.reader(f))[1:]])
    said = c.run("train", "--config", os.path.join(configs, "runs", "linear_regression_tp_dp.yaml"), "--metrics",
                 "m.jsonl", "--set", "training_config.checkpoint_dir=kept")
    said.says("ParallelismContext: DP axis 0 (size 2), TP axis 1 (size 2)\n")
    end = c.metrics("m.jsonl")[-1]
    close([end["loss"]], [error], 1e-4, "loss")
    found = tensors(c, f"kept/step-{end['step']:08}")
    values = [struct.unpack(f"<{len(data) // 4}f", data) for _, _, data in
              (found[name] for name in ("weight@0,0", "weight@0,2", "bias_values"))]
    close([v for part in values for v in part], fit, 1e-3, "weights and bias")


@feature("Llama 8B on TP + DDP over 32 devices: parameters of each rank; a small Llama trains")
def llama_on_galaxy(c):
    with open(os.path.join(c.source_root, "configs", "models", "llama-3.1-8b.yaml")) as f:
        c.write("configs/model_configs/llama8b_galaxy_tp_dp.yaml", f.read())
    c.write("run.yaml", LLAMA_RUN)
    c.write(f"{CUSTOM}/galaxy_1x32_mesh_graph_descriptor.textproto", descriptor(1, 32))
    wide_dim, narrow, hidden, blocks, vocabulary = 4096, 1024, 14336, 32, 128256
    sharded = 2 * vocabulary * wide_dim + blocks * wide_dim * (2 * wide_dim + 2 * narrow + 3 * hidden)
    norms = (2 * blocks + 1) * wide_dim
    said = c.run("check", "--config", "run.yaml", env=HOME)
    expect(parameters(said) == sharded + norms, f"not {sharded + norms} parameters")
    said.says("descriptor: mesh [1, 32] fits; home/", "parameters: sharded over tp = 8, replicated over dp = 4\n",
              "batches: 4 samples over dp = 4, 1 a rank\n")
    said.matches(rf"^  parameters +{(sharded // 8 + norms) * 4:,} ")
    c.run("plan", "--config", "run.yaml", env=HOME).says(
        "mesh: dp × tp mesh, 4 × 8, 32 ranks; groups: dp 8 of 4, tp 4 of 8\n")
    c.write("run.yaml", GPT.split("transformer_config")[0] + LLAMA % 0 + "numerics: {units: {batch: 8, tp: 8}}\n")
    same("losses, norms and weights", [bits(c), bits(c, **config([4, 8], ddp=True, tp=True))])

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, elastic jobs, advice, and how failures of a distributed run are found."""
import os
import re
import shutil

from collectives import (MPI, PARAMETERS, comm_trace, key_named, launcher, mesh, number, refused, small, weights,
                         wrong_value)
from feature import Missing, feature
from small_models import moe

# Kills the program at a moment after a new checkpoint, again and again; each time it is resumed.
KILLED = """\
newest() { ls -d kept/step-*[0-9] 2>/dev/null | tail -n 1; }
for pause in 0.000 0.003 0.006 0.011 0.017; do
  before=$(newest)
  "$0" --config run.yaml --resume --quiet --set training_config.max_steps=100000 \
    --set training_config.num_epochs=100000 --set 'checkpoint={dir: kept, every: 2}' &
  for i in $(seq 500); do [ "$(newest)" = "$before" ] || break; sleep 0.01; done
  sleep $pause
  kill -KILL $!
  wait $! && exit 1
  [ "$(newest)" != "$before" ] || exit 2
done
newest
"""

# Stops one of two processes (SIGSTOP) after its first step, and waits for the job's end. $1 is the mpirun.
STOPPED = """\
mpirun=$1 program=$2
run="'$program' --config run.yaml --set training_config.max_steps=1000000 --set training_config.num_epochs=1000000 \
  --set 'mesh={axes: [dp], shape: [2]}' --set collectives.timeout_s=1 --metrics metrics.jsonl"
$mpirun -n 1 sh -c "exec $run" : -n 1 sh -c "echo \\$\\$ > pid; exec $run" &
job=$!
for i in $(seq 500); do grep -q '"step":2,' metrics.jsonl 2>/dev/null && break; sleep 0.02; done
kill -STOP "$(cat pid)"
wait $job
code=$?
kill -KILL "$(cat pid)" 2>/dev/null
echo "exit code $code"
"""


def sent(text, op, axis):
    """The bytes of the tensors of a collective over an axis, and the bytes that a rank sends for it, of `check`."""
    found = text.matches(rf"^  {op} +over {axis} +(\d+) times +([\d,]+) bytes, ([\d.]+) (K|M)iB sent$")
    return number(found[2]), float(found[3]) * {"K": 1024, "M": 1024 ** 2}[found[4]]


@feature("kill -9 at any moment: the last committed checkpoint loads, with the same weights")
def crash_consistency(c):
    newest = small(c).command("bash", "-c", KILLED, c.program).out.split()[-1]
    step = int(newest.rsplit("-", 1)[1])
    c.run("checkpoint", "verify", "kept").says("all hashes agree")
    keys = {"training_config__max_steps": step + 3, "training_config__num_epochs": 100000}
    resumed = c.with_keys("--resume", checkpoint="{dir: kept, every: 2}", **keys)
    resumed.says(f"resumes from 'kept/step-{step:08}', after step {step}")
    if weights(resumed) != weights(c.with_keys(**keys)):
        raise Missing("the weights are not those of a run that was never killed")


@feature("checkpoint: {tag, tensors, optimizer, atomic, async_io}")
def checkpoint_keys(c):
    hashes = set()
    for optimizer, async_io in (("true", "true"), ("false", "false")):
        record = f"{{dir: kept, tag: step_100k, tensors: true, optimizer: {optimizer}, atomic: true, " \
                 f"async_io: {async_io}}}"
        hashes.add(weights(small(c).with_keys("--overwrite", checkpoint=record)))
        c.run("checkpoint", "ls", "kept").says("step_100k")
        answer = "yes" if optimizer == "true" else "no"
        c.run("checkpoint", "show", "kept").says("step: 3\n", f"optimizer state: {answer}\n")
        count = PARAMETERS * (3 if optimizer == "true" else 1) + 2
        c.run("checkpoint", "verify", "kept").says(f"{count} tensors in ", "all hashes agree")
    if hashes != {weights(c.with_keys())}:
        raise Missing("a checkpoint changes the weights")


@feature("elastic: {rejoin, safe_point}: N, then N - 1, then N processes, with the same weights")
def elastic(c):
    start = launcher(c)
    keys = ["--set", f"mesh={mesh(dp=4)}", "--set", "checkpoint={dir: kept, every: 2}", "--set",
            "elastic={rejoin: true, safe_point: pipeline_boundary}"]
    for step, processes in ((2, 3), (4, 2), (6, 3)):
        words = [*start, "-n", str(processes)] if start else []
        result = small(c).command(*words, c.program, "--config", "run.yaml", *keys, "--set",
                                  f"training_config.max_steps={step}", env=MPI)
        if step > 2:
            result.says(f"resumes from 'kept/step-{step - 2:08}', after step {step - 2}\n")
        if start:
            result.says(f"processes: {processes}, ")
    if weights(result) != weights(c.with_keys(training_config__max_steps=6)):
        result.fail("the weights are not those of one process that was never left")
    wrong_value(c, "safe_point", "anywhere").says("pipeline_boundary")


@feature("Elastic expert placement: a changed number of ranks moves few experts", state="refused")
def expert_rehash(c):
    one = moe(c, checkpoint__dir="kept", checkpoint__every=2, training_config__max_steps=2)
    one.matches(r"weights sha256")
    fewer = moe(c, "--resume", mesh=mesh(ep=4), checkpoint__dir="kept", checkpoint__every=2)
    if weights(fewer) != weights(moe(c)):
        fewer.fail("the weights are not those of one process that was never left")
    # Every rank has a block of consecutive experts, so most of them move.
    refused(small(c), "expert_placement", "table", "experts", "blocks")


@feature("Automatic transport: NCCL for dense collectives, NVSHMEM or DeepEP for experts", state="refused")
def transport_table(c):
    key = key_named(small(c), "transport").replace(".", "__")
    plan = c.with_keys("plan", "--machine", "h100", mesh=mesh(dp=2, tp=2), **{key: "auto"})
    for op in ("all_reduce", "all_gather"):
        plan.matches(rf"{op}\b.*\bnccl\b")
    plan.never_says("deepep")
    refused(c, "transport", "deepep", "deepep", "experts")
    refused(c, "transport", "nvshmem", "nvshmem")


@feature("Reduce-scatter of gradients sends half the bytes of their all-reduce")
def gradient_bytes(c):
    whole, all_reduced = sent(small(c).with_keys("check", mesh=mesh(dp=4)), "all_reduce", "dp")
    sharded = c.with_keys("check", mesh=mesh(dp=4), zero__stage=1)
    scattered, wire = sent(sharded, "reduce_scatter", "dp")
    # A ring over n ranks: 2 (n - 1) / n of the bytes for the sum, (n - 1) / n for the scattered sum.
    if abs(all_reduced - 1.5 * whole) > 100 or abs(wire - 0.75 * scattered) > 100 or scattered < 0.9 * whole:
        sharded.fail(f"all_reduce {whole} bytes, {all_reduced} sent; reduce_scatter {scattered}, {wire} sent")
    rest = sent(sharded, "all_reduce", "dp")[1]
    if not 0.48 < (wire + rest) / all_reduced < 0.56:
        sharded.fail(f"{wire} + {rest} of {all_reduced} bytes")
    gathered, of_weights = sent(sharded, "all_gather", "dp")
    if abs(of_weights - 3 * gathered) > 100:
        sharded.fail(f"all_gather of {gathered} bytes a rank, {of_weights} sent")


@feature("Compute and communication streams, joined by events, without device-wide sync")
def streams(c):
    for device in ("cpu", "cuda"):
        program = small(c).with_keys(
            "trace", "--emit", "schedule-ir", "--rank", "1", mesh=mesh(dp=2, pp=2), pipeline__microbatches=2,
            schedule__all_reduce_overlap=True, device_config__device=device, training_config__precision="f32")
        rows = re.findall(r"^ +\d+  (?:forward|backward|update) +(\w+) +(\d) +(ends in|after|-) ?([a-z]\d+)?",
                          program.out.split("communication of rank")[1], re.MULTILINE)
        ended = {event for _, stream, kind, event in rows if kind == "ends in" and stream == "1"}
        waited = {event for _, stream, kind, event in rows if kind == "after" and stream == "0"}
        if not {"b1"} < ended or not ended <= waited or {stream for _, stream, _, _ in rows} != {"0", "1"}:
            program.fail(f"{device}: events that end {ended}, events waited for {waited}")
        program.never_says("synchronize")


@feature("Autotuner with a cache by architecture, dtype and shape", state="refused")
def autotuner(c):
    refused(small(c), "autotune", "true", "autotune")
    key = key_named(c, "autotune").replace(".", "__")
    if weights(c.with_keys(**{key: "false"})) != weights(c.with_keys()):
        raise Missing("autotune: false changes the weights")
    c.with_keys("check", **{key: "often"}, code=2).matches(r"^--set:1:\d+: error: .*autotune.*often")


@feature("Persistent kernels", state="refused")
def persistent_kernels(c):
    refused(small(c), "persistent", "true", "persistent")
    key = key_named(c, "persistent").replace(".", "__")
    if weights(c.with_keys(**{key: "false"})) != weights(c.with_keys()):
        raise Missing("persistent: false changes the weights")
    c.with_keys("check", **{key: "often"}, code=2).matches(r"^--set:1:\d+: error: .*persistent.*often")


@feature("Reproducible runs: a fixed seed gives equal bits; deterministic without a seed is a note")
def seeds(c):
    small(c)
    runs = [c.with_keys(training_config__seed=seed) for seed in (7, 7, 8)]
    if [weights(r) == weights(runs[0]) for r in runs] != [True, True, False]:
        raise Missing("seeds 7, 7, 8 give " + ", ".join(map(weights, runs)))
    runs[0].never_says("note: ")
    c.write("unseeded.yaml", c.read("run.yaml").replace("  seed: 7\n", ""))
    c.run("--config", "unseeded.yaml").matches(r"note: .*\bseed\b")
    c.run("--config", "unseeded.yaml", "--set", "numerics.policy=fast").never_says("note: ")


@feature("Transports are initialized before the first kernel; a missing piece is named")
def transport_initialization(c):
    # The program alone, without its plugins beside it.
    program = shutil.copy(c.program, os.path.join(c.folder, "tessera-train"))
    env = {"TESSERA_SHARE": c.source_root, "TESSERA_TRANSPORT": "openmpi"}
    alone = small(c).command(program, "--config", "run.yaml", "--metrics", "none.jsonl", code=None, env=env)
    if alone.code not in (1, 2):
        alone.fail(f"exit code {alone.code}")
    alone.says("libtessera-openmpi.so: no such file").never_says("Step 1")
    if os.path.exists(os.path.join(c.folder, "none.jsonl")):
        alone.fail("the run began before its transport")
    word = c.with_keys(env={"TESSERA_TRANSPORT": "pigeon"}, code=2)
    word.says("error: TESSERA_TRANSPORT is 'pigeon', which is no transport\n", "= valid: openmpi, mpich, none")
    gpu = c.with_keys(device_config__device="cuda", env={"CUDA_VISIBLE_DEVICES": ""}, code=None)
    # With the plugin there is no GPU; without it, no plugin.
    gpu.matches(r"^--set:1:22: error: the device is cuda(: \S|, but no libtessera-cuda\.so can be loaded$)")
    gpu.never_says("Step 1")
    c.run("doctor").matches(r"(?i)^gpudirect +(found|missing|mismatched|none) +\S")


@feature("Collective hangs: a timeout names the op and who is missing; mismatches are errors")
def collective_hang(c):
    start = launcher(c)
    if not start:  # One process waits for nobody; the key is known and its value is tested.
        small(c).with_keys("check", collectives__timeout_s=0, code=2).matches(r"timeout_s.*above 0")
        return
    result = small(c).command("bash", "-c", STOPPED, "bash", " ".join(start), c.program, env=MPI)
    result.matches(r"error: process 0 on \S+ \(pid \d+\) has waited \S+ s for others; collectives\.timeout_s is 1")
    result.matches(r"step \d+, stage 0, microbatch 0, task \d+: all_reduce '\S+' over dp \(\S+\.yaml:\d+\)")
    result.says("group of ranks 0 1: process 0 (rank 0) came; process 1 (rank 1) did not", "stopped (SIGSTOP)")
    result.matches(r"^exit code [1-9]")
    start = launcher(c, ("mpich", "openmpi"))  # MPICH's mpirun ends sooner
    one = ["-n", "1", c.program, "--config", "run.yaml", "--set"]
    unequal = c.command(*start, *one, f"mesh={mesh(dp=4)}", ":", *one, f"mesh={mesh(dp=2)}", code=None, env=MPI)
    unequal.matches(r"error: process 1 on \S+ has another configuration than process 0 on \S+: line \d+ is "
                    r"'  mesh_shape: \[2\]' here and '  mesh_shape: \[4\]' there")
    absent = c.command(*start, *one, f"mesh={mesh(dp=2)}", ":", "-n", "1", "true", code=None,
                       env={**MPI, "TESSERA_JOIN_TIMEOUT_S": "1"})
    absent.matches(r"error: process 0\D.* has not begun in 1 s: .*\bprocess 1\b")


@feature("Low overlap: profile measures it and advises; dedicated_progress_warp is known", state="refused")
def low_overlap(c):
    profile = small(c).with_keys("profile", "--steps", "2", mesh=mesh(dp=2))
    profile.matches(r"^overlapped: 0\.0 % of communication$")
    profile.matches(r"^  rank +stage +compute s .*communication +overlapped ")
    refused(c, "dedicated_progress_warp", "true", "dedicated_progress_warp")
    key = key_named(c, "dedicated_progress_warp").replace(".", "__")
    c.with_keys("check", **{key: "maybe"}, code=2).matches(r"^--set:1:\d+: error: .*dedicated_progress_warp.*maybe")


@feature("--check-determinism N: N steps twice; names the first collective that differs")
def check_determinism(c):
    result = small(c).run("--config", "run.yaml", "--set", f"mesh={mesh(dp=2, tp=2)}", "--check-determinism", "3")
    found = result.matches(r"(?i)^determinism: 3 steps .*\b(\d+) threads?\b.*\b(\d+) threads?\b")
    if found[1] == found[2]:
        result.fail("both runs have the same threads")
    result.matches(r"(?i)\b([1-9][\d,]*) collectives\b")
    c.run("--help").says("--check-determinism N")
    c.run("--config", "run.yaml", "--check-determinism", "0", code=2).matches(r"error: .*--check-determinism")


@feature("Pipeline bubble: profile prints it in percent and what would make it smaller")
def pipeline_bubble(c):
    profile = small(c).with_keys("profile", "--steps", "2", mesh=mesh(pp=2), pipeline__microbatches=2)
    # (p - 1) / (m + p - 1) is 1 / 3; of four microbatches 1 / 5; of eight 1 / 9.
    profile.matches(r"^bubble: \d+\.\d % by these times, each stage on devices of its own; 33\.3 % if all were alike$")
    profile.matches(r"^advice: 2 microbatches for 2 stages leave a bubble of 33 % even if stages are alike: "
                    r"\S+: 4 would leave (20|11) %|^advice: 2 microbatches .*: \S+: 8 would leave 11 %")
    more = c.with_keys("profile", "--steps", "2", mesh=mesh(pp=2), pipeline__microbatches=4)
    more.says("20.0 % if all were alike").says("pipeline 1f1b: 2 stages, 4 microbatches;")


@feature("TESSERA_COMM_TRACE=1: rank, seq, op, axis, bytes, algo, path and ms of each collective")
def communication_trace(c):
    result = small(c).with_keys(mesh=mesh(dp=2, tp=2), training_config__max_steps=1, env={"TESSERA_COMM_TRACE": "1"})
    lines = [line for line in result.err.splitlines() if line.startswith("comm ")]
    for line in lines:
        if not re.fullmatch(r"comm step=1 rank=[0-3] seq=\d+ op=\w+ axis=(dp|tp) bytes=\d+( \w+=\w+)* path=\w+ "
                            r"ms=\d+\.\d{3} what=\S+", line):
            result.fail(f"a line of another form: {line}")
        if "op=all_reduce" in line and "algo=" not in line:
            result.fail(f"a sum without its algorithm: {line}")
    planned = c.with_keys("check", mesh=mesh(dp=2, tp=2))
    ranks = comm_trace(result)
    for op, axis in (("all_reduce", "dp"), ("all_reduce", "tp"), ("all_gather", "tp")):
        times, size = planned.matches(rf"^  {op} +over {axis} +(\d+) times +([\d,]+) bytes").groups()
        for rank, records in ranks.items():
            found = [int(words["bytes"]) for words in records if (words["op"], words["axis"]) == (op, axis)]
            if (len(found), sum(found)) != (int(times), number(size)):
                result.fail(f"rank {rank}, {op} over {axis}: {len(found)}, {sum(found)} bytes; planned {times}, {size}")
    if sorted(ranks) != [0, 1, 2, 3] or "comm " in c.with_keys(mesh=mesh(dp=2), env={"TESSERA_COMM_TRACE": "0"}).err:
        raise Missing("the ranks, or a trace that was not asked for")


@feature("TESSERA_DETERMINISTIC=1 overrides numerics.policy, and the log says so")
def deterministic_variable(c):
    plain = weights(small(c).with_keys())
    result = c.with_keys("--metrics", "m.jsonl", numerics__policy="fast", env={"TESSERA_DETERMINISTIC": "1"})
    result.says("--set:1:17: note: TESSERA_DETERMINISTIC=1: the policy is deterministic, not fast\n")
    result.matches(r"^recipe: seed 7, deterministic, ")
    if weights(result) != plain or c.metrics("m.jsonl")[0]["policy"] != "deterministic":
        result.fail("the weights or the metrics are not those of the deterministic policy")
    c.with_keys(numerics__policy="fast").matches(r"^recipe: seed 7, fast, ")

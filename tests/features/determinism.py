# SPDX-License-Identifier: Apache-2.0
"""The transport of experts, and what the deterministic policy promises of collectives, sends and arithmetic."""
import re

from collectives import MPI, comm_trace, key_named, launcher, mesh, refused, small, weights, wrong_value
from feature import Missing, feature
from small_models import moe, same_bits


@feature("Transport record {type: nvshmem, multi_qp: true, pack_dtype: fp8_e4m3}", state="refused")
def transport_record(c):
    refused(small(c), "transport", "{type: nvshmem, multi_qp: true, pack_dtype: fp8_e4m3}", "nvshmem")
    # Each key is known by itself: beside a transport that has no use for it, it is refused by its own name.
    refused(c, "transport", "{type: nccl, multi_qp: true}", "multi_qp")
    refused(c, "transport", "{type: nccl, pack_dtype: fp8_e4m3}", "pack_dtype", "fp8_e4m3")
    key = key_named(c, "transport").replace(".", "__")
    unknown = c.with_keys("check", **{key: "{type: nccl, many_qp: true}"}, code=2)
    unknown.says("unknown key 'many_qp'").matches(r"did you mean 'multi_qp'|valid: type")


@feature("Deterministic mixture of experts: one order of experts when results combine, whoever has them")
def deterministic_moe(c):
    same_bits([moe(c), moe(c), moe(c, numerics__threads=2), moe(c, mesh=mesh(ep=4)), moe(c, mesh=mesh(tp=2)),
               moe(c, mesh=mesh(ep=2, cp=2))])


@feature("Routing recorded in a run and replayed on another mesh, with its bits; other experts with the router's gradients")
def routing_replay(c):
    recorded = moe(c, "train", "--record-routing", "record")
    same_bits([recorded, moe(c, "train", "--replay-routing", "record", mesh=mesh(dp=2, ep=2))])
    moe(c, "train", "--replay-routing", "elsewhere", code=2).says("elsewhere/routing-00000001.safetensors' was not found")
    for step in (1, 2, 3):
        other_experts(f"{c.folder}/record/routing-{step:08}.safetensors")
    other = moe(c, "train", "--replay-routing", "record", "--dump-grads", "grads")
    if weights(other) == weights(recorded):
        other.fail("the record's experts are not those of the run")
    same_bits([other, moe(c, "train", "--replay-routing", "record", mesh=mesh(ep=4))])


def other_experts(path):
    """Each token's two experts of eight become the next ones."""
    with open(path, "r+b") as f:
        begin = 8 + int.from_bytes(f.read(8), "little")
        f.seek(begin)
        experts = [int.from_bytes(word, "little") for word in iter(lambda: f.read(4), b"")]
        f.seek(begin)
        f.write(b"".join(((e + 1) % 8).to_bytes(4, "little") for e in experts))


@feature("schedule: {pipeline, overlap, comm_backend, epoch: soft | hard} for expert routing", state="refused")
def schedule_decorator(c):
    for epoch in ("soft", "hard"):
        refused(small(c), "epoch", epoch, epoch, "expert")
    wrong_value(c, "epoch", "loose").says("soft", "hard")
    refused(c, "comm_backend", "nvshmem", "nvshmem")
    wrong_value(c, "comm_backend", "pigeon").says("mpi", "nccl")
    # The other two keys of the record are not refused.
    keys = {"mesh": mesh(dp=2, pp=2), "pipeline__microbatches": 2}
    with_record = weights(c.with_keys(schedule="{pipeline: gpipe, overlap: true}", **keys))
    if with_record != weights(c.with_keys(**keys)):
        raise Missing("the schedule changes the weights")
    program = c.with_keys("trace", "--emit", "schedule-ir", schedule="{pipeline: gpipe, overlap: true}", **keys)
    program.matches(r"^runs: (prologue )?F0 F1 B0 B1 update$")
    program.matches(r" all_reduce +1 +ends in b1 +dp ")


@feature("Expert all-to-all tuning: bucket size and number of queue pairs", state="refused")
def expert_tuning(c):
    for key, value, wrong in (("a2a_bucket", "4MiB", "much"), ("num_qps", 4, "many")):
        refused(small(c), key, value, "expert")
        c.with_keys("check", **{key_named(c, key).replace(".", "__"): wrong}, code=2).matches(
            rf"^--set:1:\d+: error: .*{key}.*{wrong}")


@feature("Each collective records its reduction tree and policy; unequal trees are an error")
def reduction_tree_record(c):
    trace = comm_trace(small(c).with_keys(mesh=mesh(dp=2, tp=2), env={"TESSERA_COMM_TRACE": "1"}))
    for words in sum(trace.values(), []):
        if words["op"] in ("all_reduce", "reduce_scatter") and (
                words.get("tree") != "binary" or words.get("policy") != "deterministic"):
            raise Missing(f"tree and policy are not in the record: {words}")
    fast = comm_trace(c.with_keys(mesh=mesh(dp=2), numerics__policy="fast", env={"TESSERA_COMM_TRACE": "1"}))
    if {words.get("policy") for words in sum(fast.values(), [])} != {"fast"}:
        raise Missing("the record of policy fast")
    if launcher(c):
        one = ["-n", "1", c.program, "--config", "run.yaml", "--set", f"mesh={mesh(dp=2)}", "--set"]
        result = c.command(*launcher(c), *one, "numerics.reduce_tree=binary", ":", *one, "numerics.reduce_tree=flat",
                           code=2, env=MPI)
        result.matches(r"error: process 1 on \S+ has another configuration than process 0 on .*"
                       r"reduce_tree: flat' here and '.*reduce_tree: binary' there")


@feature("Sends and receives: sequence numbers of a rank only increase, and both ends have one order")
def sequence_numbers(c):
    trace = comm_trace(small(c).with_keys(mesh=mesh(dp=2, pp=4), pipeline__microbatches=4,
                                          env={"TESSERA_COMM_TRACE": "1"}))
    if sorted(trace) != list(range(8)):
        raise Missing(f"ranks {sorted(trace)}")
    ends = {"send": {}, "receive": {}}
    for rank, records in trace.items():
        numbers = [(int(words["step"]), int(words["seq"])) for words in records]
        if any(a >= b for a, b in zip(numbers, numbers[1:])):
            raise Missing(f"rank {rank}: {numbers}")
        for words in records:
            if words["op"] in ends:
                sender, receiver = (rank, int(words["peer"])) if words["op"] == "send" else (int(words["peer"]), rank)
                value = (words["step"], words["bytes"], words["what"])
                ends[words["op"]].setdefault((sender, receiver), []).append(value)
    if ends["send"] != ends["receive"] or len(ends["send"]) != 2 * 3 * 2:
        raise Missing(f"the ends differ: {ends}")


@feature("The deterministic policy turns off TF32, fast-math and atomics, and plan lists them")
def unstable_paths(c):
    plan = small(c).with_keys("plan", "--machine", "h100", mesh=mesh(dp=2))
    for path in ("tf32", "fast-math", "atomics"):
        plan.matches(rf"(?i)\b{path}\b.*\boff\b")
    plan.says("numerics.policy: deterministic")
    fast = c.with_keys("plan", "--machine", "h100", mesh=mesh(dp=2), numerics__policy="fast")
    if re.search(r"(?i)\btf32\b[^,;\n]*\boff\b", fast.out):
        fast.fail("policy fast without TF32")


@feature("Routing epochs end with a stream-ordered barrier (quiet) before any use of their results", state="refused")
def quiet(c):
    refused(small(c), "epoch", "hard", "hard", "expert", "barrier")

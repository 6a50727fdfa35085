# SPDX-License-Identifier: Apache-2.0
"""train --tensorboard: every tag and value of the event files against the metrics, the dumped gradients and the checkpoints;
a run that is killed and resumes, or that returns to a checkpoint; folders of other runs.
usage: test_runs.py PROGRAM PROGRAM-flips"""

import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import event_reader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

RUN = """\
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 8,
  eval_every: 4, model_save_interval: 2, sample_every: 4, sample_tokens: 6, validation_batch_size: 4,
  use_clip_grad_norm: true, optimizer: {type: AdamW, lr: 0.003}}
transformer_config: {model_type: gpt2, vocab_size: 0, embedding_dim: 16, num_blocks: 2, num_heads: 2, max_sequence_length: 16}
checkpoint: {keep_last: 0}
numerics: {units: {batch: 4, tp: 2}, isa: x86-64, threads: 1}
"""
EXPERTS = """\
training_config: {seed: 7, batch_size: 4, max_steps: 2, data_path: text.txt, tokenizer_type: byte, eval_every: 0, sample_tokens: 0,
  sequence_length: 8, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: mixtral, vocab_size: 0, embedding_dim: 16, num_heads: 2, num_groups: 2, num_blocks: 2,
  intermediate_dim: 12, num_experts: 8, max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 4}}
"""
# Of a step's line: the tag of each number.
SCALARS = {"loss": "loss/train", "grad_norm": "optimizer/gradient_norm", "lr": "optimizer/learning_rate",
           "tokens": "throughput/tokens", "tokens_per_s": "throughput/tokens_per_s", "ms": "throughput/step_ms",
           "loss_scale": "optimizer/loss_scale", "underflows": "optimizer/loss_underflows",
           "overflows": "optimizer/loss_overflows"}
HISTOGRAMS = ["--tensorboard-histograms", r"wte|\.wq$", "--tensorboard-every", "2"]


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


class Runs:
    def __init__(self, c, program):
        self.c, self.program = c, program

    def train(self, *words, code=0, says="", quiet=("--quiet",)):
        done = subprocess.run([self.program, *words, *quiet], capture_output=True, encoding="utf-8", errors="replace")
        self.c.check(done.returncode == code and says in done.stderr, f"{words}: {done.returncode} {done.stderr}")
        return done.stderr


def metrics(path):
    return [json.loads(line) for line in Path(path).open()]


def tensors(path):
    """Of a safetensors file in f32."""
    data = Path(path).read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    found = {}
    for name, t in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in t["data_offsets"])
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


# ---- values ----

def check_scalars(c, lines, found):
    """Both ways: what the lines have is in the files, and the files have no more."""
    want = {}
    for line in lines:
        if line["event"] == "step":
            for key, tag in SCALARS.items():
                if line.get(key) is not None:
                    want.setdefault(tag, []).append((line["step"], f32(line[key])))
            for layer in line.get("experts", []):
                for key in ("imbalance", "entropy", "dropped"):
                    want.setdefault(f"experts/{layer['layer']}/{key}", []).append((line["step"], f32(layer[key])))
        elif line["event"] == "eval":
            want.setdefault("loss/validation", []).append((line["step"], f32(line["loss"])))
        elif line["event"] == "sample":
            want.setdefault("sample", []).append((line["step"], line["text"]))
    for tag, values in want.items():
        c.same(found.get(tag), values, tag)
    c.check(len(want) >= 6, f"few tags: {want.keys()}")
    others = {t for t in found.keys() - want.keys() if not t.startswith(("weights/", "gradients/", "_hparams_/"))}
    others = {t for t in others if not t.endswith("/load")}
    c.same(others, {"throughput/mfu", "memory/resident_gib", "memory/resident_peak_gib"}, "other tags")
    times = {step: ms for step, ms in found["throughput/step_ms"]}
    work = [mfu * times[step] for step, mfu in found["throughput/mfu"]]
    c.check(len(work) == len(times) and max(work) < 1.0001 * min(work), f"MFU times the step's time: {work}")
    for tag in ("memory/resident_gib", "memory/resident_peak_gib"):
        c.check(all(0.002 < gib < 64 for _, gib in found[tag]), f"{tag}: {found[tag]}")


def check_histogram(c, what, h, numbers):
    """Against the numbers themselves."""
    c.same((h["min"], h["max"], h["num"]), (min(numbers), max(numbers), len(numbers)), what)
    for key, power in (("sum", 1), ("sum_squares", 2)):
        c.check(math.isclose(h[key], math.fsum(x ** power for x in numbers), rel_tol=1e-9, abs_tol=1e-12), f"{what}: {key}")
    below = -math.inf
    for limit, count in zip(h["limit"], h["count"], strict=True):
        c.same(count, sum(below < x <= limit for x in numbers), f"{what}: the bucket up to {limit}")
        below = limit
    c.same(below, h["max"], f"{what}: the last bucket")


def check_histograms(c, found):
    names = {tag.split("/", 1)[1] for tag in found if tag.startswith("weights/")}
    c.same(names, {"wte", "block.0.attn.wq", "block.1.attn.wq"}, "names of histograms")
    for step in (2, 4):
        weights = tensors(f"out/checkpoints/step-{step:08}/rank-00000.safetensors")
        gradients = tensors(f"gradients/step-{step:08}.safetensors")
        for name in names:
            for kind, of in (("weights", weights), ("gradients", gradients)):
                all_of = dict(found[f"{kind}/{name}"])
                c.same(sorted(all_of), [2, 4, 6, 8], f"{kind}/{name}: steps")
                check_histogram(c, f"{kind}/{name}, step {step}", all_of[step], of[name])


def check_run_data(c, lines):
    """What there is once: the version, the recipe, the graph."""
    (path,) = event_reader.files("events")
    all_of = event_reader.events(path)
    c.same(all_of[:2], [(0, "version", "brain.Event:2"), (0, "start", 1)], "the first records")
    (graph,) = [content for _, kind, content in all_of if kind == "graph"]
    c.same(graph["block/1/q"][1], ["block/1/q/product", "block/1/attn/bq"], "a node's inputs")
    c.same((graph["block/0/attn/wq"][0], graph["block/0/attn/wq"][2]), ("Parameter", [16, 16]), "a parameter")
    c.same([i for n in graph.values() for i in n[1] if i.split(":")[0] not in graph], [], "inputs without a node")
    values = [v for _, kind, content in all_of if kind == "values" for v in content]
    (start,) = [v for tag, _, v in values if tag == "_hparams_/session_start_info"]
    (end,) = [v for tag, _, v in values if tag == "_hparams_/session_end_info"]
    hparams = event_reader.read_hparams(event_reader.fields(start[3][0]))
    c.same((hparams["training_config.optimizer.lr"], hparams["recipe"], hparams["transformer_config.num_blocks"]),
           (0.003, lines[0]["recipe"], 2.0), "hyper-parameters")
    c.same(event_reader.fields(end[4][0])[1], [1], "the status at the end")


def check_values(c, runs):
    words = ["--config", "run.yaml", *HISTOGRAMS]
    runs.train(*words, "--out", "out", "--tensorboard", "events", "--dump-grads", "gradients")
    found, lines = event_reader.series("events"), metrics("out/metrics.jsonl")
    check_scalars(c, lines, found)
    check_histograms(c, found)
    check_run_data(c, lines)
    runs.train(*words, "--tensorboard", "mesh", "--set", "mesh={axes: [dp, tp], shape: [2, 2]}")
    for tag, values in event_reader.series("mesh").items():
        if tag.startswith(("weights/", "gradients/", "loss/")):
            c.same(values, found[tag], f"{tag} on four ranks")


def check_experts_resume(c, runs, found):
    """The checkpoint gives the units of experts, which the configuration does not name."""
    words = ["--config", "experts.yaml", "--out", "cut", "--tensorboard", "cut_events", "--dump-grads", "cut_gradients",
             "--record-routing", "cut_routing"]
    runs.train(*words, "--stop-at", "1")
    runs.train(*words, "--resume")
    again = event_reader.series("cut_events")
    c.same(again["loss/train"], found["loss/train"], "losses of experts behind a resume")
    loads = [tag for tag in found if tag.endswith("/load")]
    c.check(loads and all(again[tag] == found[tag] for tag in loads), f"loads behind a resume: {loads}")
    for folder in ("cut_gradients", "cut_routing"):
        c.same(len(list(Path(folder).glob("*.safetensors"))), 2, f"files of steps in {folder}")


def check_experts(c, runs):
    Path("experts.yaml").write_text(EXPERTS)
    runs.train("--config", "experts.yaml", "--out", "experts", "--tensorboard", "experts/events")
    found, lines = event_reader.series("experts/events"), metrics("experts/metrics.jsonl")
    check_scalars(c, lines, found)
    for line in lines:
        for layer in line.get("experts", []):
            h = dict(found[f"experts/{layer['layer']}/load"])[line["step"]]
            c.same((h["count"], h["limit"]), (layer["load"], [float(i + 1) for i in range(8)]), "the load of experts")
    check_experts_resume(c, runs, found)
    Path("half.yaml").write_text(RUN.replace("training_config: {", "training_config: {precision: fp16, "))
    runs.train("--config", "half.yaml", "--out", "half", "--tensorboard", "half/events", "--set", "training_config.max_steps=2")
    check_scalars(c, metrics("half/metrics.jsonl"), event_reader.series("half/events"))


# ---- a run that is killed ----

def kill_when(c, runs, out, events):
    """Starts a run without a last step and kills it behind a checkpoint."""
    words = [runs.program, "--config", "run.yaml", "--out", out, "--tensorboard", events, "--quiet",
             "--set", "training_config.max_steps=1000000", "--set", "training_config.model_save_interval=3"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        steps = [step for step, _ in event_reader.series(events).get("loss/train", [])] if os.path.isdir(events) else []
        saved = list(Path(out, "checkpoints").glob("step-*[0-9]"))
        if saved and steps and max(steps) > 4:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    c.check(process.returncode == -signal.SIGKILL, process.stderr.read())
    process.stderr.close()


def resume(c, runs, out, events):
    """To 5 steps behind the newest step there is."""
    newest = max(step for step, _ in event_reader.series(events)["loss/train"])
    runs.train("--config", "run.yaml", "--out", out, "--tensorboard", events, "--resume",
               "--set", f"training_config.max_steps={newest + 5}", "--set", "training_config.model_save_interval=3")
    found, lines = event_reader.series(events), metrics(f"{out}/metrics.jsonl")
    for tag in ("loss/train", "optimizer/learning_rate"):
        c.same([step for step, _ in found[tag]], list(range(1, newest + 6)), f"steps of {tag}")
    c.same([v for _, v in found["loss/train"]], [f32(x["loss"]) for x in lines if x["event"] == "step"], "losses")
    for tag in ("loss/validation", "sample"):
        steps = [step for step, _ in found[tag]]
        c.same(steps, sorted(set(steps)), f"steps of {tag}")
    return found


def check_resume(c, runs):
    kill_when(c, runs, "killed", "killed_events")
    (first,) = event_reader.files("killed_events")
    # A power cut may also leave a part of the last record: what a reader has before it counts.
    whole = first.read_bytes()
    records, rest = event_reader.records(first)
    c.check(len(records) > 10 and rest < len(whole), f"{len(records)} records")
    first.write_bytes(whole[:len(whole) - rest - 3])
    c.same(len(event_reader.records(first)[0]), len(records) - 1, "whole records before a part of one")
    resume(c, runs, "killed", "killed_events")
    older, newer = event_reader.files("killed_events")
    c.same(older, first, "names sort by their starts")
    c.same(event_reader.records(older)[1], 0, "bytes behind the last record of the first file")
    last = max(step for step, kind, _ in event_reader.events(older) if kind == "values")
    c.same(event_reader.events(newer)[1], (last + 1, "start", 1), "events from this step on are void")
    c.same([kind for _, kind, _ in event_reader.events(newer)].count("graph"), 0, "graphs of the second file")
    # Behind damage in the middle nothing can be read; the steps up to there stay.
    data = bytearray(newer.read_bytes())
    data[len(data) // 2] ^= 1
    newer.write_bytes(data)
    runs.train("--config", "run.yaml", "--out", "killed", "--tensorboard", "killed_events", "--resume",
               "--set", f"training_config.max_steps={last + 40}", "--set", "training_config.model_save_interval=3",
               says=f"{newer}: warning: the record at byte ", quiet=())
    kept = newer.stat().st_size
    c.check(0 < kept <= len(data) // 2 and event_reader.records(newer)[1] == 0, f"{kept} of {len(data)} bytes of the damaged file")
    steps = [step for step, _ in event_reader.series("killed_events")["loss/train"]]
    c.check(steps == sorted(set(steps)) and steps[-1] == last + 40, f"steps behind damage: {steps}")


def cut_behind_last_step(out, events):
    """As a run leaves its files that was killed between its last checkpoint and what is made of the last weights."""
    path = Path(out, "metrics.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith(b'{"event":"step"'))
    path.write_bytes(b"".join(lines[:last + 1]))
    (path,) = event_reader.files(events)
    values = [i for i, (_, kind, content) in enumerate(event_reader.events(path)) if kind == "values" and content[0][0] == "loss/train"]
    records = event_reader.records(path)[0]
    path.write_bytes(path.read_bytes()[:sum(16 + len(record) for record in records[:values[-1] + 1])])


def check_ends(c, runs):
    """What is made of the last weights comes behind a resume, stays behind another one, and the run ends once."""
    words = ["--config", "run.yaml", "--out", "ended", "--tensorboard", "ended_events"]
    runs.train(*words)
    want = event_reader.series("ended_events")
    c.check(want["loss/validation"][-1][0] == want["sample"][-1][0] == 8, "no evaluation or sample of the last step")
    c.same([step for step, _ in want["_hparams_/session_end_info"]], [8], "ends")
    cut_behind_last_step("ended", "ended_events")
    left = event_reader.series("ended_events")
    c.same([left[tag][-1][0] for tag in ("loss/train", "loss/validation", "sample")], [8, 4, 4], "what the crash leaves")
    for more in (8, 8, 8, 12, 12):
        runs.train(*words, "--resume", "--set", f"training_config.max_steps={more}")
        found = event_reader.series("ended_events")
        for tag in ("loss/train", "loss/validation", "sample"):
            c.same(found[tag][:len(want[tag])], want[tag], f"{tag} behind a resume to step {more}")
            c.same([step for step, _ in found[tag]][len(want[tag]):],
                   list(range(9, more + 1)) if tag == "loss/train" else list(range(12, more + 1)), f"later steps of {tag}")
        c.same([step for step, _ in found["_hparams_/session_end_info"]], [more], f"ends behind a resume to step {more}")
        check_run_steps(c, metrics("ended/metrics.jsonl"), found)


def check_run_steps(c, lines, found):
    """The metrics have the same evaluations and samples."""
    for event, tag in (("eval", "loss/validation"), ("sample", "sample")):
        c.same([line["step"] for line in lines if line["event"] == event], [step for step, _ in found[tag]], f"metrics and {tag}")


def check_return(c, runs, flips):
    """A bit that is inverted in one replica between steps: the run returns to a checkpoint and makes the steps again."""
    Path("return.yaml").write_text(RUN + "mesh: {axes: [dp], shape: [4]}\nvalidate: replicas\nvalidate_every: 3\nvalidate_policy: resume\n")
    words = ["--config", "return.yaml", "--quiet", "--set", "training_config.max_steps=9"]
    runs.train(*words[:2], *words[3:], "--out", "plain", "--tensorboard", "plain_events")
    done = subprocess.run([flips, *words, "--out", "returned", "--tensorboard", "returned_events"], capture_output=True, text=True,
                          env={**os.environ, "TESSERA_FLIP": "5:1:wpe:0:1"})
    c.check(done.returncode == 0 and "flipped bit" in done.stderr, f"{done.returncode} {done.stderr}")
    plain, found = event_reader.series("plain_events"), event_reader.series("returned_events")
    for tag in ("loss/train", "loss/validation", "sample", "optimizer/learning_rate"):
        c.same(found[tag], plain[tag], f"{tag} of a run that returned")
    c.same(len(event_reader.files("returned_events")), 2, "files of a run that returned")


def check_removed(c, runs):
    """The folder is removed while the run trains, which warns once and goes on."""
    words = [runs.program, "--config", "run.yaml", "--out", "removed_run", "--tensorboard", "removed",
             "--set", "training_config.max_steps=1000000", "--set", "training_config.model_save_interval=1000000"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if os.path.isdir("removed") and event_reader.series("removed").get("loss/train"):
            break
        time.sleep(0.02)
    for path in event_reader.files("removed"):
        path.unlink()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    c.same(said.count("warning: the file was removed: its events are lost"), 1, f"warnings: {process.returncode} {said}")


def check_nan(c, runs):
    """Steps whose numbers are not finite."""
    runs.train("--config", "run.yaml", "--out", "nan", "--tensorboard", "nan_events", "--set", "training_config.optimizer.lr=1e30",
               code=1, says="the loss is nan")
    found = event_reader.series("nan_events")
    steps = [x for x in metrics("nan/metrics.jsonl") if x["event"] == "step"]
    c.check(any(x["loss"] is None and x["grad_norm"] is None for x in steps), f"no step has no number: {steps}")
    for key, tag in (("loss", "loss/train"), ("grad_norm", "optimizer/gradient_norm")):
        c.same([step for step, _ in found[tag]], [x["step"] for x in steps], f"steps of {tag}")
        c.same([math.isfinite(x) for _, x in found[tag]], [x[key] is not None for x in steps], f"numbers of {tag}")


# ---- folders ----

def others_event():
    """The first record of a file that another program writes: a version, and no writer."""
    event = b"\x09" + struct.pack("<d", 1.8e9) + b"\x1a\x0dbrain.Event:2"
    length = struct.pack("<Q", len(event))
    return b"".join((length, struct.pack("<I", event_reader.masked(length)), event, struct.pack("<I", event_reader.masked(event))))



def check_folders(c, runs):
    before = {p.name: p.read_bytes() for p in Path("events").iterdir()}
    words = ["--config", "run.yaml", "--set", "training_config.max_steps=1", "--tensorboard"]
    runs.train(*words, "events", code=2, says="'events' has event files of another run")
    os.mkdir("foreign")
    others = Path("foreign/events.out.tfevents.1.host")
    for text in (b"x", b"", others_event()):
        others.write_bytes(text)
        for more in ([], ["--overwrite"]):
            runs.train(*words, "foreign", *more, code=2, says=f"'{others}' was not written by tessera-train")
        c.same(others.read_bytes(), text, "a file of another program")
    c.same(sorted(os.listdir("foreign")), [others.name], "files beside it")
    runs.train(*words, "events/none/deeper", code=2, says="cannot make the folder 'events/none/deeper'")
    runs.train(*words, "run.yaml", code=2, says="run.yaml")
    runs.train(*words, "new", "--tensorboard-histograms", "(", code=2, says="--tensorboard-histograms")
    runs.train(*words, "new", "--tensorboard-histograms", "nothing", code=2, says="no trained parameter's name matches 'nothing'")
    runs.train(*words[:4], "--tensorboard-histograms", "wte", code=2, says="goes with --tensorboard")
    runs.train(*words, "new", "--tensorboard-every", "5", code=2, says="goes with --tensorboard-histograms")
    c.check(not os.path.exists("new"), "a refused run has made its folder")
    c.same({p.name: p.read_bytes() for p in Path("events").iterdir()}, before, "the folder of another run")
    runs.train(*words, "events", "--overwrite")
    c.same(event_reader.series("events")["loss/train"][0][0], 1, "the first step of the run that overwrites")
    c.same(len(event_reader.files("events")), 1, "files of the run that overwrites")
    (own,) = event_reader.files("events")
    beside = Path("events/events.out.tfevents.1.host")
    beside.write_bytes(others_event())
    runs.train(*words, "events", "--overwrite", code=2, says=f"'{beside}' was not written by tessera-train")
    c.same(beside.read_bytes(), others_event(), "a file of another program beside own ones")
    beside.unlink()
    own.write_bytes(b"")  # as a crash behind its making leaves it
    runs.train(*words, "events", "--overwrite")


def main():
    c, flips = Checks(), Path(sys.argv[2]).resolve()
    runs = Runs(c, Path(sys.argv[1]).resolve())
    here = os.getcwd()
    folder = tempfile.mkdtemp()
    try:
        os.chdir(folder)
        Path("text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 200)
        Path("run.yaml").write_text(RUN)
        for part in (check_values, check_experts, check_resume, check_ends, check_removed, check_nan, check_folders):
            part(c, runs)
        check_return(c, runs, flips)
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    c.end("tensorboard.runs", 150)


main()

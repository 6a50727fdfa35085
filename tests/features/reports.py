# SPDX-License-Identifier: Apache-2.0
"""What shows runs and plans: pages, the terminal, event files, pictures, the progress of commands."""
import json
import os
import pty
import re
import signal
import subprocess
import sys
from xml.etree import ElementTree

from feature import Missing, feature
from small_models import gpt, is_close, mesh

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../watch"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tui"))
from follower import Watch, last_step  # noqa: E402
from terminal import Terminal  # noqa: E402


@feature("report: runs as one page with curves, differences, memory over a step, communication, pipeline and restarts")
def report_page(c):
    c.write("page.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4,
  sequence_length: 8, eval_every: 0, sample_tokens: 4, model_save_interval: 2, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_blocks: 2, num_heads: 1, max_sequence_length: 8}
mesh: {axes: [pp], shape: [2]}
""")
    for steps, more in ((2, []), (4, ["--resume"])):
        c.run("--config", "page.yaml", "--out", "one", "--set", f"training_config.max_steps={steps}", *more)
    c.run("--config", "page.yaml", "--out", "two", "--set", "training_config.max_steps=4", "--set", "mesh={axes: [dp], shape: [2]}")
    done = c.run("report", "one", "two", "--html", "page.html").says("one: 4 steps, the last one 4, 1 restart")
    with open(os.path.join(c.folder, "page.html")) as f:
        data = json.loads(re.search(r'id="data">(.*?)</script>', f.read(), re.DOTALL)[1])
    one, two = data["runs"]
    losses = [o["loss"] for o in c.metrics("two/metrics.jsonl") if o["event"] == "step"]
    is_close(done, two["series"][0]["y"], losses, 1e-4)
    if one["restarts"] != [2] or not one["plan"]["pipeline"]["actions"] or not two["plan"]["communication"]["axes"]:
        done.fail(f"restarts {one['restarts']}, plans {one['plan']}, {two['plan']}")
    if max(two["plan"]["memory"]["work"]) != two["plan"]["memory"]["peak"][1] or "shape: [2]" not in two["config"]:
        done.fail(f"memory {two['plan']['memory']}, configuration {two['config']}")


@feature("watch: that page, which follows runs while they train, resume, and begin later")
def watched_page(c):
    c.write("watched.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4,
  sequence_length: 8, eval_every: 0, sample_tokens: 0, model_save_interval: 2, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_blocks: 2, num_heads: 1, max_sequence_length: 8}
""")
    os.makedirs(os.path.join(c.folder, "sweep"), exist_ok=True)
    c.commands += 1
    watch = Watch(c.program, "sweep", folder=c.folder)
    try:
        watch.ask()
        for steps, out, more in ((2, "sweep/a", []), (4, "sweep/a", ["--resume"]), (4, "sweep/b", [])):
            done = c.run("--config", "watched.yaml", "--out", out, "--set", f"training_config.max_steps={steps}", *more)
            if not watch.until(lambda d, run=out, step=steps: last_step(watch.run(run)) == step and watch.run(run)["plan"]):
                done.fail(f"{out} has not come to step {steps}")
        losses = [o["loss"] for o in c.metrics("sweep/a/metrics.jsonl") if o["event"] == "step"]
        is_close(done, watch.run("sweep/a")["series"][0]["y"], losses, 1e-4)
        if watch.run("sweep/a")["restarts"] != [2] or [run["name"] for run in watch.data["runs"]] != ["sweep/a", "sweep/b"]:
            done.fail(f"{watch.data}")
    finally:
        code, _ = watch.stop(signal.SIGINT)
    if code != 130:
        done.fail(f"Ctrl-C ends watch with {code}")


@feature("--fork: a run with other learning rates behind another's checkpoint, with its own bits and metrics from step 1")
def fork(c):
    c.write("fork.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, max_steps: 6,
  sequence_length: 8, eval_every: 2, sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
scheduler_config: {type: wsd, warmup_steps: 1, hold_steps: 2}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_blocks: 1, num_heads: 1, max_sequence_length: 8}
""")
    later = ["--set", "scheduler_config.hold_steps=4"]
    c.run("--config", "fork.yaml", "--out", "trunk", "--stop-at", "3")
    c.run("--config", "fork.yaml", "--out", "alone", *later)
    done = c.run("--config", "fork.yaml", "--out", "forked", "--fork", "trunk", *later).says("forks from 'trunk/checkpoints/step-00000003'")
    lines = [[(o["event"], o["step"], o["loss"]) for o in c.metrics(f"{out}/metrics.jsonl") if o["event"] != "start"]
             for out in ("alone", "forked")]
    if lines[0] != lines[1] or len(lines[0]) != 10:
        done.fail(f"metrics alone {lines[0]}, of the fork {lines[1]}")
    c.run("lock", "diff", "alone", "forked").says("recipe: the same")
    c.run("verify", "forked").says("verified: steps 4 to 6 of 'forked/run.lock'")


@feature("--tui: a run as one picture on the terminal, of its own process or another one")
def dashboard(c):
    c.write("picture.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4,
  sequence_length: 8, max_steps: 1000000, num_epochs: 1000000, eval_every: 0, sample_tokens: 0, model_save_interval: 0}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_blocks: 1, num_heads: 1, max_sequence_length: 8}
""")
    c.run("--config", "picture.yaml", "--out", "shown", "--set", "training_config.max_steps=4")  # which also makes text.txt
    for words, shows in ((["--config", "picture.yaml", "--tui"], r"picture.yaml, gpt2, 1 rank +step [1-9]"),
                         (["watch", "shown", "--tui"], r"shown  has ended +step 4/4")):
        c.commands += 1
        terminal = Terminal([c.program, *words], folder=c.folder)
        seen = terminal.until(lambda t, shows=shows: re.search(shows, t.picture()[0]) and any("loss " in row for row in t.picture()))
        terminal.send(signal.SIGTERM)
        code = terminal.end()
        if not seen or code != 143 or terminal.now:
            raise AssertionError(f"{words}: {code}, {terminal.picture()}")


@feature("--tensorboard: event files with metrics, recipe, graph, samples and histograms; a resumed run shows no step twice")
def tensorboard(c):
    sys.path.insert(0, os.path.join(c.source_root, "tests/tensorboard"))
    import event_reader
    c.write("events.yaml", """training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 2,
  sequence_length: 8, eval_every: 0, sample_tokens: 4, model_save_interval: 2, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_blocks: 1, num_heads: 1, max_sequence_length: 8}
""")
    words = ["--config", "events.yaml", "--out", "run", "--tensorboard", "events", "--tensorboard-histograms", "wte",
             "--tensorboard-every", "1"]
    for steps in (3, 5):
        run = c.run(*words, "--set", f"training_config.max_steps={steps}", *(["--resume"] if steps == 5 else []))
    found = event_reader.series(os.path.join(c.folder, "events"))
    lines = [o for o in c.metrics("run/metrics.jsonl") if o["event"] == "step"]
    is_close(run, [value for _, value in found["loss/train"]], [o["loss"] for o in lines], 1e-6)
    of_steps = {tag: [step for step, _ in values] for tag, values in found.items()}
    if of_steps["loss/train"] != [1, 2, 3, 4, 5] or of_steps["gradients/wte"] != [1, 2, 3, 4, 5] or "sample" not in found:
        run.fail(f"the tags and their steps are {of_steps}")


@feature("--svg of plan and check: memory, mesh and placement, pipeline, communication as pictures with the plan's numbers")
def pictures(c):
    for command in ("check", "plan"):
        gpt(c, command, "--machine", "h100", "--svg", command, mesh=mesh(dp=2, tp=2)).ends(0)
        total = gpt(c, "check", mesh=mesh(dp=2, tp=2)).matches(r"^  total +([\d,]+) ")[1]
        roots = {name: ElementTree.fromstring(c.read(f"{command}/{name}.svg"))
                 for name in ("memory", "mesh", "pipeline", "communication")}
        said = {name: " ".join(root.itertext()) for name, root in roots.items()}
        for name, text in (("memory", f"total {total} bytes"), ("mesh", "rank 3, dp 1, tp 1"), ("pipeline", "F0"),
                           ("communication", "rank 0 to rank 1: ")):
            if text not in said[name]:
                raise Missing(f"{command}/{name}.svg has no '{text}'")


@feature("--progress: a line of long commands on a terminal, gone at the end; without one nothing, or plain lines")
def progress(c):
    words = ("tokenize", "text.txt", "--out", "text.bin")
    master, slave = pty.openpty()
    done = subprocess.run([c.program, *words, "--progress", "0"], cwd=c.folder, stdout=subprocess.DEVNULL, stderr=slave,
                          env={**os.environ, "TERM": "xterm", "NO_COLOR": ""})
    os.close(slave)
    drawn = os.read(master, 1 << 16)
    os.close(master)
    if done.returncode or b"\r\x1b[Ktokenizing [" not in drawn or not drawn.endswith(b"\r\x1b[K"):
        raise Missing(f"on a terminal: {drawn!r}")
    os.remove(os.path.join(c.folder, "text.bin"))
    c.run(*words, "--progress", "0").ends(0).matches(r"^tokenizing: 100%, .*, ETA 0:00$")
    os.remove(os.path.join(c.folder, "text.bin"))
    c.run(*words).ends(0).never_says("tokenizing")

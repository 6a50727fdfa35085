# SPDX-License-Identifier: Apache-2.0
"""The command `report`: what its page has of a run, and of files that are broken, hostile, empty or continued.
usage: test_report.py PROGRAM"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
START = {"event": "start", "config": "run.yaml", "module": "gpt2", "mesh": "dp=2", "ranks": 2, "parameters": 10, "seed": 1,
         "policy": "deterministic", "isa": "x86-64", "threads": 1, "recipe": "abc"}
# What a page has of the metrics below, as text.
TINY = """{"format":1,"version":"VERSION","runs":[{"name":"tiny.jsonl","start":START,"end":END,"series":[\
{"tag":"loss/train","count":2,"x":[1,2],"y":[2.5,1.25],"first":[1,2.5],"last":[2,1.25],"missing_steps":[],"missing":0},\
{"tag":"loss/validation","count":1,"x":[2],"y":[1.5],"first":[2,1.5],"last":[2,1.5],"missing_steps":[],"missing":0},\
{"tag":"optimizer/learning_rate","count":2,"x":[1,2],"y":[0.001,0.001],"first":[1,0.001],"last":[2,0.001],\
"missing_steps":[],"missing":0},\
{"tag":"optimizer/gradient_norm","count":2,"x":[1,2],"y":[0.5,0.5],"first":[1,0.5],"last":[2,0.5],"missing_steps":[],"missing":0},\
{"tag":"throughput/tokens_per_s","count":2,"x":[1,2],"y":[640,640],"first":[1,640],"last":[2,640],"missing_steps":[],"missing":0},\
{"tag":"throughput/step_ms","count":2,"x":[1,2],"y":[100,100],"first":[1,100],"last":[2,100],"missing_steps":[],"missing":0},\
{"tag":"throughput/tokens","count":2,"x":[1,2],"y":[64,128],"first":[1,64],"last":[2,128],"missing_steps":[],"missing":0},\
{"tag":"throughput/seconds","count":2,"x":[1,2],"y":[0.1,0.2],"first":[1,0.1],"last":[2,0.2],"missing_steps":[],"missing":0}],\
"restarts":[],"samples_count":1,"samples":[[2,"a \\u003cb>"]],"lines":6,"broken":0,"problems":[],"config":null,"lock":null,\
"checkpoints":[],"warnings":[],"plan":null}]}"""


class Report:
    def __init__(self, c, program):
        self.c, self.program = c, program

    def run(self, *words, code=0, says=""):
        done = subprocess.run([self.program, *words], capture_output=True, text=True)
        said = done.stdout + done.stderr
        self.c.check(done.returncode == code and says in said, f"{words}: {done.returncode} {said}")
        return said

    def page(self, *paths, says=""):
        """The page's text and its data."""
        self.run("report", *paths, "--html", "page.html", says=says)
        text = Path("page.html").read_text()
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
        return text, json.loads(data), data


def step(number, loss=1.0, **more):
    return {"event": "step", "step": number, "loss": loss, "grad_norm": 0.5, "lr": 0.001, "tokens": 64 * number, "tokens_per_s": 640,
            "ms": 100, **more}


def write(path, *lines, end="\n"):
    Path(path).write_text("\n".join(x if isinstance(x, str) else json.dumps(x, separators=(",", ":")) for x in lines) + end)


def series(data, tag, run=0):
    (found,) = [s for s in data["runs"][run]["series"] if s["tag"] == tag]
    return list(zip(found["x"], found["y"], strict=True))


def check_text(c, r):
    end = {"event": "end", "step": 2, "loss": 1.25, "reason": "max_steps", "weights_sha256": "f0", "recipe": "abc"}
    write("tiny.jsonl", START, step(1, 2.5), step(2, 1.25), {"event": "eval", "step": 2, "loss": 1.5, "perplexity": 4.5},
          {"event": "sample", "step": 2, "text": "a <b>"}, end)
    text, data, raw = r.page("tiny.jsonl", says="tiny.jsonl: 2 steps, the last one 2, no plan\nreport: page.html, ")
    want = TINY.replace("START", json.dumps(START, separators=(",", ":"))).replace("END", json.dumps(end, separators=(",", ":")))
    c.same(raw, want.replace("VERSION", data["version"]), "the data of a tiny run")
    c.check(re.search(r"https?://(?!www\.w3\.org/2000/svg)|<link|src=|@import", text) is None, "the page names other files")


def check_broken(c, r):
    hostile = "</script><script>alert(1)</script><!--"
    write("hostile.jsonl", {**START, "mesh": hostile, "config": hostile}, step(1), {"event": "sample", "step": 1, "text": hostile},
          "{", "[]", "null", '{"event":"step"}', '{"event":"step","step":-1,"loss":1}', '{"event":"step","step":"2","loss":1}',
          '{"event":"step","step":2.5,"loss":1}', '{"event":"step","step":1e300,"loss":1}', '{"event":"step","step":2,"loss":"x"}',
          '{"event":"other","step":2}', '{"event":"step","step":2,"step":3,"loss":1}', "\x00\x01\x02", "\udcff".encode("utf-8", "surrogateescape")
          .decode("latin-1"), '{"event":"eval","step":1,"loss":{}}', step(3, None), step(4, experts="x", lr=[], ms=None),
          '{"event":"step","step":5,"loss":9', end="")
    text, data, _ = r.page("hostile.jsonl", says="hostile.jsonl: 3 steps, the last one 4, 14 broken lines, no plan")
    run = data["runs"][0]
    c.same(series(data, "loss/train"), [(1, 1), (3, None), (4, 1)], "losses between broken lines")
    c.same((run["lines"], run["broken"], len(run["problems"])), (19, 14, 10), "lines")
    c.same(run["problems"][:2], ["hostile.jsonl:4: this is no JSON", "hostile.jsonl:5: this is no line of a run's metrics"], "problems")
    c.same((run["start"]["mesh"], run["samples"]), (hostile, [[1, hostile]]), "hostile texts are texts")
    c.same(text.count("</script"), 2, "ends of scripts")
    c.same(text.count("<!--"), 2, "comments of the page")
    name = "<img src=x onerror=alert(1)>"
    os.mkdir(name)
    write(f"{name}/metrics.jsonl", START, step(1))
    Path(name, "config.yaml").write_text(f"training_config: '{hostile}'\n")
    text, data, _ = r.page(name)
    c.same((data["runs"][0]["name"], text.count("</script"), text.count("<img")), (name, 2, 0), "a hostile folder")
    c.check("config.yaml:1" in "".join(data["runs"][0]["warnings"]), data["runs"][0]["warnings"])
    c.same(data["runs"][0]["plan"], None, "a plan of no configuration")


def check_types(c, r):
    """The page shows values of the first and the last line as they are: those of other types are broken lines."""
    for hostile in ({"toString": 1}, [], True):
        end = {"event": "end", "step": 1, "loss": 1, "reason": "max_steps"}
        write("types.jsonl", START, step(1), *[{**START, key: hostile} for key in START if key != "event"],
              *[{**end, key: hostile} for key in ("step", "loss", "reason", "weights_sha256", "recipe")], {"event": "end", "step": 1})
        _, data, _ = r.page("types.jsonl")
        run = data["runs"][0]
        c.same((run["start"], run["end"], run["broken"]), (START, None, len(START) - 1 + 6), f"lines with {hostile}")
    write("long.jsonl", START, step(1), '{"event":"sample","step":1,"text":"' + "x" * (1 << 24) + '"}', step(2))
    _, data, _ = r.page("long.jsonl", says="long.jsonl: 2 steps, the last one 2, 1 broken line, no plan")
    c.same((data["runs"][0]["problems"], data["runs"][0]["samples"]), (["long.jsonl:3: no line of a run's metrics is as long"], []), "a long line")


def check_steps(c, r):
    write("empty.jsonl", "", end="")
    _, data, _ = r.page("empty.jsonl", says="empty.jsonl: 0 steps, no plan")
    c.same(data["runs"][0]["series"], [], "series of no steps")
    # A line that just lacks its newline is whole, as a copy of a file or an editor leaves it.
    write("whole.jsonl", START, step(1), step(2), end="")
    _, data, _ = r.page("whole.jsonl", says="whole.jsonl: 2 steps, the last one 2, no plan")
    c.same((series(data, "loss/train"), data["runs"][0]["lines"]), ([(1, 1), (2, 1)], 3), "a last line without a newline")
    write("large.jsonl", START, *[step(i, 1e308) for i in range(1, 2002)])
    _, data, _ = r.page("large.jsonl")
    c.same({y for _, y in series(data, "loss/train")}, {1e308}, "means of numbers whose sum no double holds")
    write("nan.jsonl", START, *[step(i, None) for i in range(1, 31)])
    _, data, _ = r.page("nan.jsonl")
    loss = data["runs"][0]["series"][0]
    c.same((loss["missing"], loss["missing_steps"], loss["last"]), (30, list(range(1, 21)), [30, None]), "steps without a loss")
    # As a pipe has them: the run was started again behind step 2, and twice behind step 3.
    write("again.jsonl", START, step(1, 5), step(2, 4), step(3, 3), {"event": "sample", "step": 3, "text": "gone"},
          {"event": "eval", "step": 3, "loss": 9}, START, step(3, 2.5), step(4, 2), START, step(4, 1.5), step(5, 1))
    _, data, _ = r.page("again.jsonl", says="again.jsonl: 5 steps, the last one 5, 2 restarts")
    c.same(series(data, "loss/train"), [(1, 5), (2, 4), (3, 2.5), (4, 1.5), (5, 1)], "later lines count")
    c.same(series(data, "throughput/seconds")[-1], (5, 0.5), "time of the steps that count")
    c.same((data["runs"][0]["restarts"], data["runs"][0]["samples"]), ([2, 3], []), "restarts")
    c.check(all(s["tag"] != "loss/validation" for s in data["runs"][0]["series"]), "an evaluation that is gone")
    experts = [{"layer": "a", "load": [1, 3], "imbalance": 1.5, "entropy": 0.8, "dropped": 2},
               {"layer": "b", "load": [4, 0], "imbalance": 2, "entropy": 0, "dropped": 3}]
    write("experts.jsonl", START, step(1, experts=experts))
    _, data, _ = r.page("experts.jsonl")
    c.same((series(data, "experts/imbalance"), series(data, "experts/dropped")), ([(1, 2)], [(1, 5)]), "experts")


RUN = """\
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 4,
  gradient_accumulation_steps: 4, eval_every: 2, model_save_interval: 2, sample_tokens: 4, validation_batch_size: 8,
  optimizer: {type: AdamW, lr: 0.003}}
transformer_config: {model_type: gpt2, vocab_size: 0, embedding_dim: 16, num_blocks: 2, num_heads: 2, max_sequence_length: 16}
mesh: {axes: [dp, pp], shape: [2, 2]}
numerics: {units: {batch: 8, tp: 2}, threads: 1, isa: x86-64}
"""


def amount(text):
    """"76.3 KiB" as bytes, and its error."""
    number, unit = text.split()
    factor = 1024 ** ["B", "KiB", "MiB"].index(unit)
    return float(number) * factor, 0.06 * factor if factor > 1 else 0.5


def check_plan(c, r):
    """Two real runs of different configurations, one of them resumed. `plan` and `check --dump memory` print the same figures."""
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 100)
    Path("run.yaml").write_text(RUN)
    r.run("--config", "run.yaml", "--out", "a", "--quiet", "--set", "training_config.max_steps=2")
    r.run("--config", "run.yaml", "--out", "a", "--quiet", "--resume")
    r.run("--config", "run.yaml", "--out", "b", "--quiet", "--set", "training_config.optimizer.lr=0.01", "--set", "mesh={axes: [dp], shape: [2]}")
    _, data, _ = r.page("a", "b", says="a: 4 steps, the last one 4, 1 restart\nb: 4 steps, the last one 4\nreport: page.html, ")
    a, b = data["runs"]
    c.same((a["restarts"], [s["step"] for s in a["lock"]["starts"]], b["restarts"]), ([2], [0, 2], []), "restarts of a run that resumed")
    c.same([(n, os.path.basename(p)) for n, p in a["checkpoints"]], [(2, "step-00000002"), (4, "step-00000004")], "checkpoints")
    lines = [json.loads(x) for x in Path("b/metrics.jsonl").open()]
    c.same([s["last"] for s in b["series"] if s["tag"] == "loss/train"], [[4, [x for x in lines if x["event"] == "step"][-1]["loss"]]], "a loss")
    c.same((a["config"], b["end"]["recipe"]), (Path("a/config.yaml").read_text(), lines[0]["recipe"]), "the configuration, the recipe")
    text = r.run("plan", "--config", "a/config.yaml", "--gantt")
    plan = a["plan"]
    for op, axis, _, _, times, sent in re.findall(r"^  (\w+) +(dp|pp) +(\w+) +(\w+) +(\d+) +[\d.]+ \w+ +([\d.]+ \w+)", text, re.M):
        found = [t for t in plan["communication"]["transfers"] if (t["op"], t["axis"], t["count"]) == (op, axis, int(times))]
        size, error = amount(sent)
        c.check(len(found) == 1 and abs(found[0]["sent"] - size) <= error, f"{op} over {axis}: {found}, not {sent}")
    c.check(len(plan["communication"]["transfers"]) >= 3, plan["communication"])
    c.check(f"MFU: {100 * plan['mfu']:.1f}%" in text and f"bubble of the pipeline: {100 * plan['bubble']:.1f}%" in text, "MFU and bubble")
    c.same((len(plan["pipeline"]["actions"]), plan["pipeline"]["stages"], b["plan"]["pipeline"]), (16, 2, None), "actions of the pipeline")
    c.check(max(x[5] for x in plan["pipeline"]["actions"]) <= plan["pipeline"]["total"] * 1.0001, "the pipeline's end")
    for name, run in (("a", a), ("b", b)):
        check_memory(c, r, name, run["plan"])


def check_memory(c, r, name, plan):
    """The curve's peak, the sum of lifetimes, is what the planner of offsets has counted."""
    text = r.run("check", "--config", f"{name}/config.yaml", "--dump", "memory")
    stages = text.split("memory of one rank: ")[1:]
    memory, stage = plan["memory"], stages[plan["memory"]["stage"]]
    uses = [int(re.search(rf"^  {use} +([\d,]+)", stage, re.M)[1].replace(",", "")) for use in
            ("activations", "gradients", "communication", "scratch")]
    task = int(re.search(r"task (\d+)", stage)[1])
    c.same((memory["peak"][0], memory["peak"][1], max(memory["work"])), (task, sum(uses), sum(uses)), f"{name}: the peak")
    c.same(list(plan["stages"][memory["stage"]]["memory"]["uses"].values()), uses, f"{name}: what the work is for")
    live = sum(size for _, size, first, last in memory["tensors"] if first <= task <= last)
    c.same(live + memory["others"], sum(uses), f"{name}: what fills the peak")


def check_pipes(c, r):
    """A pipe among a run's files is not opened: who waits for a reader still does."""
    os.mkfifo("pipe.txt")
    os.mkdir("piped")
    write("piped/metrics.jsonl", START, step(1))
    Path("piped/config.yaml").write_text(RUN.replace("text.txt", "pipe.txt"))
    writer = subprocess.Popen(["/bin/sh", "-c", "exec 3>pipe.txt; echo opened"], stdout=subprocess.PIPE)
    _, data, _ = r.page("piped")
    c.check("it is a device or a pipe, not a file" in "".join(data["runs"][0]["warnings"]), data["runs"][0]["warnings"])
    c.same(writer.poll(), None, "a writer that waits for a reader")
    writer.kill()
    c.same(writer.communicate()[0], b"", "what the writer has done")


def check_refused(c, r):
    r.run("report", "--html", "x.html", code=2, says="report needs a folder of --out, or a file of --metrics")
    r.run("report", "tiny.jsonl", code=2, says="report needs --html FILE")
    r.run("report", "nowhere", "--html", "x.html", code=2, says="'nowhere'")
    os.mkdir("bare")
    r.run("report", "bare", "--html", "x.html", code=2, says="has written them there: name that file")
    Path("other.txt").write_text("no metrics\nat all\n")
    r.run("report", "other.txt", "--html", "x.html", code=2, says="other.txt: error: the file has no metrics of a run")
    r.run("report", "tiny.jsonl", "--html", "other.txt", code=2, says="other.txt")
    r.run("report", "tiny.jsonl", "--html", "tiny.jsonl", code=2, says="tiny.jsonl")
    r.run("report", "tiny.jsonl", "--html", "no/x.html", code=2, says="no/x.html")
    r.run("report", "tiny.jsonl", "--html", "x.html", "--steps", "3", code=2, says="--steps belongs to")
    r.run("report", "tiny.jsonl", "--html", "x.html", "--machine", "nope", code=2, says="error: there is no machine 'nope'")
    Path("machine.yaml").write_text("name: x\n")
    r.run("report", "tiny.jsonl", "--html", "x.html", "--machine", "machine.yaml", code=2, says="machine.yaml:1:1: error: ")
    c.check(not os.path.exists("x.html"), "a refused report has written its page")
    c.same(Path("other.txt").read_text(), "no metrics\nat all\n", "a file of somebody else")


def main():
    c = Checks()
    r = Report(c, Path(sys.argv[1]).resolve())
    os.environ["TESSERA_SHARE"] = str(ROOT)
    here, folder = os.getcwd(), tempfile.mkdtemp()
    try:
        os.chdir(folder)
        for part in (check_text, check_broken, check_types, check_steps, check_plan, check_pipes, check_refused):
            part(c, r)
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    c.end("html_report.pages", 60)


main()

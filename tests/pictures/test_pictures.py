# SPDX-License-Identifier: Apache-2.0
"""The pictures of plan and check: their numbers are those that plan, check and inspect print.
usage: test_pictures.py PROGRAM"""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("communication", "memory", "mesh", "pipeline")
RUN = """
training_config: {seed: 1, batch_size: 8, sequence_length: 16, max_steps: 1, eval_every: 0, sample_tokens: 0,
  optimizer: {type: AdamW, lr: 0.001}}
transformer_config: {model_type: llama, vocab_size: 64, embedding_dim: 32, num_blocks: 4, num_heads: 4, num_groups: 4,
  max_sequence_length: 16}
numerics: {isa: x86-64, threads: 1}
"""
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def number(text):
    return int(text.replace(",", ""))


def tips(root):
    """The texts over the shapes."""
    return [title.text for shape in root.iter("{http://www.w3.org/2000/svg}rect") for title in shape if title.tag.endswith("title")]


def texts(root):
    return ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]


class Pictures:
    def __init__(self, c, program):
        self.c, self.program = c, program

    def run(self, *words, code=0, says=""):
        done = subprocess.run([self.program, *words], capture_output=True, text=True)
        said = done.stdout + done.stderr
        self.c.check(done.returncode == code and says in said, f"{words}: {done.returncode} {said}")
        return done.stdout

    def draw(self, *words, command="plan"):
        """What the command prints, and the parsed pictures."""
        printed = self.run(command, "--config", "run.yaml", "--svg", "drawn", *words)
        self.c.same(sorted(os.listdir("drawn")), [f"{n}.svg" for n in NAMES], "the files")
        return printed, {n: self.read(f"drawn/{n}.svg") for n in NAMES}

    def read(self, path):
        text = Path(path).read_text()
        self.c.check(text.startswith("<!-- drawn by tessera-train -->\n<svg "), f"{path} begins with {text[:60]!r}")
        self.c.check("nan" not in text and "inf\"" not in text, f"{path} has what is no number")
        root = ElementTree.fromstring(text)
        self.c.check(root.find("{*}title").text and root.find("{*}desc").text, f"{path} has no name and description")
        return root


def check_memory(c, root, printed, dump):
    """Against the table of all stages, and --dump memory of the one that needs the most. No name of a section ends behind the map."""
    panel = next(r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("class") == "panel")
    right = float(panel.get("x")) + float(panel.get("width"))
    names = [t for t in root.iter("{http://www.w3.org/2000/svg}text") if t.get("class") == "small soft" and not t.get("text-anchor")]
    ends = [float(t.get("x")) + 6.2 * len(t.text) for t in names]
    c.check(len(ends) >= 2 and max(ends) <= right, f"names end at {ends} of {right}")
    totals = [number(x) for x in re.findall(r"^  [\d-]+ .* ([\d,]+)$", printed.partition("memory of each")[2].partition("work of")[0], re.M)]
    about = root.find("{*}desc").text
    c.same(number(re.search(r"total ([\d,]+) bytes", about)[1]), max(totals), "bytes of the rank")
    stage = max(dump.split("memory of one rank: ")[1:], key=lambda t: number(re.match(r"[\d,]+", t)[0]))
    work = number(re.search(r"^  work +([\d,]+)$", stage, re.M)[1])
    c.same(number(re.search(r"work ([\d,]+), total", about)[1]), work, "bytes of work")
    for kind in ("parameters", "optimizer state"):
        c.same(number(re.search(rf"{kind} ([\d,]+)", about)[1]), number(re.search(rf"^  {kind} +([\d,]+)$", stage, re.M)[1]), kind)
    uses = {u: number(re.search(rf"^  {u} +([\d,]+)$", stage, re.M)[1]) for u in ("activations", "gradients", "communication", "scratch")}
    peak = int(re.search(r"at its fullest, task (\d+)", stage)[1])
    drawn = [re.match(r"(.*): ([\d,]+) bytes at ([\d,]+), (\w+), tasks (\d+) to (\d+)$", t) for t in tips(root)]
    pieces = [(m[4], number(m[2]), number(m[3]), int(m[5]), int(m[6])) for m in drawn if m]
    c.check(len(pieces) > 50, f"{len(pieces)} buffers")
    at_peak = {u: sum(p[1] for p in pieces if p[0] == u and p[3] <= peak <= p[4]) for u in uses}
    c.same(at_peak, uses, "bytes at the peak, by use")
    c.check(all(p[2] + p[1] <= work for p in pieces), "buffers outside of work")
    overlaps = [(a, b) for i, a in enumerate(pieces) for b in pieces[:i]
                if a[3] <= b[4] and b[3] <= a[4] and a[2] < b[2] + b[1] and b[2] < a[2] + a[1]]
    c.same(overlaps, [], "buffers of one address at once")
    c.check(any(f"The peak: {sum(uses.values()):,} bytes in task {peak}, " in t for t in texts(root)), "the peak's text")


def check_communication(c, root, printed, stage_of):
    """Rows add up to what plan prints of the stage that has the most; cells to their collectives."""
    cells = {}
    for tip in tips(root):
        match = re.match(r"rank (\d+) to rank (\d+): ([\d,]+) bytes(.*)$", tip)
        if match:
            cells[int(match[1]), int(match[2])] = number(match[3])
            parts = [number(x.split()[-1]) for x in match[4].split("; ")[1:]]
            c.check(abs(sum(parts) - number(match[3])) <= len(parts), tip)
    sent = {int(m[1]): number(m[2]) for m in (re.match(r"rank (\d+): ([\d,]+) bytes sent", t) for t in tips(root)) if m}
    c.check(len(cells) >= len(sent) >= 2, f"{cells} {sent}")
    for rank, total in sent.items():
        row = sum(v for (f, _), v in cells.items() if f == rank)
        c.check(abs(row - total) <= len(cells), f"rank {rank} sends {total}, its cells have {row}")
    stage = int((re.search(r"of stage (\d+), which has the most", printed) or [0, 0])[1])
    rows = re.findall(r"^  \w+ +(?:dp|pp|tp|cp|ep) +\w+ +\w+ +[\d,]+ +[\d.]+ \w+ +([\d.]+) (\w+)", printed, re.M)
    want = sum(float(x) * UNITS[u] for x, u in rows)
    slack = sum(0.051 * UNITS[u] for _, u in rows)
    ranks = [r for r in sent if stage_of(r) == stage]
    c.check(rows and ranks, printed)
    for rank in ranks:
        c.check(abs(sent[rank] - want) <= slack, f"rank {rank} sends {sent[rank]}, plan prints {want} ± {slack}")


def check_pipeline(c, root, printed, stages, microbatches):
    boxes = [re.match(r"([FB])(\d+): \w+ of microbatch \d+, stage (\d+): ([\d.e+-]+) to ([\d.e+-]+) ms", t) for t in tips(root)]
    boxes = [m for m in boxes if m]
    c.same(len(boxes), 2 * stages * microbatches, "actions")
    bubble = re.search(r"bubble of the pipeline: ([\d.]+)%", printed)[1]
    end = max(float(m[5]) for m in boxes)
    c.check(f"bubble {bubble}%" in root.find("{*}desc").text, f"{bubble}% is not in {root.find('{*}desc').text}")
    total = float(re.search(r"([\d.e+-]+) ms, bubble", root.find("{*}desc").text)[1])
    busy = sum(float(m[5]) - float(m[4]) for m in boxes)
    c.check(abs(end - total) <= 1e-4 * total, f"the last action ends at {end}, not {total}")
    c.check(abs(100 * (1 - busy / stages / total) - float(bubble)) < 0.06, f"boxes leave {busy} of {stages} x {total} ms")
    gantt = float(re.search(r"^ *total ([\d.e+-]+), bubble", printed, re.M)[1])
    c.check(abs(gantt - total) <= 1e-5 * total, f"--gantt has {gantt} ms")


def check_labels(c, root):
    """Labels of the boxes of a row leave a gap: in Arial, whose letters are as wide as those of the fonts that the picture names."""
    wide = {"F": 0.611, "B": 0.667, "W": 0.944, ".": 0.278}
    rows = {}
    for t in root.iter("{http://www.w3.org/2000/svg}text"):
        if re.fullmatch(r"[FBW]?\d+(\.\d+)?", t.text or "") and t.get("text-anchor") == "middle":
            half = 11 * sum(wide.get(x, 0.556) for x in t.text) / 2
            rows.setdefault(t.get("y"), []).append((float(t.get("x")) - half, float(t.get("x")) + half, t.text))
    count = 0
    for row in map(sorted, rows.values()):
        close = [(a[2], b[2]) for a, b in zip(row, row[1:]) if b[0] - a[1] < 1.5]
        c.same(close, [], "labels that touch")
        count += sum(text[0] in "FBW" for _, _, text in row)
    return count


def check_narrow(c, p):
    """Orders with many boxes, some as wide as their texts alone."""
    shown = 0
    for schedule, stages, microbatches in (("zb_h1", 8, 32), ("zb_h1", 8, 24), ("1f1b", 8, 40), ("zb_v", 4, 16)):
        more = ["--set", f"mesh={{axes: [pp], shape: [{stages}]}}", "--set", f"pipeline={{schedule: {schedule}, microbatches: {microbatches}}}",
                "--set", f"training_config.batch_size={microbatches}", "--set", "transformer_config.num_blocks=8"]
        shown += check_labels(c, p.draw("--machine", "h100", *more)[1]["pipeline"])
    c.check(shown > 200, f"{shown} labels with a letter")


def check_mesh(c, p, root, *words):
    said = p.run("inspect", "--config", "run.yaml", *words)
    coords = dict(re.findall(r"^  rank (\d+): (.*)$", said, re.M))
    drawn = dict(m.groups() for m in (re.match(r"(?:device \d+: )?rank (\d+), ((?:\w+ \d+(?:, )?)+)", t) for t in tips(root)) if m)
    c.same({r: x.rstrip(", ") for r, x in drawn.items()}, coords, "coordinates")
    names = [t for t in texts(root) if re.fullmatch(r"[\w.]+(@[\w.]+)?", t) and ("." in t or t == "wte")]
    checked = 0
    slices = [m.groups() for m in (re.match(r"rank (\d+): (.*)$", t) for t in tips(root)) if m]
    c.check(len(slices) == 3 * len(coords), f"{len(slices)} parts of tensors")
    for i, name in enumerate(names[:3]):
        said = p.run("inspect", "--config", "run.yaml", *words, "--tensor", name)
        for rank, part in slices[i * len(coords):(i + 1) * len(coords)]:
            have = re.search(rf"^  rank {rank}: .*?  ?(\[.*?\]|none)", said, re.M)
            c.same(part if part.startswith("[") else "none", have[1], f"{name} on rank {rank}")
            checked += 1
    c.check(checked >= 2 * len(coords), f"names {names}")


def check_mesh_of(c, p, axes, microbatches, *more):
    mesh = "mesh={axes: [%s], shape: [%s]}" % (", ".join(axes), ", ".join(str(n) for n in axes.values()))
    words = ["--machine", "h100", "--gantt", "--set", mesh, "--set", f"pipeline.microbatches={microbatches}", *more]
    printed, roots = p.draw(*words)
    first = {n: Path(f"drawn/{n}.svg").read_bytes() for n in NAMES}
    p.draw(*words)
    c.same({n: Path(f"drawn/{n}.svg").read_bytes() for n in NAMES}, first, "the same pictures again")
    dump = p.run("plan", "--config", "run.yaml", *words, "--dump", "memory")
    sizes, strides, stride = list(axes.values()), {}, 1
    for axis, size in reversed(list(zip(axes, sizes))):
        strides[axis], stride = stride, stride * size
    check_memory(c, roots["memory"], printed, dump)
    check_communication(c, roots["communication"], printed, lambda r: r // strides["pp"] % axes["pp"] if "pp" in axes else 0)
    check_mesh(c, p, roots["mesh"], *words[3:])
    if "pp" in axes:
        check_pipeline(c, roots["pipeline"], printed, axes["pp"], microbatches)
        check_labels(c, roots["pipeline"])


def check_many(c, p):
    """The size of pictures of 1,024 and 16,384 ranks, which say what a cell is."""
    run = ["--config", str(ROOT / "configs/runs/llama3_405b_16384.yaml"), "--machine", "h100", "--svg", "many", "--quiet"]
    few = ["--set", "device_config.mesh_shape=[8, 16, 8]", "--set", "training_config.batch_size=128"]
    for more, cell in ((few, "A cell is 2 hosts of 8 ranks."), ([], "A cell is 32 hosts of 8 ranks.")):
        p.run("plan", *run, *more)
        for name in NAMES:
            root = p.read(f"many/{name}.svg")
            c.check(os.path.getsize(f"many/{name}.svg") < 800_000, f"{name}: {os.path.getsize(f'many/{name}.svg')} bytes")
            if name == "communication":
                c.check(any(cell in t for t in texts(root)), f"no '{cell}'")
            if name == "memory":
                c.check(any("smaller buffers are drawn together" in t for t in texts(root)), "what is drawn together")
            if name == "mesh":
                c.check(any("A cell is " in t for t in texts(root)), "what a cell is")


def check_largest(c, p):
    """The bytes between all pairs of 131,072 ranks, which are too many to be counted one by one: those of two ranks, of whom each all_reduce
    sends as many bytes as both have, times the ranks but one."""
    large = RUN.replace("batch_size: 8", "batch_size: 131072").replace("threads: 1}", "threads: 1, units: {batch: 131072}}")
    Path("largest.yaml").write_text(large)
    total = {}
    for ranks in (2, 131072):
        p.run("plan", "--config", "largest.yaml", "--machine", "h100", "--svg", "largest", "--quiet", "--set",
              f"mesh={{axes: [dp], shape: [{ranks}]}}")
        about = p.read("largest/communication.svg").find("{*}desc").text
        total[ranks] = number(re.match(r"([\d,]+) bytes between", about)[1])
    c.check(total[2] > 0, total)
    c.same(total[131072], total[2] * 131071, "the bytes between 131,072 ranks")


def check_descriptors(c, p):
    """Every shipped descriptor; the devices that have no rank are said to have none."""
    for path in sorted((ROOT / "mesh_descriptors").glob("*.textproto")):
        for flags in ("enable_ddp: true", "enable_ddp: true, enable_tp: true", "enable_ddp: true, enable_cp: true, enable_tp: true"):
            done = subprocess.run([p.program, "check", "--config", "run.yaml", "--mesh", str(path), "--svg", "drawn", "--quiet", "--machine",
                                   "h100", "--set", f"device_config={{{flags}}}", "--set", "training_config.batch_size=128", "--set",
                                   "transformer_config.num_heads=8", "--set", "transformer_config.num_groups=8"], capture_output=True, text=True)
            if done.returncode == 0:
                break
        c.check(done.returncode == 0, f"{path.name}: {done.stderr}")
        root = p.read("drawn/mesh.svg")
        ranks = int(re.match(r"(\d+) ranks", root.find("{*}desc").text)[1])
        c.same(sum(bool(re.match(r"device \d+: rank \d+", t)) for t in tips(root)), ranks, f"{path.name}: ranks")


def check_hostile(c, p):
    name = b"a<b>&\"c\" '\xc3\xbc\x01.txt"
    Path(os.fsdecode(name)).write_text("stages: 2\nmicrobatches: 2\nstage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1\n")
    quoted = os.fsdecode(name).replace("\\", "\\\\").replace('"', '\\"').replace("\x01", "\\x01")
    Path("hostile.yaml").write_text(RUN + f'pipeline: {{schedule: "file:{quoted}", microbatches: 2}}\nmesh: {{axes: [pp], shape: [2]}}\n')
    p.run("plan", "--config", "hostile.yaml", "--svg", "hostile", "--quiet", "--machine", "h100")
    for picture in NAMES:
        p.read(f"hostile/{picture}.svg")
    about = p.read("hostile/pipeline.svg").find("{*}desc").text
    c.check("a<b>&\"c\" 'ü?.txt: 2 stages" in about, f"the schedule's name: {about!r}")


def check_refused(c, p):
    mesh = ["--set", "mesh={axes: [dp], shape: [2]}"]
    os.mkdir("own")
    Path("own/pipeline.svg").write_text("<svg/>\n")
    p.run("plan", "--config", "run.yaml", "--svg", "own", *mesh, code=2, says="'own/pipeline.svg' is there and is no SVG picture")
    c.same(os.listdir("own"), ["pipeline.svg"], "a refused command has written")
    p.run("check", "--config", "run.yaml", "--svg", "run.yaml", *mesh, code=2, says="cannot make the folder 'run.yaml': Not a directory")
    p.run("check", "--config", "run.yaml", "--machine", "h100", code=2, says="--machine goes with --svg")
    p.run("train", "--config", "run.yaml", "--svg", "x", code=2, says="--svg belongs to the commands 'check' and 'plan'")
    Path("bare.yaml").write_text("training_config: {seed: 1}\ndevice_config: {enable_ddp: true, mesh_shape: [2]}\n")
    p.run("check", "--config", "bare.yaml", "--svg", "bare", code=2, says="model")
    c.check(not os.path.exists("bare") and not os.path.exists("x"), "a refused command has made its folder")


def main():
    c = Checks()
    p = Pictures(c, Path(sys.argv[1]).resolve())
    os.environ["TESSERA_SHARE"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("run.yaml").write_text(RUN)
        check_mesh_of(c, p, {"pp": 2, "tp": 2}, 4)
        check_mesh_of(c, p, {"dp": 2, "tp": 2}, 1, "--set", "zero.stage=2")
        check_mesh_of(c, p, {"dp": 2, "pp": 2, "cp": 2}, 2)
        check_mesh_of(c, p, {"pp": 2, "tp": 2}, 8)  # whose update is a narrow part
        one, _ = p.draw(command="check")
        c.same(one, p.run("check", "--config", "run.yaml"), "what check prints with pictures")
        check_narrow(c, p)
        check_many(c, p)
        check_largest(c, p)
        check_descriptors(c, p)
        check_hostile(c, p)
        check_refused(c, p)
        os.chdir(ROOT)
    c.end("pictures.files", 250)


main()

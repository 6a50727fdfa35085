# SPDX-License-Identifier: Apache-2.0
"""The command `watch`: the page of runs that train, that are killed, resume, begin later, and whose files are broken meanwhile.
What a page has in the end, of all increments, is what `report` makes of the same files.
usage: test_watch.py PROGRAM"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from follower import WAIT, Watch, last_step

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RUN = """\
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 1000000, num_epochs: 1000000,
  eval_every: 10, model_save_interval: 10, sample_every: 20, sample_tokens: 4, validation_batch_size: 4, optimizer: {type: AdamW, lr: 0.003}}
transformer_config: {model_type: gpt2, vocab_size: 0, embedding_dim: 16, num_blocks: 1, num_heads: 2, max_sequence_length: 16}
numerics: {units: {batch: 4, tp: 2}, threads: 1}
"""
LIVE = ("live",)  # what a run of a report does not have
START = {"event": "start", "config": "x", "module": "gpt2", "mesh": "dp=2", "ranks": 2, "parameters": 10, "seed": 1,
         "policy": "deterministic", "isa": "x86-64", "threads": 1, "recipe": "abc"}


def train(program, out, *words, **how):
    return subprocess.Popen([program, "--config", "run.yaml", "--out", out, "--quiet", *words], **how)


def report(program, *paths):
    subprocess.run([program, "report", *paths, "--html", "final.html", "--quiet"], check=True)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', Path("final.html").read_text(), re.S)
    return json.loads(data)["runs"]


def bare(run):
    return {key: value for key, value in run.items() if key not in LIVE}


def same_as_report(c, program, watch, what):
    names = [run["name"] for run in watch.data["runs"]]
    want = report(program, *names)
    for run, other in zip(watch.data["runs"], want, strict=True):
        for key in sorted(set(other) | set(bare(run))):
            c.check(bare(run).get(key) == other.get(key), f"{what}: {run['name']}: {key} is not the report's: {str(run.get(key))[:300]}, "
                                                          f"not {str(other.get(key))[:300]}")


def check_training(c, program):
    """A sweep's folder that does not exist yet, and a run in it that is killed and resumes; then a second run."""
    watch = Watch(program, "sweep")
    watch.ask()
    c.same((watch.data["runs"], watch.data["waiting"]), ([], ["sweep"]), "before the folder exists")
    os.mkdir("sweep")
    process = train(program, "sweep/a")
    c.check(watch.until(lambda d: d["runs"] and last_step(d["runs"][0]) >= 15 and d["runs"][0]["checkpoints"] and d["runs"][0]["plan"]),
            "steps of a run")
    a = watch.run("sweep/a")
    c.same((watch.data["waiting"], a["live"]["process"], a["live"]["has_metrics"]), ([], "alive", True), "a run that trains")
    c.check(a["live"]["owner"].startswith(f"process {process.pid} on "), a["live"]["owner"])
    c.check(abs(watch.data["now"] - a["live"]["changed"]) < WAIT, "the time of the last line")
    step = last_step(a)
    c.check(watch.until(lambda d: last_step(d["runs"][0]) >= step + 5), "more steps")
    page = watch.request("GET", "/")[2]
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    c.same(json.loads(data)["session"], watch.data["session"], "the page's data")
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT)
    c.check(watch.until(lambda d: d["runs"][0]["live"]["process"] == "gone"), "a process that was killed")
    c.same(watch.run("sweep/a")["end"], None, "the end of a run that was killed")
    # It may have been killed between two looks at its files.
    newest = max(int(name[5:]) for name in os.listdir("sweep/a/checkpoints") if re.fullmatch(r"step-\d+", name))
    c.check(watch.until(lambda d: d["runs"][0]["checkpoints"][-1][0] == newest), "the last checkpoint of a run that was killed")
    killed = last_step(watch.run("sweep/a"))
    same_as_report(c, program, watch, "behind the kill")
    process = train(program, "sweep/a", "--resume", "--set", f"training_config.max_steps={killed + 40}")
    c.check(watch.until(lambda d: d["runs"][0]["end"] and d["runs"][0]["live"]["process"] == "gone"), "the end of a run that resumed")
    c.same(process.wait(WAIT), 0, "the run that resumed")
    a = watch.run("sweep/a")
    c.same((last_step(a), len(a["restarts"]), a["end"]["reason"]), (killed + 40, 1, "max_steps"), "a run that resumed")
    c.check(watch.until(lambda d: len(d["runs"][0]["lock"]["starts"]) == 2 and d["runs"][0]["checkpoints"][-1][0] == killed + 40),
            "starts and checkpoints of a run that resumed")
    c.same(train(program, "sweep/b", "--set", "training_config.max_steps=12").wait(WAIT), 0, "a second run")
    c.check(watch.until(lambda d: len(d["runs"]) == 2 and d["runs"][1]["end"] and d["runs"][1]["checkpoints"] and d["runs"][1]["plan"]
                        and d["runs"][1]["lock"]), "a run that began later")
    c.same([run["name"] for run in watch.data["runs"]], ["sweep/a", "sweep/b"], "the runs of a folder")
    same_as_report(c, program, watch, "in the end")
    code, seconds = watch.stop(signal.SIGINT)
    c.check(code == 128 + signal.SIGINT and seconds < 5, f"Ctrl-C: {code} in {seconds} s")


def line(number, loss):
    return json.dumps({"event": "step", "step": number, "loss": loss, "grad_norm": 0.5, "lr": 0.001, "tokens": 64 * number,
                       "tokens_per_s": 640, "ms": 100}, separators=(",", ":"))


def check_files(c, program):
    """A file that grows beyond what is sent whole, is cut, is replaced by as many bytes, disappears and comes back."""
    path = Path("made.jsonl")
    start = json.dumps(START)
    path.write_text("\n".join([start, *(line(i, 1 / i) for i in range(1, 1501))]) + "\n")
    watch = Watch(program, "made.jsonl")
    watch.ask()
    c.same((last_step(watch.data["runs"][0]), watch.data["runs"][0]["live"]["process"]), (1500, "unknown"), "a file of metrics")

    def add(lines, end="\n"):
        with path.open("a") as file:
            file.write("\n".join(lines) + end)

    def check(what, step):
        c.check(watch.until(lambda d: last_step(d["runs"][0]) == step), what)
        same_as_report(c, program, watch, what)

    add([line(1501, 2)])
    # The curves have no buckets yet, so an increment has the new points alone.
    points, ends = 0, time.monotonic() + WAIT
    while not points and time.monotonic() < ends:
        points = watch.ask()
    c.check(0 < points <= len(watch.data["runs"][0]["series"]), f"points of one more step: {points}")
    check("one line more", 1501)
    add([line(1502, 3)[:40]], end="")  # in the middle of a write
    watch.ask()
    c.same(last_step(watch.data["runs"][0]), 1501, "a part of a line")
    add([line(1502, 3)[40:]], end="")
    check("the rest of the line, without its newline", 1502)
    add([""])
    check("its newline", 1502)
    with path.open("a") as file:  # a line that no run writes
        file.write('{"event":"sample","step":1502,"text":"' + "x" * (17 << 20))
    watch.ask()
    add(['"}', line(1503, 4)])
    check("a line behind one that is too long", 1503)
    c.same(watch.data["runs"][0]["broken"], 1, "a line that is too long")
    lines = path.read_text().split("\n")[:-1]
    path.write_text("\n".join([*lines[:-2], lines[-1]]) + "\n")
    c.check(watch.until(lambda d: not d["runs"][0]["broken"]), "the file without it")
    same_as_report(c, program, watch, "the file without it")
    add([line(i, 1 / i) for i in range(1504, 2600)] + [json.dumps({"event": "eval", "step": 2599, "loss": 1})])
    check("steps in buckets", 2599)
    add([line(2600, None)])
    check("more of them", 2600)
    add([line(2000, 7), line(2001, 8)])
    check("a run that went back, in a pipe's file", 2001)
    lines = path.read_text().split("\n")[:-1]
    path.write_text("\n".join(lines[:1000]) + "\n")
    check("a file that was cut", 999)
    text = path.read_text()
    with path.open("r+") as file:  # the same inode, the same length
        file.write(text.replace('"loss":0.', '"loss":9.'))
    c.check(watch.until(lambda d: d["runs"][0]["series"][0]["last"][1] > 9), "a file of as many other bytes")
    same_as_report(c, program, watch, "a file of as many other bytes")
    path.unlink()
    c.check(watch.until(lambda d: not d["runs"][0]["live"]["has_metrics"] and not d["runs"][0]["series"]), "a file that was removed")
    path.write_text("\n".join([start, line(1, 5), "{broken", line(2, 4)]) + "\n")
    check("a new file", 2)
    c.same(watch.data["runs"][0]["broken"], 1, "broken lines")
    watch.stop(signal.SIGTERM)


def check_many(c, program):
    """Of more runs than are followed those that were written to last, which stderr and the page's data say."""
    for i in range(230):
        os.makedirs(f"many/r{i:03}")
        path = Path(f"many/r{i:03}/metrics.jsonl")
        path.write_text(json.dumps(START) + "\n" + line(1, 1) + "\n")
        os.utime(path, (1e9 + (i * 7) % 230, 1e9 + (i * 7) % 230))
    watch = Watch(program, "many")
    watch.ask()
    names = [run["name"] for run in watch.data["runs"]]
    c.same(names, [f"many/r{i:03}" for i in range(230) if (i * 7) % 230 >= 30], "the newest of many runs")
    c.same(watch.data["left_out"], 30, "how many are left out")
    said = os.pread(watch.errors.fileno(), 4000, 0).decode()
    c.check("warning: 30 runs are left out: at most 200 are followed" in said, said)
    watch.stop(signal.SIGTERM)
    shutil.rmtree("many")


def check_notes(c, program):
    """A configuration that was edited behind the run, and a long sample; in the report, too."""
    c.same(train(program, "edited", "--set", "training_config.max_steps=4").wait(WAIT), 0, "a run")
    c.same(train(program, "edited", "--resume", "--set", "training_config.max_steps=8").wait(WAIT), 0, "a run that resumes")
    c.same(report(program, "edited")[0]["warnings"], [], "notes of a run whose configuration is its own")
    watch = Watch(program, "edited")
    watch.ask()
    c.same(watch.run("edited")["warnings"], [], "the same, when it is watched")
    path = Path("edited/config.yaml")
    path.write_text("# a comment\n" + path.read_text().replace("use_clip_grad_norm: true", "use_clip_grad_norm:    yes"))
    c.same(report(program, "edited")[0]["warnings"], [], "a comment and another way to write a value change no configuration")
    path.write_text(path.read_text().replace("  batch_size: 4 ", "  batch_size: 8 "))
    note = ("edited/config.yaml was edited after the run's last start, by run.lock: the configuration and the plan on this page are not those "
            "that the run had")
    c.same(report(program, "edited")[0]["warnings"], [note], "a report's note of an edited configuration")
    c.check(watch.until(lambda d: d["runs"][0]["warnings"] == [note]), "the note of watch")
    path.write_text("a: [")
    c.check(note in report(program, "edited")[0]["warnings"], "a configuration that cannot be read")
    with Path("edited/metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "sample", "step": 8, "text": "é" * 4000}) + "\n")
        file.write(json.dumps({"event": "sample", "step": 8, "text": "é" * 123456}) + "\n")
    c.check(watch.until(lambda d: d["runs"][0]["samples"][-2:] == [[8, "é" * 4000], [8, "é" * 4000, 123456]]), "long samples")
    shutil.rmtree("edited")
    c.check(watch.until(lambda d: d["runs"][0]["config"] is None and not d["runs"][0]["series"]), "a folder that was removed")
    watch.stop(signal.SIGTERM)


def check_reading(c, program):
    """The page and the curves are there before the plans of the runs are made, which takes a while at this size."""
    config = subprocess.run([program, "--config", ROOT / "configs/runs/llama3_405b_16384.yaml", "--print-config"], capture_output=True,
                            text=True, check=True, timeout=WAIT).stdout
    for name in ("a", "b"):
        os.makedirs(f"large/{name}")
        Path(f"large/{name}/config.yaml").write_text(config)
        Path(f"large/{name}/metrics.jsonl").write_text(json.dumps(START) + "\n" + line(1, 1) + "\n")
    watch = Watch(program, "large")
    seen, ends = [], time.monotonic() + WAIT
    while not (seen and len(seen[-1]["runs"]) == 2) and time.monotonic() < ends:
        seen.append(json.loads(watch.request("GET", "/data")[2]))
    c.check(all(data["reading"] and data["reading"][0] == 0 for data in seen), f"what is said while plans are made: {seen[-1]['reading']}")
    c.same([(run["name"], last_step(run), run["plan"]) for run in seen[-1]["runs"]], [("large/a", 1, None), ("large/b", 1, None)], "runs without plans")
    c.same(watch.request("GET", "/")[0], 200, "the page while plans are made")
    code, seconds = watch.stop(signal.SIGINT)
    c.check(code == 130 and seconds < 5, f"Ctrl-C while plans are made: {code} in {seconds} s")
    shutil.rmtree("large")


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as s:
        s.sendall(text)
        answer = b""
        while block := s.recv(1 << 16):
            answer += block
    return answer.split(b"\r\n", 1)[0].decode(), answer


def check_requests(c, program):
    name = "</script><img src=x>"
    os.mkdir(name.replace("/", "_"))
    Path("hostile.jsonl").write_text(json.dumps({**START, "mesh": name}) + "\n" + line(1, 1) + "\n")
    watch = Watch(program, "hostile.jsonl", name.replace("/", "_"))
    watch.ask()
    status, headers, body = watch.request("GET", "/")
    c.same((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"), "the page")
    c.check("default-src 'none'" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff", headers)
    c.same(body.count("</script"), 2, "ends of scripts")
    status, more, body = watch.request("HEAD", "/")
    c.same((status, body, more["Content-Length"]), (200, "", headers["Content-Length"]), "HEAD")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        status, headers, _ = watch.request(method, "/data")
        c.same((status, headers.get("Allow")), (405, "GET, HEAD"), method)
    for path in ("/x", "//", "/data/", "/../etc/passwd", "/%64ata", "/data%00", "/.", "/hostile.jsonl", "/index.html"):
        c.same(watch.request("GET", path)[0], 404, path)
    for since in ("x", "-1", "1-", "1-x", "1--1", "1-1-1", "", "%00", "a" * 3000, "1-9999999999999999999999"):
        c.same(watch.request("GET", "/data?since=" + since)[0], 400, since[:30])
    for since in (f"{watch.data['session']}-99999", "0-0", "abc-1"):  # of another server, or of a later time
        c.check("runs" in json.loads(watch.request("GET", "/data?since=" + since)[2]), since)
    c.same(json.loads(watch.request("GET", f"/data?since={watch.data['session']}-{watch.data['revision']}")[2])["changed"], [], "nothing new")
    for host in ("example.com", "127.0.0.1.example.com", "localhost.example.com:80", "[::1].x", "localhost:x", ""):
        c.same(watch.request("GET", "/data", Host=host)[0], 403, f"a request to {host}")
    for host in ("localhost", f"LOCALHOST:{watch.port}", "127.0.0.1", "[::1]:80"):
        c.same(watch.request("GET", "/data", Host=host)[0], 200, f"a request to {host}")
    c.check("403" in raw(watch.port, b"GET / HTTP/1.0\r\n\r\n")[0], "a request without a host")
    both = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    c.check(" 400 " in raw(watch.port, both)[0], "two ends of a body")
    for path in (b"/\0", b"/\0x", b"/data\0", b"/\0HTTP/1.1", b"/data?since=1-1\0", b"\0"):
        request = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        c.check(" 400 " in raw(watch.port, request)[0], f"{path}")
    for hosts in (("localhost", "example.com"), ("localhost", "localhost"), ("127.0.0.1", "")):
        headers = "".join(f"Host: {host}\r\n" for host in hosts)
        c.check(" 400 " in raw(watch.port, f"GET /data HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode())[0], f"hosts {hosts}")
    with socket.create_connection(("127.0.0.1", watch.port)) as s:
        s.sendall(b"\x00\xff\r\n\r\n")
    connections = [socket.create_connection(("127.0.0.1", watch.port)) for _ in range(100)]  # which send nothing
    c.same(watch.request("GET", "/data")[0], 200, "beside idle connections")
    code, seconds = watch.stop(signal.SIGINT)
    c.check(code == 130 and seconds < 5, f"Ctrl-C with connections: {code} in {seconds} s")
    for s in connections:
        s.close()


def check_refused(c, program):
    def refused(*words, says):
        done = subprocess.run([program, "watch", *words], capture_output=True, text=True, timeout=WAIT)
        c.check(done.returncode in (1, 2) and says in done.stderr, f"{words}: {done.returncode} {done.stderr}")

    refused(says="watch needs a folder of --out, a folder of such folders, or a file of --metrics")
    refused("x", "--port", "70000", says="--port: 70000 is above 65535")
    refused("x", "--port", "x", says="--port")
    refused("x", "--machine", "nope", says="there is no machine 'nope'")
    refused("x", "--html", "y", says="--html belongs to the command 'report'")
    refused("x", "--host", "no.such.host.invalid", says="no.such.host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("x", "--port", str(taken.getsockname()[1]), says="cannot be taken")


def main():
    c, program = Checks(), Path(sys.argv[1]).resolve()
    os.environ["TESSERA_SHARE"] = str(ROOT)
    here, folder = os.getcwd(), tempfile.mkdtemp()
    try:
        os.chdir(folder)
        Path("text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 100)
        Path("run.yaml").write_text(RUN)
        for part in (check_training, check_files, check_many, check_notes, check_reading, check_requests, check_refused):
            part(c, program)
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    c.end("watch.page", 150)


main()

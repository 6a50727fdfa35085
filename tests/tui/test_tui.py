# SPDX-License-Identifier: Apache-2.0
"""--tui of train and watch on a terminal (terminal.py): pictures at several sizes, with and without colours and UTF-8, resizing, and
that the terminal is given back by every end.
usage: test_tui.py PROGRAM
ACCEPT=1 in the environment writes the pictures that are compared."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from terminal import WAIT, Terminal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "serve"))
from server import Checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RUN = """\
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 1000000, num_epochs: 1000000,
  eval_every: 10, model_save_interval: 20, sample_every: 20, sample_tokens: 4, validation_batch_size: 4, use_clip_grad_norm: true,
  optimizer: {type: AdamW, lr: 0.003}}
transformer_config: {model_type: gpt2, vocab_size: 0, embedding_dim: 16, num_blocks: 1, num_heads: 2, max_sequence_length: 16}
numerics: {units: {batch: 4, tp: 2}, threads: 1, isa: x86-64}
"""


def step_of(terminal):
    found = re.search(r"step (\d+)", terminal.picture()[0])
    return int(found[1]) if found else 0


def masked(rows):
    """Numbers that depend on the machine's speed and memory, with the blanks behind them."""
    text = "\n".join(rows)
    text = re.sub(r"(tokens/s|step time|MFU|memory|peak) [\d.,e+-]+( ms| %| [KMG]iB)?( *)", r"\1 #\3", text)
    text = re.sub(r"#( +)(?=\S)", "# ", text)
    return re.sub(r"\d+(:\d\d)+", "#:##", text)


def given_back(c, t, what):
    c.check((t.now, t.cursor, t.wraps) == (0, True, True), f"{what}: the terminal is not given back: screen {t.now}, {t.cursor}, {t.wraps}")
    c.check(not hasattr(t, "outside"), f"{what}: drawn outside of the terminal: {getattr(t, 'outside', '')}")


def check_train(c, program):
    t = Terminal([program, "--config", "run.yaml", "--out", "out", "--tui"])
    before = t.modes()
    c.check(t.until(lambda t: step_of(t) >= 45 and "val " in "".join(t.picture()) and "sample @" in "".join(t.picture())), "a run's picture")
    rows = t.picture()
    c.same((t.now, t.cursor, t.modes(), before), (1, False, (False, False), (True, True)), "the terminal while it is drawn on")
    c.check(re.fullmatch(r"out, gpt2, 1 rank +step \d+/1000000", rows[0]) and len(rows[0]) == 80, rows[0])
    c.check(re.fullmatch(r"\[-+\] +0 %  0:\d\d, ETA [\d:d ]+", rows[1]), rows[1])
    c.check(re.search("[\u2801-\u28ff]{3}", "".join(rows[2:-6])), f"a curve: {rows}")
    for name in ("loss", "tokens/s", "val", "grad norm", "lr 3.000e-03", "step time", "checkpoint @", "memory", "peak", "tokens"):
        c.check(any(name + " " in row + " " for row in rows[10:]), f"{name} is missing: {rows}")
    c.check("36" in "".join(t.styles) and "0;33" in t.styles, f"colours: {set(t.styles)}")
    t.resize(12, 40)
    step = step_of(t)
    c.check(t.until(lambda t: step_of(t) > step and any(t.picture())), "the picture of a terminal that was resized")
    rows = t.picture()
    c.check(len(rows[0]) == 40 and max(map(len, rows)) == 40 and re.search(r"^val ", "\n".join(rows), re.M), rows)
    for size in ((5, 20), (2, 9), (1, 1), (24, 80)):
        t.resize(*size)
        step = step_of(t) if size[1] == 80 else 0
        c.check(t.until(lambda t: len(t.raw) and any(t.picture())), f"a terminal of {size}")
    count = t.raw.count(b"\x1b[?1049h")
    t.send(signal.SIGTSTP)  # of a group that nobody can continue: the kernel does not stop it
    c.check(t.until(lambda t: t.raw.count(b"\x1b[?1049h") > count and step_of(t)), "the picture behind SIGTSTP")
    t.send(signal.SIGTERM)
    c.same(t.end(), 128 + signal.SIGTERM, "a run that was stopped")
    given_back(c, t, "a run that was stopped")
    text = "\n".join(t.screens[0].text(4000))
    c.check("--- sample after step 20" in text and re.search(r"^stopped: step \d+, loss", text, re.M), f"what was printed meanwhile: {text[-600:]}")
    lines = [json.loads(x) for x in Path("out/metrics.jsonl").open()]
    c.same(lines[-1]["reason"], "signal", "the metrics' end")


def check_plain(c, program):
    """Other outputs are what they are without --tui, and the bits of the run, too."""
    words = [program, "--config", "run.yaml", "--overwrite", "--set", "training_config.max_steps=12"]
    done = [subprocess.run([*words, *more], capture_output=True, text=True, errors="replace", timeout=WAIT) for more in ([], ["--tui"])]
    plain = [re.sub(r"[\d,]+ tokens/s", "# tokens/s", d.stdout) for d in done]
    c.check(plain[0] == plain[1] and done[0].stderr == done[1].stderr and "done: step 12" in plain[0], f"without a terminal: {plain}")
    for to in (">file", "| cat >file"):  # standard error is the terminal
        drawn = []
        for more in ("", " --tui"):
            t = Terminal(["/bin/sh", "-c", f"{shlex.join(map(str, words))}{more} {to}"], env={"NO_COLOR": "1"})
            code, text = t.end(), re.sub(r"[\d,]+ tokens/s", "# tokens/s", Path("file").read_text(errors="replace"))
            drawn.append((code, t.raw, text))
        c.same(drawn[1], drawn[0], f"--tui {to}")
        c.check(drawn[1][0] == 0 and drawn[1][2] == plain[0], f"--tui {to}: {drawn[1]}")
    for env in ({"TERM": "dumb"}, {"TERM": ""}):
        t = Terminal([*map(str, words), "--tui"], env=env)
        code = t.end()
        text = re.sub(r"[\d,]+ tokens/s", "# tokens/s", t.raw.decode(errors="replace").replace("\r\n", "\n"))
        c.check(code == 0 and b"\x1b" not in t.raw and text == done[0].stderr + plain[0] or text == plain[0] + done[0].stderr, f"{env}: {text}")
    t = Terminal([*map(str, words), "--tui"], env={"NO_COLOR": "1", "LC_ALL": "C"})
    c.same(t.end(), 0, "a run without colours")
    given_back(c, t, "a run without colours")
    drawn = t.raw.split(b"\x1b[?1049l")[0].split(b"\x1b[?1049h")[1]
    c.check(set(t.styles) <= {"0"} and drawn.isascii(), f"styles {set(t.styles)} without colours, {drawn}")
    text = "\n".join(t.screens[0].text(100))
    c.check(re.search("weights sha256 ([0-9a-f]+)", plain[0])[1][:60] in text.replace("\n", ""), f"other bits: {text}")


def check_controls(c, program):
    """What a model writes is no command of the terminal, with and without the picture; the metrics have it as it is."""
    Path("escapes.txt").write_text("\x1b" * 5000)
    words = [program, "--config", "run.yaml", "--overwrite", "--set", "training_config.max_steps=60", "--set",
             "training_config.data_path=escapes.txt", "--metrics", "escapes.jsonl"]
    out = subprocess.run(words, capture_output=True, check=True, timeout=WAIT).stdout
    c.check(b"\x1b" not in out and b"\\x1b" in out, f"a sample: {out[-500:]}")
    texts = [line["text"] for line in map(json.loads, Path("escapes.jsonl").open()) if line["event"] == "sample"]
    c.check(texts and "\x1b" in texts[-1], f"the metrics' sample: {texts}")
    t = Terminal([*words, "--tui"])
    c.same(t.end(), 0, "a picture of such samples")
    given_back(c, t, "a picture of such samples")
    c.check("\\x1b" in "\n".join(t.screens[0].text(4000)), "the sample behind the picture")


def check_launcher(c, program):
    """What a launcher ends, or gives one stream that is a terminal, prints plain lines and says which command draws."""
    words = f"exec '{program}' --config run.yaml --out launched --overwrite --tui --set training_config.max_steps=4"
    says = ("note: --tui draws nothing in a run whose output a launcher of processes passes on",
            "= 'tessera-train watch launched --tui' in another terminal shows the run")
    for env in ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0", "PMI_SIZE": "1"}):
        t = Terminal(["/bin/sh", "-c", words + " 2>err"], env=env)
        code, errors = t.end(), Path("err").read_text(errors="replace")
        c.check(code == 0 and b"\x1b" not in t.raw and b"done: step 4" in t.raw, f"{env}: {code} {t.raw} {errors}")
        c.check(all(text in errors for text in says), f"{env}: {errors}")
        t = Terminal(["/bin/sh", "-c", words], env=env)  # both are the terminal, as xterm has them
        c.same((t.end(), t.raw.count(b"\x1b[?1049h")), (0, 1), f"a terminal of its own: {env}")
        given_back(c, t, f"a terminal of its own: {env}")


def check_messages(c, program):
    """A warning during the run, and an error that ends it."""
    t = Terminal([program, "--config", "run.yaml", "--out", "short", "--tui", "--set", "training_config.max_steps=2000000",
                  "--set", "training_config.num_epochs=1", "--set", "transformer_config.embedding_dim=128"], columns=120)
    c.check(t.until(lambda t: any("warning: training ends after step" in row for row in t.picture())), "a warning on the picture")
    t.send(signal.SIGINT)
    c.same(t.end(), 130, "Ctrl-C")
    given_back(c, t, "Ctrl-C")
    c.check("warning: training ends after step" in "\n".join(t.screens[0].text(4000)), "the warning behind the end")
    t = Terminal([program, "--config", "run.yaml", "--overwrite", "--tui", "--set", "training_config.optimizer.lr=1e30"])
    c.same(t.end(), 1, "a run without a finite loss")
    given_back(c, t, "a failure")
    c.check(re.search(r"error: step \d+: the loss is", "\n".join(t.screens[0].text(200))), f"the error: {t.screens[0].text(30)}")


def check_crash(c, program):
    """Signals of crashes, and others that end a process."""
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN):
        t = Terminal([program, "--config", "run.yaml", "--overwrite", "--tui"], env={"ASAN_OPTIONS": "handle_segv=0:handle_abort=0"})
        c.check(t.until(lambda t: step_of(t) >= 3), "a run")
        modes = t.modes()
        t.send(number)
        while t.now and t.read(1):
            pass
        after = t.modes()
        c.same((t.end(), modes, after), (-number, (False, False), (True, True)), f"modes behind signal {number}")
        given_back(c, t, f"signal {number}")


def check_watch(c, program):
    t = Terminal([program, "watch", "later", "--tui"])
    c.check(t.until(lambda t: "later  no run yet" in t.picture()[0]), "a run that does not exist")
    process = subprocess.Popen([program, "--config", "run.yaml", "--out", "later", "--quiet"])
    c.check(t.until(lambda t: step_of(t) >= 25 and "trains, last line" in t.picture()[0] and "checkpoint @" in "".join(t.picture())), "a run that begins")
    process.kill()
    process.wait(WAIT)
    c.check(t.until(lambda t: "its process is gone" in t.picture()[0]), "a process that is gone")
    t.send(signal.SIGINT)
    c.same(t.end(), 130, "Ctrl-C of watch")
    given_back(c, t, "watch")
    subprocess.run([program, "--config", "run.yaml", "--out", "done", "--quiet", "--set", "training_config.max_steps=40"], check=True)
    for rows, columns, env, want in ((24, 80, {}, "large"), (12, 40, {"NO_COLOR": "1", "LC_ALL": "C"}, "small")):
        t = Terminal([program, "watch", "done", "--tui"], rows, columns, env=env)
        c.check(t.until(lambda t: step_of(t) == 40 and "has ended" in t.picture()[0]), "the picture of a run that has ended")
        t.send(signal.SIGTERM)
        t.read(1)
        picture = masked(t.picture()) + "\n"
        c.same(t.end(), 128 + signal.SIGTERM, "watch")
        if os.environ.get("ACCEPT"):
            (ROOT / f"tests/tui/{want}.txt").write_text(picture)
        c.same(picture, (ROOT / f"tests/tui/{want}.txt").read_text(), f"the picture of {rows} x {columns}")
        c.check(env or "0;36" in t.styles, "colours")
        c.check(not env or set(t.styles) <= {"0"}, f"no colours: {set(t.styles)}")


def check_newest(c, program):
    """Of any number of runs the one that was written to last."""
    text = Path("done/metrics.jsonl").read_text()
    for i in range(230):
        os.makedirs(f"many/r{i:03}")
        path = Path(f"many/r{i:03}/metrics.jsonl")
        path.write_text(text)
        os.utime(path, (1e9 + (i == 225), 1e9 + (i == 225)))
    t = Terminal([program, "watch", "many", "--tui"])
    c.check(t.until(lambda t: t.picture()[0].startswith("many/r225")), f"the newest run: {t.picture()[0]}")
    t.send(signal.SIGTERM)
    t.end()


def check_refused(c, program):
    for words, says in ((["done"], "--tui: the output is no terminal"), (["done", "--port", "1"], "--port goes with the page, not with --tui"),
                        (["done", "out"], "watch --tui shows one run")):
        done = subprocess.run([program, "watch", *words, "--tui"], capture_output=True, text=True, errors="replace", timeout=WAIT)
        c.check(done.returncode == 2 and says in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    done = subprocess.run([program, "check", "--config", "run.yaml", "--tui"], capture_output=True, text=True, errors="replace", timeout=WAIT)
    c.check(done.returncode == 2 and "--tui belongs to the commands 'train' and 'watch'" in done.stderr, done.stderr)


def main():
    c, program = Checks(), str(Path(sys.argv[1]).resolve())
    os.environ["TESSERA_SHARE"] = str(ROOT)
    for name in ("NO_COLOR", "LC_CTYPE", "LANG", "LC_ALL"):
        os.environ.pop(name, None)
    here, folder = os.getcwd(), tempfile.mkdtemp()
    try:
        os.chdir(folder)
        Path("text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 100)
        Path("run.yaml").write_text(RUN)
        for part in (check_train, check_plain, check_controls, check_launcher, check_messages, check_crash, check_watch, check_newest, check_refused):
            part(c, program)
    finally:
        os.chdir(here)
        shutil.rmtree(folder)
    c.end("tui.terminal", 50)


main()

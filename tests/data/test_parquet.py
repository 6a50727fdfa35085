# SPDX-License-Identifier: Apache-2.0
"""scripts/parquet_to_jsonl: rows of several files as lines, which a run trains on; what it refuses.
usage: test_parquet.py PROGRAM; skipped without pyarrow"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    print("skipped: pyarrow is not installed")
    sys.exit(77)

SCRIPT = Path("scripts/parquet_to_jsonl").resolve()
PROGRAM = Path(sys.argv[1]).resolve()
RUN = """training_config: {seed: 1, data_path: all.jsonl, tokenizer_type: byte, batch_size: 2, sequence_length: 64,
  max_steps: 2, num_epochs: 9, eval_every: 0, sample_tokens: 0}
data: {format: chat, template: t.jinja}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_groups: 2, num_blocks: 1,
  max_sequence_length: 64}
numerics: {threads: 1}
"""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}"
checks = failed = 0


def check(what, got, want):
    global checks, failed
    checks += 1
    if got != want:
        failed += 1
        print(f"{what}:\n{got!r}\nnot\n{want!r}")


def convert(folder, *words):
    return subprocess.run([sys.executable, SCRIPT, *words], cwd=folder, capture_output=True, text=True, timeout=60)


def rows(folder, name, values):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values), folder / name, row_group_size=2)


def table(folder, name, /, **columns):
    pyarrow.parquet.write_table(pyarrow.table({key: pyarrow.array([v], t) for key, (v, t) in columns.items()}), folder / name)


def check_types(folder):
    """Values of all types, whose JSON is written out here."""
    texts = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    inner = pyarrow.list_(pyarrow.struct([("k", texts), ("at", pyarrow.timestamp("ns"))]))
    table(
        folder, "types.parquet",
        full=([("a", 1), ("b", None)], texts), empty=([], texts), numbers=([(7, "x")], pyarrow.map_(pyarrow.int64(), pyarrow.string())),
        nested=([{"k": [], "at": 1}], inner), none=(None, texts), list=(["a", None], pyarrow.list_(pyarrow.string())),
        ns=(1577934245123456789, pyarrow.timestamp("ns")), utc=(1577934245000000001, pyarrow.timestamp("ns", "UTC")),
        whole=(1577934245000000000, pyarrow.timestamp("ns")), ms=(-1, pyarrow.timestamp("ms")),
        time=(3723000000004, pyarrow.time64("ns")), us=(3723000004, pyarrow.time64("us")),
        span=(-1500000000, pyarrow.duration("ns")), tick=(3, pyarrow.duration("ns")), long=(90061, pyarrow.duration("s")),
        name=("n", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())), yes=(True, pyarrow.bool_()))
    done = convert(folder, "types.parquet", "--out", "-")
    check("types", (done.stderr, done.stdout and json.loads(done.stdout)), ("", {
        "full": {"a": 1}, "empty": {}, "numbers": {"7": "x"},
        "nested": [{"k": {}, "at": "1970-01-01T00:00:00.000000001"}], "list": ["a", None],
        "ns": "2020-01-02T03:04:05.123456789", "utc": "2020-01-02T03:04:05.000000001+00:00",
        "whole": "2020-01-02T03:04:05", "ms": "1969-12-31T23:59:59.999000",
        "time": "01:02:03.000000004", "us": "01:02:03.000004",
        "span": "-PT1.500000S", "tick": "PT0.000000003S", "long": "PT90061S", "name": "n", "yes": True}))


def refused(folder, words, said):
    done = convert(folder, *words)
    got = (done.returncode, said in done.stderr, len(done.stderr.splitlines()))
    check(f"{words}: {done.stderr}", got, (1, True, 1))


def check_twice(folder):
    both = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2]), pyarrow.array([3])], names=["a", "a", "b"])
    pyarrow.parquet.write_table(both, folder / "twice.parquet")
    table(folder, "keys.parquet", m=([("k", 1), ("k", 2)], pyarrow.map_(pyarrow.string(), pyarrow.int64())))
    table(folder, "late.parquet", at=(10**15, pyarrow.timestamp("s")))
    refused(folder, ["twice.parquet", "--out", "-"], "'twice.parquet': the column 'a' is there twice")
    refused(folder, ["keys.parquet", "--out", "-"], "'keys.parquet': row 0, column 'm': the key 'k' is there twice")
    refused(folder, ["late.parquet", "--out", "-"], "'late.parquet': row 0, column 'at': ")
    check("another column", convert(folder, "twice.parquet", "--out", "-", "--columns", "b").stdout, '{"b": 3}\n')


def check_outputs(folder):
    """What --overwrite does not replace, and where nothing can be written."""
    (folder / "target").write_text("kept")
    (folder / "link").symlink_to("target")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "fifo")
    for name in ("link", "dangling", "fifo", "sub"):
        before = os.lstat(folder / name)
        refused(folder, ["a.parquet", "--out", name, "--overwrite"], f"'{name}' is no regular file, and not replaced")
        check(name, os.lstat(folder / name).st_ino, before.st_ino)
    check("the link's file", (folder / "target").read_text(), "kept")
    refused(folder, ["a.parquet", "--out", "a.parquet", "--overwrite"], "'a.parquet' is an input, and not replaced")
    refused(folder, ["a.parquet", "--out", "nodir/x"], "cannot write 'nodir/x': No such file or directory")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        conversation = [{"role": "user", "content": "Grüße?\n"}, {"role": "assistant", "content": "Ja.", "name": None}]
        first = [{"id": i, "messages": conversation, "score": i / 2} for i in range(5)]
        rows(folder, "a.parquet", first)
        rows(folder, "b.parquet", [{"messages": conversation[::-1], "when": datetime.date(2026, 1, 2)}])
        done = convert(folder, "a.parquet", "b.parquet", "--out", "all.jsonl")
        check("exit code", (done.returncode, done.stderr), (0, ""))
        clean = [{key: m[key] for key in ("role", "content")} for m in conversation]
        want = [{"id": i, "messages": clean, "score": i / 2} for i in range(5)]
        want.append({"messages": clean[::-1], "when": "2026-01-02"})
        check("lines", [json.loads(line) for line in (folder / "all.jsonl").open(encoding="utf-8")], want)

        (folder / "run.yaml").write_text(RUN)
        (folder / "t.jinja").write_text(TEMPLATE)
        done = subprocess.run([PROGRAM, "--config", "run.yaml"], cwd=folder, capture_output=True, text=True, timeout=60)
        check("a run on the lines", (done.returncode, "done: step 2" in done.stdout), (0, True))

        done = convert(folder, "a.parquet", "--out", "-", "--columns", "score,id")
        check("columns", done.stdout, "".join(f'{{"score": {i / 2}, "id": {i}}}\n' for i in range(5)))
        rows(folder, "odd.parquet", [{"raw": b"ok"}, {"raw": b"\xff"}])
        rows(folder, "nan.parquet", [{"x": float("nan")}])
        (folder / "text.parquet").write_text("no table")
        before = (folder / "all.jsonl").read_bytes()
        for words, said in [
            (["a.parquet", "--out", "all.jsonl"], "'all.jsonl' exists; --overwrite replaces it"),
            (["odd.parquet", "--out", "new.jsonl"], "'odd.parquet': row 1, column 'raw': bytes that are no UTF-8"),
            (["nan.parquet", "--out", "all.jsonl", "--overwrite"], "'nan.parquet': row 0, column 'x': the number nan"),
            (["a.parquet", "--out", "new.jsonl", "--columns", "text"], "no column 'text'; there are id, messages, score"),
            (["text.parquet", "--out", "new.jsonl"], "'text.parquet': "),
            (["gone.parquet", "--out", "new.jsonl"], "'gone.parquet': "),
        ]:
            refused(folder, words, said)
        check("files", sorted(p.name for p in folder.iterdir() if "jsonl" in p.name), ["all.jsonl"])
        check("an error leaves the file", (folder / "all.jsonl").read_bytes(), before)
        check_types(folder)
        check_twice(folder)
        check_outputs(folder)
    print(f"data.parquet: {checks} checks, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))

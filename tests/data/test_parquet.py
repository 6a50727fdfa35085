# SPDX-License-Identifier: Apache-2.0
"""scripts/parquet_to_jsonl: rows of several files as lines, which a run trains on; what it refuses.
usage: test_parquet.py PROGRAM; skipped without pyarrow"""

import datetime
import json
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
        check("lines", [json.loads(line) for line in (folder / "all.jsonl").read_text("utf-8").splitlines()], want)

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
            (["odd.parquet", "--out", "new.jsonl"], "'odd.parquet': row 1: bytes that are no UTF-8"),
            (["nan.parquet", "--out", "all.jsonl", "--overwrite"], "'nan.parquet': row 0: the number nan"),
            (["a.parquet", "--out", "new.jsonl", "--columns", "text"], "no column 'text'; there are id, messages, score"),
            (["text.parquet", "--out", "new.jsonl"], "'text.parquet': "),
            (["gone.parquet", "--out", "new.jsonl"], "'gone.parquet': "),
        ]:
            done = convert(folder, *words)
            check(f"{words}: {done.stderr}", (done.returncode, said in done.stderr), (1, True))
        check("files", sorted(p.name for p in folder.iterdir() if "jsonl" in p.name), ["all.jsonl"])
        check("an error leaves the file", (folder / "all.jsonl").read_bytes(), before)
    print(f"data.parquet: {checks} checks, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))

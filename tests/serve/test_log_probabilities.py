#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of a model with more rows than its tokenizer has tokens, and of one that gives no numbers. The oracle of
the first is the same model with a tokenizer of all rows.
usage: test_log_probabilities.py PROGRAM"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Checks, make_model, serving

FEW = 128  # tokens of the smaller tokenizer, each a byte


def make_few(program, folder):
    """The model with a tokenizer of its first tokens."""
    path = folder / "chat/tokenizer.json"
    whole = path.read_text("utf-8")
    tokenizer = json.loads(whole)
    tokenizer["added_tokens"] = []
    tokenizer["model"]["vocab"] = {text: i for text, i in tokenizer["model"]["vocab"].items() if i < FEW}
    path.write_text(json.dumps(tokenizer), "utf-8")
    config = folder / "chat/tokenizer_config.json"
    kept = config.read_text("utf-8")
    config.write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8")
    subprocess.run([program, "import", "chat", "--out", "few"], cwd=folder, check=True, capture_output=True)
    path.write_text(whole, "utf-8")
    config.write_text(kept, "utf-8")
    return folder / "few"


def make_nan(program, folder):
    """The model with NaN as its last norm."""
    path = folder / "chat/model.safetensors"
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + length])["model.norm.weight"]
    begin, end = (8 + length + at for at in entry["data_offsets"])
    data[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(data)
    subprocess.run([program, "import", "chat", "--out", "nan"], cwd=folder, check=True, capture_output=True)
    return folder / "nan"


def check_rows(c, all_rows, few):
    """Rows without a token are a part of the sum, and neither drawn nor listed."""
    prompt, is_tail_likely = list(b"Hello, world 42"), False
    ask = {"prompt": prompt, "echo": True, "logprobs": 20, "max_tokens": 0}
    want = all_rows.complete(**ask)["choices"][0]["logprobs"]
    got = few.complete(**ask)["choices"][0]["logprobs"]
    c.same(got["token_logprobs"], want["token_logprobs"], "log-probabilities of a prompt")
    for mine, whole in zip(got["top_logprobs"][1:], want["top_logprobs"][1:]):
        listed = {key: value for key, value in whole.items() if len(key) == 1 and ord(key) < FEW}
        c.same({key: mine.get(key) for key in listed}, listed, "the likeliest tokens")
        c.check(all(len(key) == 1 and ord(key) < FEW for key in mine) and len(mine) >= 20, mine)
        is_tail_likely |= max(whole, key=whole.get) not in mine
    c.check(is_tail_likely, "no row without a token was the likeliest: nothing was checked")
    for body in ({"temperature": 0}, {"seed": 1, "temperature": 5}, {"seed": 2, "top_p": 0.5}):
        made = few.complete(prompt=prompt, max_tokens=20, logprobs=0, return_token_ids=True, ignore_eos=True, **body)["choices"][0]
        c.check(len(made["token_ids"]) == 20 and max(made["token_ids"]) < FEW, f"tokens that were drawn, {body}: {made}")
        scored = all_rows.complete(prompt=prompt + made["token_ids"], echo=True, logprobs=0, max_tokens=0)["choices"][0]
        c.same(made["logprobs"]["token_logprobs"], scored["logprobs"]["token_logprobs"][len(prompt):], f"of drawn tokens, {body}")


def check_nan(c, s):
    for body in ({"echo": True, "max_tokens": 0}, {"echo": True, "max_tokens": 2}, {"max_tokens": 2}):
        status, answer = s.post("/v1/completions", prompt="Hello", logprobs=2, **body)
        c.same((status, answer.get("error", {}).get("code")), (500, "no_numbers"), f"a model without numbers, {body}")
        last = s.ask("POST", "/v1/completions", {"prompt": "Hello", "logprobs": 2, "stream": True, **body})[2]
        c.check(b'"no_numbers"' in last and b"[DONE]" not in last, f"{body} in a stream: {last}")


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(program, folder)
        with serving(c, program, model) as all_rows, serving(c, program, make_few(program, folder)) as few:
            check_rows(c, all_rows, few)
        with serving(c, program, make_nan(program, folder)) as s:
            check_nan(c, s)
    c.end("serve log-probabilities", 40)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of a model whose tokenizer has tokens of single bytes ("<0x0A>"), as Llama 2's: the texts of a run of them
are not known before it ends. The oracle of texts is what the tokens are, which logit_bias chooses.
usage: test_byte_fallback.py PROGRAM"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Checks, make_model, serving

LETTER = 257  # the token "a"
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
    "post_processor": None, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True, "ignore_merges": False,
              "vocab": {**{f"<0x{byte:02X}>": byte for byte in range(256)}, "b": 256, "a": LETTER, "c": 258},
              "merges": []}}


def forced(token, **keys):
    return dict(temperature=0, logit_bias={token: 100}, ignore_eos=True, **keys)


def check_prompt_end(c, s):
    """Bytes at the end of a prompt are the prompt's, and not the answer's."""
    made = s.complete(prompt="a\n", max_tokens=3, **forced(LETTER))["choices"][0]
    c.same(made["text"], "aaa", "the text behind a byte")
    made = s.complete(prompt="a\n", max_tokens=3, stop="\n", **forced(LETTER))["choices"][0]
    c.same((made["text"], made["finish_reason"]), ("aaa", "length"), "a stop string in the prompt")
    made = s.complete(prompt="a\n", max_tokens=2, echo=True, **forced(ord("#")))["choices"][0]
    c.same(made["text"], "a\n##", "bytes behind an echoed byte")


def check_stops(c, s):
    for stop, tokens in (("\n", 1), ("\n\n", 2), (["xyz", "\n\n\n"], 3)):
        for most in (tokens, 20):
            made = s.complete(prompt="a", max_tokens=most, stop=stop, **forced(10))
            c.same((made["choices"][0]["text"], made["choices"][0]["finish_reason"]), ("", "stop"), f"stop {stop!r}")
            c.same(made["usage"]["completion_tokens"], tokens, f"tokens until {stop!r}")
    made = s.complete(prompt="a", max_tokens=4, stop="\n", **forced(0xE2))["choices"][0]
    c.same((made["text"], made["finish_reason"]), ("\ufffd" * 4, "length"), "bytes that are no character")


def chat_of(s, **keys):
    status, body = s.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}], **keys)
    assert status == 200, body
    return body


def check_logprobs(c, s):
    made = s.complete(prompt="a", max_tokens=2, logprobs=20, **forced(0xE2))["choices"][0]["logprobs"]
    c.same(made["tokens"], ["bytes:\\xe2"] * 2, "a part of a character")
    for top in made["top_logprobs"]:
        c.check(len(top) in (20, 21) and "bytes:\\xe2" in top, f"keys of the likeliest tokens and the drawn one: {top}")
    chat = chat_of(s, max_tokens=1, logprobs=True, **forced(0xE2))
    c.same(chat["choices"][0]["logprobs"]["content"][0]["bytes"], [0xE2], "its byte")
    chat = chat_of(s, max_tokens=2, logprobs=True, stop="a", **forced(LETTER))
    c.same(chat["choices"][0]["logprobs"]["content"], [], "log-probabilities of a text that a stop string leaves empty")


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        make_model(program, Path(folder))
        chat = Path(folder) / "chat"
        (chat / "tokenizer.json").write_text(json.dumps(TOKENIZER), "utf-8")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ messages[0].content }}"}
        (chat / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
        subprocess.run([program, "import", "chat", "--out", "fallback"], cwd=folder, check=True, capture_output=True)
        with serving(c, program, Path(folder) / "fallback") as s:
            check_prompt_end(c, s)
            check_stops(c, s)
            check_logprobs(c, s)
    c.end("serve byte fallback", 20)


main()

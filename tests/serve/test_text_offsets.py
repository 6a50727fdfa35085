#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where tokens begin in a text, of a tokenizer as SentencePiece's: a blank is a part of the token behind it, and the first one
is no text. The oracle is the decoder of Llama 2 as its tokenizer.json describes it, on the tokens before each.
usage: test_text_offsets.py PROGRAM"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Checks, make_model, serving

PIECES = ["<unk>", "<s>", "</s>", "<0x0A>", "<0x41>", "<0xC3>", "<0xBC>", "\u2581", "\u2581a", "a", "\u2581\u2581", "\u2581the",
          "\u00fc", "\u2581\u00fc\u00fc", "b"]
ID = {piece: i for i, piece in enumerate(PIECES)}
STEPS = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
         {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
    "added_tokens": [{"id": i, "content": PIECES[i], "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i in range(3)],
    "decoder": {"type": "Sequence", "decoders": STEPS},
    "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
              "vocab": ID, "merges": []}}


def decode(tokens):
    """The text of tokens but special ones; bytes that are no character yet are U+FFFD."""
    parts = [PIECES[t] for t in tokens if t > 2]
    data = b"".join(bytes([int(p[3:5], 16)]) if p.startswith("<0x") else p.replace("\u2581", " ").encode() for p in parts)
    text = data.decode(errors="replace")
    return text[1:] if text.startswith(" ") else text


PROMPTS = (["\u2581the", "\u2581a", "a", "\u2581the"], ["<s>", "\u2581the", "\u2581", "a"], ["a", "\u2581the", "b"], ["\u2581", "a", "b"],
           ["<s>", "\u2581\u2581", "\u2581the", "a"], ["\u2581the", "<0x41>", "<0x41>", "\u2581a", "b"],
           ["\u2581a", "<0xC3>", "<0xBC>", "b", "\u00fc", "\u2581\u00fc\u00fc", "a"], ["\u2581", "<0x41>", "<0x0A>", "a"],
           ["<s>", "\u2581", "\u2581", "a"], ["\u2581the", "</s>", "\u2581a", "a"], ["<s>", "<0x41>", "<0x41>"])


def check_offsets(c, s, pieces, drawn):
    tokens, count = [ID[p] for p in pieces], 4
    made = s.complete(prompt=tokens, max_tokens=count, echo=True, logprobs=0, temperature=0, ignore_eos=True,
                      logit_bias={ID[drawn]: 100})["choices"][0]
    whole, what = tokens + [ID[drawn]] * count, f"{pieces} and {drawn!r}"
    c.same(made["text"], decode(whole), f"text of {what}")
    want = [len(decode(whole[:i])) for i in range(len(whole))]
    c.same(made["logprobs"]["text_offset"], want, f"offsets of {what}")
    alone = s.complete(prompt=tokens, max_tokens=count, logprobs=0, temperature=0, ignore_eos=True,
                       logit_bias={ID[drawn]: 100})["choices"][0]
    begin = len(decode(tokens))
    c.same(alone["logprobs"]["text_offset"], [n - begin for n in want[len(tokens):]], f"offsets behind {what}")
    c.same(alone["text"], decode(whole)[begin:], f"text behind {what}")
    events = s.events("/v1/completions", prompt=tokens, max_tokens=count, echo=True, logprobs=0, temperature=0, ignore_eos=True,
                      logit_bias={ID[drawn]: 100})[:-1]
    found = [n for e in events for n in (e["choices"][0]["logprobs"] or {"text_offset": []})["text_offset"]]
    c.same(found, want, f"offsets of {what} in a stream")


MERGES = [["\u2581", "a"], ["t", "h"], ["th", "e"], ["\u2581", "the"]]
WORDS = ["<unk>", "<s>", "</s>", "<0x0A>", "<0x41>", "<0xC3>", "<0xBC>", "\u2581", "a", "t", "h", "e", "\u2581a", "th", "the",
         "\u2581the"]
OF_TEXTS = {**TOKENIZER, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            "model": {**TOKENIZER["model"], "vocab": {word: i for i, word in enumerate(WORDS)},
                      "merges": [" ".join(pair) for pair in MERGES]}}
TEXTS = (" the", "the", "  the", " a", "\u00fc", " \u00fc\u00fc", "A", " AA\n", "the</s> a", "<s> the", "the a \u00fc", " ", "  ")


def prompt_offsets(text, tokens):
    """Characters of the text before each token: a blank that SentencePiece adds is none, and special tokens are as written."""
    written, at, found = text.replace(" ", "\u2581"), 0, []
    data = b""  # of a character of which tokens before have parts
    for i, token in enumerate(tokens):
        piece = WORDS[token]
        found.append(at + bool(data))
        if piece.startswith("<0x"):
            data += bytes([int(piece[3:5], 16)])
            if data.decode(errors="ignore"):
                at, data = at + 1, b""
        elif written.startswith(piece, at):
            at += len(piece)
        else:
            assert piece.startswith("\u2581") and written.startswith(piece[1:], at), (text, tokens)
            at += len(piece) - 1
    assert at == len(text), (text, tokens, at)
    return found


def check_texts(c, s):
    """A prompt that is a text comes back as it was given; the tokens of its answer go on behind it."""
    for text in TEXTS:
        body = {"max_tokens": 3, "temperature": 0, "ignore_eos": True, "logit_bias": {WORDS.index("\u2581the"): 100}}
        tokens = s.post("/tokenize", prompt=text)[1]["tokens"]
        behind = s.complete(prompt=tokens, **body)["choices"][0]["text"]
        made = s.complete(prompt=text, echo=True, logprobs=0, **body)["choices"][0]
        c.same(made["text"], text + behind, f"text of {text!r}")
        want = prompt_offsets(text, tokens) + [len(text) + i for i in (0, len(behind) - 8, len(behind) - 4)]
        c.same(made["logprobs"]["text_offset"], want, f"offsets of {text!r} as {tokens}")
        c.same(s.complete(prompt=text, echo=True, **body)["choices"][0]["text"], text + behind, f"{text!r} without offsets")
        events = s.events("/v1/completions", prompt=text, echo=True, logprobs=0, **body)[:-1]
        c.same("".join(e["choices"][0]["text"] for e in events), text + behind, f"{text!r} in a stream")
        found = [n for e in events for n in (e["choices"][0]["logprobs"] or {"text_offset": []})["text_offset"]]
        c.same(found, want, f"offsets of {text!r} in a stream")
    several = s.complete(prompt=[" a", [WORDS.index("a")], "  the"], n=2, echo=True, max_tokens=0)["choices"]
    c.same([x["text"] for x in several], [" a", " a", "a", "a", "  the", "  the"], "several prompts")


def main():
    c = Checks()
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        make_model(program, Path(folder))
        chat = Path(folder) / "chat"
        (chat / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), "utf-8")
        for name, tokenizer in (("pieces", TOKENIZER), ("texts", OF_TEXTS)):
            (chat / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
            subprocess.run([program, "import", "chat", "--out", name], cwd=folder, check=True, capture_output=True)
        with serving(c, program, Path(folder) / "pieces") as s:
            for pieces in PROMPTS:
                for drawn in ("\u2581the", "a", "<0x41>"):
                    check_offsets(c, s, pieces, drawn)
        with serving(c, program, Path(folder) / "texts") as s:
            check_texts(c, s)
    c.end("serve text offsets", 150)


main()

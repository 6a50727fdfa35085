#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Masks of conversations with tokenizers that are no byte-level BPE: several tokens of one character, and white space
that no token has. What is trained is known from the turn's text.
usage: test_conversation_subwords.py CONVERSATION_TOKENS"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TEMPLATE = ("{% for m in messages %}{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
            "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}")
NOTHING = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
           "pre_tokenizer": None, "post_processor": None, "decoder": None}
BYTES = {**NOTHING, "model": {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
    "fuse_unk": False, "byte_fallback": True, "ignore_merges": False,
    "vocab": {f"<0x{byte:02X}>": byte for byte in range(256)}, "merges": []}}
WORDS = ["[UNK]", "user", "assistant", "hello", "world", "two"]
SPLIT = {**NOTHING, "pre_tokenizer": {"type": "WhitespaceSplit"},
         "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"}}


def trained(tool, tokenizer, content):
    """The trained tokens of a conversation whose answer is `content`."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}), "utf-8")
        line = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": content}]}
        (folder / "lines.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
        done = subprocess.run([tool, made, folder / "lines.jsonl", "assistant"], capture_output=True, text=True, check=True)
        made = json.loads(done.stdout.splitlines()[0])
        return [token for token, mask in zip(made["tokens"], made["trained"]) if mask]


def main():
    failed = checks = 0
    cases = [(BYTES, text, list(text.encode())) for text in ("\U0001f642 world", "é", "a\U0001f642", "\ufb01ne", "\U0001f642\n")]
    cases += [(SPLIT, text, [WORDS.index(word) for word in text.split()])
              for text in (" world", "world", "\n two world", "  two ", "hello  hello\n")]
    for tokenizer, text, want in cases:
        got = trained(sys.argv[1], tokenizer, text)
        checks += 1
        if got != want:
            failed += 1
            print(f"FAILED: {text!r}: {got} are trained, not {want}")
    print(f"conversation subwords: {checks} checks, {failed} failed")
    sys.exit(failed > 0 or checks < 10)


main()

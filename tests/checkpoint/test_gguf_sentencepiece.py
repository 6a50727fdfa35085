#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports of SentencePiece's tokenizers to GGUF: what is written of a tokenizer.model, what is refused, and warnings of what
llama.cpp does otherwise. test_gguf.py compares the bytes of the same models with those of llama.cpp's converter.

usage: test_gguf_sentencepiece.py PROGRAM    (in the source root)
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from gguf_reader import Reader

DATA = os.path.join(os.getcwd(), "tests", "checkpoint", "data")
PROGRAM = os.path.abspath(sys.argv[1])
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
checks = 0


def expect(holds, *words):
    global checks
    checks += 1
    if not holds:
        raise AssertionError(" ".join(map(str, words)))


def run(*words, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect(done.returncode == code, words, "ends with", done.returncode, "not", code, "\n" + done.stdout)
    return done.stdout


def export(checkpoint, code=0):
    said = run("export", checkpoint, "--format", "gguf", "--out", checkpoint + ".gguf", code=code)
    expect(code == 0 or not os.path.exists(checkpoint + ".gguf"), checkpoint, "has left a file")
    return said


def imported(model, name, **files):
    """A checkpoint of a model of tests/checkpoint/data with other side files: objects, bytes, or None for none."""
    shutil.rmtree("folder", ignore_errors=True)
    shutil.copytree(os.path.join(DATA, model), "folder")
    for file, content in files.items():
        path = os.path.join("folder", file.replace("__", "."))
        if content is None:
            os.remove(path)
        elif isinstance(content, bytes):
            with open(path, "wb") as out:
                out.write(content)
        else:
            with open(path, "w") as out:
                json.dump(content, out)
    run("import", "folder", "--out", name, "--quiet")
    return name


def read(model, file):
    with open(os.path.join(DATA, model, file), "rb") as found:
        return found.read() if file.endswith(".model") else json.load(found)


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def model_of(pieces, kind=2):
    """A tokenizer.model by the description of the format: (text, score, type) each, and a trainer of a kind (2: BPE)."""
    made = b""
    for text, score, piece_type in pieces:
        made += field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(piece_type))
    return made + field(2, b"\x18" + varint(kind))


def test_pieces():
    """Types, scores and texts of pieces that are written by hand."""
    texts = ["<unk>", "<s>", "</s>", "<0x41>", "▁a", "ü", "own", "gone"]
    scores = [0, 0, 0, 0, -1.5, -2.25, 0, -3]
    types = [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL, NORMAL, USER_DEFINED, UNUSED]
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_prefix_space": False, "add_bos_token": True,
              "added_tokens_decoder": {"9": {"content": "<two▁words>", "special": False},
                                       "8": {"content": "<end>", "special": True},
                                       "7": {"content": "<|looks|>", "special": False},
                                       "5000": {"content": "<far>", "special": False}}}
    name = imported("spm_llama", "by_hand", tokenizer__model=model_of(zip(texts, scores, types)), tokenizer__json=None,
                    tokenizer_config__json=config)
    export(name)
    keys = Reader(name + ".gguf").keys
    tokens, found = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    expect(keys["tokenizer.ggml.model"] == "llama" and keys["tokenizer.ggml.pre"] == "default")
    expect(keys["tokenizer.ggml.add_space_prefix"] is False and keys["tokenizer.ggml.add_bos_token"] is True)
    expect(len(tokens) == len(found) == len(keys["tokenizer.ggml.scores"]) == 334)
    expect(tokens[:11] == [*texts[:7], "<|looks|>", "<end>", "<two words>", "[PAD10]"], tokens[:11])
    expect(found[:11] == [2, 3, 3, 6, 1, 1, 1, 3, 3, 4, 5], found[:11])
    expect(keys["tokenizer.ggml.scores"][:11] == [*scores[:7], -1000, -1000, -1000, -10000])
    expect("tokenizer.ggml.merges" not in keys)


def test_ways():
    """tokenizer.model goes with the weights, to Hugging Face's folder and into the checkpoints of a run."""
    name, pieces = imported("spm_llama", "kept"), read("spm_llama", "tokenizer.model")
    run("export", name, "--out", "kept_hf", "--quiet")
    with open("text.txt", "w") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 20)
    run("--config", "kept/config.yaml", "--set", "training_config.model_path=kept", "--set", "training_config.data_path=text.txt",
        "--set", "training_config.max_steps=1", "--set", "training_config.sequence_length=8", "--out", "tuned", "--quiet")
    run("export", "tuned", "--out", "tuned_hf", "--quiet")
    for folder in ("kept", "kept_hf", "tuned_hf"):
        with open(os.path.join(folder, "tokenizer.model"), "rb") as file:
            expect(file.read() == pieces, folder, "has another tokenizer.model")
    other = os.path.join(os.path.dirname(os.path.dirname(DATA)), "data", "bpe", "digits.json")
    run("--config", "kept/config.yaml", "--set", "training_config.data_path=text.txt", "--set", "training_config.max_steps=1",
        "--set", "training_config.sequence_length=8", "--set", "training_config.tokenizer_path=" + other, "--set",
        "transformer_config.vocab_size=403", "--out", "else", "--quiet")
    run("export", "else", "--out", "else_hf", "--quiet")
    expect(not os.path.exists("else_hf/tokenizer.model"), "another tokenizer has the old tokenizer.model")


def test_refusals():
    pieces = read("spm_llama", "tokenizer.model")
    for cut in (0, 1, 2, 5, 9, 13, 14, len(pieces) // 2, len(pieces) - 1):
        said = export(imported("spm_llama", f"cut{cut}", tokenizer__model=pieces[:cut]), code=2)
        expect(f"'cut{cut}/tokenizer.model' is no model of SentencePiece" in said, cut, said)
    said = export(imported("spm_llama", "text", tokenizer__model=b"IQ== 0\nIg== 1\n"), code=2)
    expect("'text/tokenizer.model' is no model of SentencePiece" in said, said)
    one = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL)]
    said = export(imported("spm_llama", "unigram", tokenizer__model=model_of(one, 1)), code=2)
    expect("'unigram/tokenizer.model' is no BPE" in said, said)
    many = [(f"<{i}>", 0, NORMAL) for i in range(335)]
    said = export(imported("spm_llama", "many", tokenizer__model=model_of(many), tokenizer__json=None), code=2)
    expect("'many/tokenizer.model' has 335 tokens, the model 334" in said, said)
    said = export(imported("spm_llama", "other", tokenizer__model=read("spm_gemma3", "tokenizer.model")), code=2)
    expect("'other/tokenizer.model' is another tokenizer's than tokenizer.json beside it: token 3 is '<0x00>' there, '<unk>' here" in said, said)
    said = export(imported("spm_gemma3", "lacks", tokenizer__model=None), code=2)
    expect("one that was made of a tokenizer.model needs that file beside it" in said, said)
    bad = {"added_tokens_decoder": {"x": {"content": "y"}}}
    said = export(imported("spm_llama", "bad", tokenizer_config__json=bad), code=2)
    expect("'x' in added_tokens_decoder is no token" in said, said)


def test_warnings():
    name = imported("spm_llama", "flags")
    said = export(name)
    expect(said.count("warning") == 1 and "texts around '<|end|>' may have other tokens there" in said, said)
    expect("names a token that ends a text" not in said, said)
    tokenizer = read("spm_llama", "tokenizer.json")
    post = tokenizer["post_processor"]
    post["single"] = [{"SpecialToken": {"id": i, "type_id": 0}} for i in ("<s>", "</s>")] + [{"Sequence": {"id": "A", "type_id": 0}}]
    post["special_tokens"]["</s>"] = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:3]
    said = export(imported("spm_llama", "two", tokenizer__json=tokenizer))
    expect("'two/tokenizer.json' puts 2 tokens before a text, '<s>', '</s>': llama.cpp puts at most one there" in said, said)
    expect("may have other tokens there" not in said, said)
    said = export(imported("spm_gemma3", "spaceless"))
    expect("warning" not in said, said)
    config = read("spm_gemma3", "tokenizer_config.json")
    del config["added_tokens_decoder"]["8"]
    said = export(imported("spm_gemma3", "unnamed", tokenizer_config__json=config))
    expect("'unnamed/tokenizer.json': llama.cpp divides '<start_of_turn>' in a text as any other word" in said, said)
    tokenizer = read("spm_llama", "tokenizer.json")
    for token, text in zip(tokenizer["added_tokens"][3:], ("\n", "a\n\nb")):
        token.update(content=text, lstrip=True)
    said = export(imported("spm_llama", "lines", tokenizer__json=tokenizer))
    expect("so texts around '\\n', 'a\\n\\nb' may have" in said, said)
    config = {**read("spm_llama", "tokenizer_config.json"), "add_prefix_space": False}
    said = export(imported("spm_llama", "spaces", tokenizer_config__json=config))
    expect("'spaces/tokenizer.json' puts a space before a text, and llama.cpp does not: texts have other tokens there" in said, said)
    said = export(imported("spm_llama_json", "scoreless"))
    expect("'scoreless/tokenizer.json' has no tokenizer.model beside it: its tokens have no scores" in said, said)


def test_ends():
    """llama.cpp puts a token before a text unless add_bos_token forbids it, and one behind it where add_eos_token asks for it."""
    tokenizer, config = read("spm_llama", "tokenizer.json"), read("spm_llama", "tokenizer_config.json")
    begin, text, end = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
    post = tokenizer["post_processor"]
    post["special_tokens"]["</s>"] = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
    no_flags = {k: v for k, v in config.items() if not k.startswith("add_")}
    no_begin = "puts no token before a text, and llama.cpp puts the one that begins texts there"
    for i, (pieces, settings, warning) in enumerate((
            ([begin, text], no_flags, None), (None, no_flags, no_begin), (None, {**no_flags, "add_bos_token": False}, None),
            (None, config, no_begin), ([text], no_flags, no_begin),
            ([begin, text, end], {**config, "add_eos_token": True}, "llama.cpp puts '</s>' behind every text, so behind prompts too"),
            ([begin, text], {**config, "add_eos_token": True}, "puts the token that ends texts behind every text, so behind prompts"))):
        tokenizer["post_processor"] = {**post, "single": pieces} if pieces else None
        said = export(imported("spm_llama", f"ends{i}", tokenizer__json=tokenizer, tokenizer_config__json=settings))
        expect(("before a text" in said or "behind every text" in said) == bool(warning), i, said)
        expect(not warning or warning in said, i, said)


def test_spaces():
    """llama.cpp puts a space before every text and behind every special token."""
    tokenizer, found = read("spm_llama", "tokenizer.json"), {}
    tokenizer["normalizer"] = None
    for scheme in ("first", "always", "never"):
        tokenizer["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        said = export(imported("spm_llama", scheme, tokenizer__json=tokenizer))
        found[scheme] = [text in said for text in (
            "puts no space before a text, and llama.cpp does",
            "a text that begins with a space begins with 1 '▁', and in llama.cpp with 2",
            "puts no space before what is behind '<unk>' and other special tokens, and llama.cpp does")]
    expect(found == {"first": [False, True, True], "always": [False, True, False], "never": [True, False, False]}, found)


def test_bytes():
    """llama.cpp's tokenizer throws where a character is no token and its bytes are none."""
    pieces = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL), *((c, -1, NORMAL) for c in "▁abc")]
    all_bytes = [(f"<0x{i:02X}>", 0, BYTE) for i in range(256)]
    for count, warns in ((0, True), (255, True), (256, False)):
        made = model_of(pieces + all_bytes[:count])
        said = export(imported("spm_llama", f"bytes{count}", tokenizer__model=made, tokenizer__json=None))
        expect((f"bytes{count}/tokenizer.model' has tokens of {count} of the 256 bytes" in said) == warns, said)


def test_name():
    """llama.cpp does not load a file whose name has "phi3" and that lacks a token of Phi-3."""
    for name, warns in (("my-phi3", True), ("MyPhi3", True), ("phi", False)):
        said = export(imported("spm_llama", name))
        expect(("takes the model for a Phi-3 by its name" in said and "without the token '<|endoftext|>'" in said) == warns, said)
    tokenizer, config = read("spm_llama", "tokenizer.json"), read("spm_llama", "tokenizer_config.json")
    number = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "<|end|>")
    config["added_tokens_decoder"][str(number)]["content"] = "<|endoftext|>"
    said = export(imported("spm_llama", "true-phi3", tokenizer_config__json=config))
    expect("takes the model" not in said, said)


def main():
    os.environ.pop("TT_MESH_GRAPH_DESC_PATH", None)
    root = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_pieces()
        test_ways()
        test_refusals()
        test_warnings()
        test_ends()
        test_spaces()
        test_bytes()
        test_name()
        os.chdir(root)
    print(f"{checks} checks")
    sys.exit(checks < 110)


if __name__ == "__main__":
    main()

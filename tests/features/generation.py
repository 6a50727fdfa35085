# SPDX-License-Identifier: Apache-2.0
"""Checks of trained models in use: generated texts, evaluation sets, chat templates and tokenizers."""
import glob
import json
import os

from feature import feature
from training import expect, gpt, mesh

PROMPTS = ("--prompt", "word", "--prompt", "text. ", "--prompt", "a", "--max-new-tokens", "20", "--temperature", "0.9", "--seed", "1",
           "--quiet")


def texts(c, *words, code=0):
    return c.run("generate", "--checkpoint", "kept", *PROMPTS, *words, code=code)


@feature("Paged key/value cache: --cache-pages; a text depends neither on its pages nor on the texts beside it")
def cache_pages(c):
    gpt(c)
    c.with_keys("train", training_config__checkpoint_dir="kept", training_config__max_steps=1)
    all_at_once = texts(c).out
    for words in (("--cache-pages", "1"), ("--cache-pages", "2", "--max-batch", "3"), ("--max-batch", "1")):
        expect(texts(c, *words).out == all_at_once, f"{words}: other texts")
    texts(c, "--cache-pages", "0", code=2).says("--cache-pages: '0' is no integer from 1")


@feature("--weights int8 or nf4: linear layers are quantised as they are loaded; the same text on any mesh with the same units")
def quantized_weights(c):
    gpt(c)
    c.write("run.yaml", c.read("run.yaml").replace("embedding_dim: 32", "embedding_dim: 256"))
    c.with_keys("train", training_config__checkpoint_dir="kept", training_config__max_steps=1)
    own = texts(c).out
    for kind in ("int8", "nf4"):
        one = texts(c, "--weights", kind).out
        expect(one != own, f"{kind}: nothing is quantised")
        expect(texts(c, "--weights", kind, "--set", "mesh={axes: [tp], shape: [2]}").out == one, f"{kind}: other texts on a mesh")
    texts(c, "--weights", "int2", code=2).says("--weights: 'int2' is neither 'int8' nor 'nf4'")


@feature("A model that is only read has its parameters in bf16 or fp16 alone: half the memory, the text that training samples")
def half_parameters(c):
    gpt(c)

    def parameters(precision):
        found = c.run("generate", "--checkpoint", precision, "--prompt", "word", "--max-new-tokens", "1", "--dump", "memory")
        return int(found.matches(r"^  parameters +([\d,]+)$")[1].replace(",", ""))

    for precision in ("f32", "bf16", "fp16"):
        made = c.with_keys("train", training_config__checkpoint_dir=precision, training_config__precision=precision,
                           training_config__sample_tokens=24, eval_config__prompt="word")
        text = c.run("generate", "--checkpoint", precision, "--prompt", "word", "--max-new-tokens", "24", "--quiet").out
        expect(len(text) == 4 + 24 + 1, repr(text))
        made.says(f"--- sample after step 3\n{text}---")
        expect(parameters(precision) * (1 if precision == "f32" else 2) == parameters("f32"), f"{precision}: other sizes")


@feature("evaluate --eval-set: accuracies and perplexities of JSON lines with standard errors; few-shot; the same bits on any mesh")
def evaluation_sets(c):
    gpt(c)
    c.with_keys("train", training_config__checkpoint_dir="kept", training_config__max_steps=1,
                training_config__tokenizer_type="byte")
    lines = [{"question": "word", "choices": ["text", "word "], "answer": i % 2} for i in range(5)]
    c.write("choice.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    c.write("text.jsonl", '{"text": "text word"}\n{"text": "word"}\n')
    words = ("evaluate", "--checkpoint", "kept", "--eval-set", "choice.jsonl", "--quiet")
    shots = ("--shots", "1", "--shots-file", "choice.jsonl", "--shots-delimiter", " ", "--max-length", "12")
    one = c.run(*words, "--eval-set", "text.jsonl", "--log-samples", "one.jsonl")
    # One prediction for all lines, whose answers alternate: 2 or 3 of 5 are right. sqrt(0.24 / 4) is 0.2449.
    one.matches(r"^choice.jsonl  choice +5  acc +0\.[46]000 +0\.2449$")
    one.matches(r"^text.jsonl +text +2  bits_per_byte +\d+\.\d{4} +\d+\.\d{4}$")
    c.run(*words, "--eval-set", "text.jsonl", "--log-samples", "two.jsonl", "--set", f"mesh={mesh(dp=2, tp=2)}")
    expect(c.read("one.jsonl") == c.read("two.jsonl"), "other scores on a mesh")
    c.run(*words, *shots, "--log-samples", "shots.jsonl")
    expect(c.read("shots.jsonl") not in c.read("one.jsonl"), "examples do not change the scores")
    c.write("bad.jsonl", '{"question": "word", "choices": ["text", "word "], "answer": 2}\n')
    c.run("evaluate", "--checkpoint", "kept", "--eval-set", "bad.jsonl", code=2).says("bad.jsonl:1:62: error: answer 2 is none")


@feature("generate --chat renders a conversation with the model's chat template; errors are located in it")
def chat_templates(c):
    gpt(c)
    c.with_keys("train", training_config__checkpoint_dir="kept", training_config__max_steps=1)
    folder = glob.glob(os.path.join(c.folder, "kept", "step-*"))[0]
    c.write("chat.json", json.dumps({"messages": [{"role": "user", "content": " text "}], "tools": [{"name": "word"}]}))
    words = ("generate", "--checkpoint", "kept", "--max-new-tokens", "2", "--seed", "1", "--temperature", "0")
    c.write(os.path.join(folder, "chat_template.jinja"), "{{ tools[0].name }} {% for m in messages %}{{ m.content | trim }}"
            "{% if m.role == 'bot' %}{{ raise_exception('no bots') }}{% endif %}{% endfor %}{% if add_generation_prompt %}. {% endif %}")
    chat = c.run(*words, "--chat", "chat.json").out
    plain = c.run(*words, "--prompt", "word text. ").out
    expect(plain == "word text. " + chat, f"{chat!r} and {plain!r}")
    c.write("bot.json", json.dumps({"messages": [{"role": "bot", "content": "x"}, {"role": "user", "content": "y"}], "tools": [{"name": "f"}]}))
    refused = c.run(*words, "--chat", "bot.json", code=2)
    refused.matches(r"chat_template.jinja:1:\d+: error: the template raises an exception: no bots$")


@feature("tokenizer.json with BPE, Unigram, WordPiece and WordLevel: ids and texts of the tokenizers package")
def tokenizer_files(c):
    folder = os.path.join(c.source_root, "tests", "data", "subword")
    for kind in ("llama", "unigram", "bert", "words"):
        with open(os.path.join(folder, f"{kind}.cases")) as f:  # what the package made
            cases = [json.loads(line) for line in f]
        text, want = max(((case["text"], case["ids"]) for case in cases), key=lambda case: len(case[1]))
        c.write(f"{kind}.txt", text)
        c.run("tokenize", f"{kind}.txt", "--tokenizer", os.path.join(folder, f"{kind}.json"), "--format", "nanogpt",
              "--out", f"{kind}.bin")
        with open(os.path.join(c.folder, f"{kind}.bin"), "rb") as f:
            got = f.read()
        ids = [int.from_bytes(got[i:i + 2], "little") for i in range(0, len(got), 2)]
        expect(ids[:len(want)] == want and len(ids) <= len(want) + 1, f"{kind}: {ids}, not {want}")

# SPDX-License-Identifier: Apache-2.0
"""Checks of conversations and of separate documents as training data, and of the checkpoints that their evaluation keeps."""
import json
import math

from feature import feature
from training import GPT, expect, same

TALK = """{%- for m in messages -%}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}
{% else %}{{ m.content }}
{% endif %}{%- endfor -%}"""


def chat(c):
    """Lines of one to three turns, and a configuration that trains on them."""
    turns = [[part for k in range(i % 3 + 1) for part in (
        {"role": "user", "content": f"{i} plus {k}?"}, {"role": "assistant", "content": f"{i + k}"})] for i in range(40)]
    c.write("chat.jsonl", "".join(json.dumps({"messages": m}) + "\n" for m in turns))
    c.write("talk.jinja", TALK)
    c.write("chat.yaml", """
training_config: {seed: 1, data_path: chat.jsonl, tokenizer_type: byte, batch_size: 4, max_steps: 3, num_epochs: 9,
  eval_every: 0, sample_tokens: 0}
data: {format: chat, template: talk.jinja}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_groups: 2, num_blocks: 2,
  max_sequence_length: 96}
numerics: {threads: 1, units: {batch: 4, tp: 2}}
""")


@feature("Conversations as data: a mask from the chat template, best-fit packs, the same bits on any mesh")
def conversations(c):
    chat(c)
    weights = r"sha256 ([0-9a-f]{64})"
    one = c.run("--config", "chat.yaml").matches(weights)[1]
    for mesh in "{axes: [dp, tp], shape: [2, 2]}", "{axes: [pp], shape: [2]}":
        expect(c.run("--config", "chat.yaml", "--set", f"mesh={mesh}").matches(weights)[1] == one, f"{mesh}: other weights")
    other = c.run("--config", "chat.yaml", "--set", "data.train_on=all").matches(weights)[1]
    expect(other != one, "the mask changes nothing")
    c.run("--config", "chat.yaml", "--set", "training_config.documents=packed", code=2).says("conversations do not attend to each other")


@feature("Separate documents: attention and positions begin anew with each, on any mesh; the order in a sample is no matter")
def separate_documents(c):
    lines = [f"{i} and {i * i % 7}, then " + "abc" * (i % 4) + "\n" for i in range(12)]
    lines[0] = "x" * (1 - len("".join(lines)) % 2) + lines[0]  # so that units divide all targets
    for name, order in (("there.txt", lines), ("back.txt", lines[::-1])):
        c.write(name, "".join(order))
    length = sum(len(line) for line in lines)
    c.write("run.yaml", GPT.replace("char", "byte").replace("vocab_size: 0", "vocab_size: 256")
            .replace("max_sequence_length: 16", f"max_sequence_length: {length}"))
    losses = {}
    for documents in ("separate", "packed"):
        keys = {"training_config__documents": documents, "training_config__end_of_text": 10,
                "training_config__sequence_length": 32, "training_config__data_path": "there.txt",
                "numerics__units": {"batch": 8, "tp": 4, "sequence": 2}}
        one = c.with_keys("--out", documents, **keys)
        if documents == "separate":
            cp = c.with_keys(**keys, mesh={"axes": ["cp", "dp"], "shape": [2, 2]})
            same("a context parallel mesh", [run.matches(r"weights sha256 (\w+)")[1] for run in (one, cp)])
        losses[documents] = [
            float(c.run("evaluate", "--checkpoint", documents, "--data", name, "--set",
                        f"training_config.sequence_length={length - 1}").matches(r"^loss: (.*)$")[1])
            for name in ("there.txt", "back.txt")]
    expect(math.isclose(*losses["separate"], rel_tol=1e-6), f"losses of the orders are {losses['separate']}")
    expect(not math.isclose(*losses["packed"], rel_tol=1e-5), f"packed documents see nothing of each other: {losses['packed']}")


@feature("data show: tokens with mask, documents and positions; lengths, trained share, packing, warnings")
def data_show(c):
    chat(c)
    shown = c.run("data", "show", "--config", "chat.yaml").says("user: ", "⟦", "⟧", "documents  36", "packing    ", "an epoch has ")
    lengths = [sum(len(f"user: {i} plus {k}?\nassistant: {i + k}") for k in range(i % 3 + 1)) for i in range(36)]
    shown.says(f"tokens     {sum(lengths):,}", f"lengths    min {min(lengths)}, ")
    single = c.run("data", "show", "--config", "chat.yaml", "--set", "data.packing=none").matches(r"packing +(\d+)")[1]
    expect(int(single) < int(shown.matches(r"packing +(\d+)")[1]), "packs have no more tokens than single conversations")
    c.run("data", "show", "--config", "chat.yaml", "--set", "training_config.sequence_length=4").says("nothing is trained")


@feature("checkpoint.keep_best names and keeps the best checkpoints, early_stop_patience ends a run")
def best_checkpoints(c):
    chat(c)
    ends = c.run("--config", "chat.yaml", "--out", "run", "--set", "training_config.eval_every=1", "--set", "training_config.max_steps=9",
                 "--set", "checkpoint.keep_best=1", "--set", "training_config.early_stop_patience=2",
                 "--set", "training_config.early_stop_min_delta=9").says("early stop: the validation loss has not improved since step 1 ")
    ends.matches(r"^done: step 3, ")
    best = ends.matches(r"^best: step (\d+), ")[1]
    c.run("evaluate", "--checkpoint", "run/best").says(f"step {best}")

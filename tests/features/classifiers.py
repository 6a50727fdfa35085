# SPDX-License-Identifier: Apache-2.0
"""Checks of models that tell classes of documents apart: labelled texts, accuracy, exports, adapters."""
import json
import random

from feature import feature
from training import expect

MODEL = """
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 2, num_groups: 2, num_blocks: 2,
  max_sequence_length: 32%s}
numerics: {threads: 1, units: {batch: 4, tp: 2}}
"""


def labelled(c):
    """Texts whose class a word decides, and a configuration that trains on them."""
    draw = random.Random(2)
    words = {"no": "never not none", "yes": "sure fine good"}
    lines = []
    for _ in range(80):
        label = draw.choice(sorted(words))
        text = ["so"] * draw.randint(0, 2) + [draw.choice(words[label].split())] + ["it is"] * draw.randint(0, 1)
        lines.append({"text": " ".join(text), "label": label})
    c.write("lines.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    c.write("llama.yaml", """
training_config: {seed: 1, data_path: lines.jsonl, tokenizer_type: byte, batch_size: 4, max_steps: 200, num_epochs: 90,
  eval_every: 200, validation_fraction: 0.25, validation_batch_size: 4, optimizer: {lr: 0.01}}
data: {format: labels}""" + MODEL % ", num_labels: 2")


@feature("num_labels: texts with labels are learned to an accuracy of 1, with the same bits on any mesh; standard errors")
def classes_of_documents(c):
    labelled(c)
    weights = r"sha256 ([0-9a-f]{64})"
    one = c.run("--config", "llama.yaml", "--out", "run").says("accuracy = 1.0000 ± 0.0000 (20 of 20)").matches(weights)[1]
    mesh = c.run("--config", "llama.yaml", "--set", "mesh={axes: [dp, tp], shape: [2, 2]}").says("(20 of 20)").matches(weights)[1]
    expect(mesh == one, "other weights on a mesh")
    c.run("evaluate", "--checkpoint", "run", "--data", "lines.jsonl", "--log-samples", "samples.jsonl").says(
        "accuracy: 1.000000 ± 0.000000 (80 of 80)")
    c.run("data", "show", "--config", "llama.yaml").says("labels     no ", ", label ")
    c.run("generate", "--checkpoint", "run", "--prompt", "so", code=2).says("has no probabilities of tokens")


@feature("import and export of transformers' …ForSequenceClassification: id2label, label2id, the padding token")
def classes_of_transformers(c):
    labelled(c)
    c.run("--config", "llama.yaml", "--out", "run", "--quiet")
    c.run("export", "run", "--out", "hf").says("pad_token_id")
    config = json.loads(c.read("hf/config.json"))
    expect(config["architectures"] == ["LlamaForSequenceClassification"], "another class")
    expect(config["id2label"] == {"0": "no", "1": "yes"} and config["label2id"] == {"no": 0, "yes": 1}, "other names")
    c.run("import", "hf", "--out", "back")
    c.run("evaluate", "--checkpoint", "back", "--data", "lines.jsonl", "--set", "training_config.tokenizer_type=byte").says(
        "accuracy: 1.000000")
    c.write("hf/config.json", json.dumps(dict(config, problem_type="multi_label_classification")))
    c.run("import", "hf", "--out", "other", code=2).says("problem_type 'multi_label_classification' is not supported")


@feature("A classifier begins with a model of tokens, also with adapters: score is new and trained whole, as PEFT's SEQ_CLS")
def classes_from_tokens(c):
    labelled(c)
    c.write("text.txt", "a text of some words. " * 40)
    c.write("tokens.yaml", """
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, max_steps: 2, eval_every: 0, sample_tokens: 0}
""" + MODEL % "")
    c.run("--config", "tokens.yaml", "--out", "tokens", "--quiet")
    words = ("--config", "llama.yaml", "--set", "training_config.model_path=tokens", "--set", "training_config.max_steps=4")
    c.run(*words).says("no tensor 'score': it begins at its initial value", "tensor 'lm_head' is left out")
    c.run(*words, "--set", "lora_config={r: 2, target_modules: [q_proj]}", "--out", "adapted", "--quiet")
    c.run("export", "adapted", "--out", "peft")
    config = json.loads(c.read("peft/adapter_config.json"))
    expect(config["task_type"] == "SEQ_CLS" and config["modules_to_save"] == ["score"], "no folder of SEQ_CLS")

# SPDX-License-Identifier: Apache-2.0
"""Adapters: what is trained, what is frozen, and the files that they come from and go to."""
import json
import math

from feature import feature
from small_models import mesh, same_bits, weights

MODEL = """\
training_config: {seed: 7, batch_size: 8, max_steps: 4, data_path: text.txt, tokenizer_type: byte, eval_every: 0,
                  sample_tokens: 0, sequence_length: 16, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 32, intermediate_dim: 48, num_heads: 4,
                     num_groups: 2, num_blocks: 2, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 8, tp: 2}}
"""


def with_model(c):
    c.write("model.yaml", MODEL)
    c.run("--config", "model.yaml", "--out", "model", "--quiet")
    c.write("run.yaml", MODEL)


def adapters(c, lora, *words, code=0, **keys):
    return c.with_keys(*words, code=code, lora_config=lora, training_config__model_path="model", **keys)


def loss(c, *words):
    return float(c.run("evaluate", *words, "--data", "text.txt", "--quiet").matches(r"^loss: (.*)$")[1])


@feature("LoRA and rsLoRA: adapters of linear layers chosen by names or regular expressions, the rest frozen; one rank's bits")
def lora(c):
    with_model(c)
    hashes = set()
    for words in ("{r: 4}", "{r: 4, use_rslora: true}", "{r: 4, target_modules: [q_proj, mlp.down_proj]}",
                  '{r: 4, target_modules: ".*_proj", exclude_modules: [o_proj]}'):
        one = adapters(c, words)
        same_bits([one, adapters(c, words, mesh=mesh(dp=2, tp=2), zero__stage=3)])
        hashes.add(weights(one))
    if len(hashes) != 4:
        one.fail(f"some of the options change nothing: {hashes}")
    adapters(c, "{target_modules: [q_prj]}", code=2).says("no module is called 'q_prj'", "did you mean 'q_proj'?")


@feature("Another rank or lora_alpha of some modules: rank_pattern and alpha_pattern, in PEFT's format, too")
def patterns(c):
    with_model(c)
    words = "{r: 4, rank_pattern: {q_proj: 2, 'layers.1.*': 1}, alpha_pattern: {(k|v)_proj: 3}}"
    one = adapters(c, words, "--out", "tuned")
    same_bits([one, adapters(c, words, mesh=mesh(dp=2, pp=2))])
    c.run("checkpoint", "show", "tuned").says(
        "block.0.attn.wq.lora_a f32 (2, ", "block.1.attn.wk.lora_a f32 (1, ", "block.0.attn.wk.lora_a f32 (4, ")
    c.run("export", "tuned", "--out", "peft")
    if loss(c, "--checkpoint", "model", "--adapter", "peft") != loss(c, "--checkpoint", "tuned"):
        one.fail("PEFT's folder has another loss")
    adapters(c, "{rank_pattern: {q_proj: 2.5}}", code=2).says("'rank_pattern.q_proj' must be a whole number")


@feature("DoRA: rows with trained magnitudes, which begin as the norms of the weights; one rank's bits")
def dora(c):
    with_model(c)
    one = adapters(c, "{r: 4, use_dora: true}")
    same_bits([one, adapters(c, "{r: 4, use_dora: true}", mesh=mesh(pp=2, tp=2))])
    adapters(c, "{r: 4, use_dora: true}", "--out", "still", training_config__optimizer__lr=1e-30)
    if not math.isclose(loss(c, "--checkpoint", "still"), loss(c, "--checkpoint", "model"), rel_tol=1e-6):
        one.fail("the model does not begin as it was")


@feature("Frozen parameters: no gradient, no optimizer state, no part of a checkpoint; check prints both counts")
def frozen(c):
    with_model(c)
    check = adapters(c, "{r: 4, target_modules: [q_proj]}", "check")
    check.says("trained: 512 parameters", "frozen: 31,904, 124.6 KiB").matches(r"optimizer state +4,096 ")
    adapters(c, "{r: 4, target_modules: [q_proj]}", "--out", "tuned", "--dump-grads", "grads")
    show = c.run("checkpoint", "show", "tuned")
    show.says("tensors: 14", "block.1.attn.wq.lora_b.v f32 (32, 4)").never_says("attn.wq f32")


@feature("Adapters of a run are refused beside other weights than those that they were trained with")
def other_weights(c):
    with_model(c)
    c.run("--config", "model.yaml", "--set", "training_config.seed=8", "--out", "other", "--quiet")
    adapters(c, "{r: 4}", "--out", "tuned")
    for words in (("evaluate", "--checkpoint", "tuned", "--data", "text.txt"), ("--config", "run.yaml", "--resume", "tuned",
                  "--set", "lora_config={r: 4}", "--out", "again")):
        c.run(*words, "--set", "training_config.model_path=other", code=2).says(
            "the adapters of 'tuned/checkpoints/step-00000004' were trained with other weights than those of 'other")


@feature("Adapters in PEFT's format: exported, read by evaluate, generate and train; merged on export with the same loss")
def peft(c):
    with_model(c)
    adapters(c, "{r: 4, lora_alpha: 12, target_modules: [q_proj, down_proj]}", "--out", "tuned")
    export = c.run("export", "tuned", "--out", "peft")
    config = json.loads(c.read("peft/adapter_config.json"))
    if (config["peft_type"], config["r"], config["target_modules"]) != ("LORA", 4, ["q_proj", "down_proj"]):
        export.fail(f"adapter_config.json is {config}")
    want = loss(c, "--checkpoint", "tuned")
    if loss(c, "--checkpoint", "model", "--adapter", "peft") != want:
        export.fail("evaluate --adapter has another loss")
    c.run("generate", "--checkpoint", "model", "--adapter", "peft", "--prompt", "word", "--max-new-tokens", "4")
    adapters(c, "{path: peft}").says("adapters: 'peft'")
    for words in (("tuned", "--merge"), ("model", "--adapter", "peft")):
        c.run("export", *words, "--out", "merged")
        c.run("import", "merged", "--out", "imported")
        got = loss(c, "--checkpoint", "imported", "--set", "training_config.tokenizer_type=byte")
        if not math.isclose(got, want, rel_tol=1e-6):
            export.fail(f"the loss of the merged model is {got}, not {want}")
        c.command("rm", "-r", "merged", "imported")


@feature("lora_config in tt-train's spellings: rank, alpha, regex, is_bias_trainable, trainable_modules, also as a file")
def spellings(c):
    with_model(c)
    c.write("lora.yaml", "lora_config:\n  rank: 4\n  alpha: 8\n  regex: ['.*q_proj']\n  is_bias_trainable: true\n"
                         "  trainable_modules: [model.norm]\n")
    theirs = adapters(c, "lora.yaml")
    same_bits([theirs, adapters(c, "{r: 4, lora_alpha: 8, target_modules: [q_proj], bias: lora_only, "
                                   "modules_to_save: [model.norm]}")])


@feature("QLoRA: frozen weights in NF4 with double quantisation; one rank's bits; merged into the unquantised model")
def quantized(c):
    with_model(c)
    c.write("run.yaml", MODEL.replace("embedding_dim: 32", "embedding_dim: 128").replace("_dim: 48", "_dim: 128"))
    c.with_keys("--out", "wide", "--quiet")
    keys = {"training_config__model_path": "wide"}
    words = "{r: 4, quantize_base: nf4}"
    one = c.with_keys("--out", "tuned", lora_config=words, **keys)
    same_bits([one] + [c.with_keys(lora_config=words, **keys, **more)
                       for more in ({"mesh": mesh(dp=2, tp=2)}, {"mesh": mesh(pp=2, dp=2), "zero__stage": 3})])
    if weights(one) == weights(c.with_keys(lora_config="{r: 4}", **keys)):
        one.fail("nothing is quantised")
    c.run("export", "tuned", "--merge", "--out", "merged")
    c.with_keys(code=2, lora_config=words, transformer_config__embedding_dim=96).says(
        "cannot be quantised to NF4, whose blocks are 64 elements of a row")


@feature("Other kinds of PEFT's adapters are refused by name", state="refused")
def other_kinds(c):
    with_model(c)
    for text, said in (('{"peft_type": "IA3"}', "peft_type 'IA3' is not supported; LORA is"),
                       ('{"peft_type": "LORA", "use_qalora": true}', "'use_qalora' is not supported")):
        c.write("peft/adapter_config.json", text)
        c.run("evaluate", "--checkpoint", "model", "--adapter", "peft", "--data", "text.txt", code=2).says(said)

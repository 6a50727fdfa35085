# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: losses that balance them, capacity, and what a machine's links cost them."""
from feature import feature
from small_models import MOE_GRAPH, mesh, moe, same_bits, weights

MIXTRAL = """\
training_config: {seed: 7, batch_size: 8, max_steps: 3, data_path: text.txt, tokenizer_type: char, eval_every: 0,
                  sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config: {model_type: mixtral, vocab_size: 0, embedding_dim: 16, num_heads: 2, num_groups: 2, num_blocks: 2,
                     intermediate_dim: 12, num_experts: 8, max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 8, sequence: 2, tp: 2}}
"""


def mixtral(c, *words, code=0, **keys):
    c.write("run.yaml", MIXTRAL)
    return c.with_keys(*words, code=code, **keys)


@feature("Losses that balance experts, per sequence, step or forward pass, and a z-loss; per microbatch and expert choice "
         "are refused with the reason")
def balance(c):
    plain = mixtral(c)
    hashes = {weights(plain)}
    for loss in ("{loss: sequence, coefficient: 0.1}", "{loss: step, coefficient: 0.1}",
                 "{loss: forward, coefficient: 0.1}", "{z: 0.1}"):
        one = mixtral(c, transformer_config__balance=loss)
        same_bits([one, mixtral(c, transformer_config__balance=loss, mesh=mesh(ep=4, tp=2))])
        hashes.add(weights(one))
    if len(hashes) != 5:
        plain.fail(f"some of the losses change nothing: {hashes}")
    mixtral(c, transformer_config__balance="{loss: microbatch}", code=2).says("microbatch", "number of microbatches")
    mixtral(c, transformer_config__routing="expert_choice", code=2).says("expert_choice", "later tokens")
    accumulated = mixtral(c, transformer_config__balance="{loss: forward}",
                          training_config__gradient_accumulation_steps=2, code=2)
    accumulated.says("needs one microbatch, not 2")


@feature("Capacity: 1.25 × a balanced choice for each batch unit, 160 rows of 4 × 128 tokens, k 2, 8 experts; dropped rows "
         "are metrics")
def capacity(c):
    graph = MOE_GRAPH.replace("router: {shape: [8, 16], init: normal(0.5)}", "router: {shape: [8, 16], init: zeros}")
    moe(c, "check")
    c.write("graph.yaml", graph.replace("expert_plan(chosen, up)", "expert_plan(chosen, up, capacity=1.25)"))
    keys = dict(training_config__batch_size=4, training_config__sequence_length=128, training_config__max_steps=1,
                numerics__units={"batch": 4, "expert": 4})
    one = c.with_keys("--metrics", "capacity.jsonl", **keys)
    same_bits([one, c.with_keys(mesh=mesh(ep=4), **keys), c.with_keys(mesh=mesh(dp=2, ep=2), **keys)])
    step = [m for m in c.metrics("capacity.jsonl") if m["event"] == "step"][0]["experts"][0]
    if step["load"] != [512, 512, 0, 0, 0, 0, 0, 0] or step["dropped"] != 2 * (512 - 160):
        one.fail(f"loads {step}")
    room = c.with_keys("check", **keys)
    room.says("capacity 1.25").matches(r"none dropped +[0-9,]+ rows")


@feature("plan prices the collectives of experts by the links that they cross")
def plan_by_link(c):
    inside = mixtral(c, "plan", "--machine", "h100", mesh=mesh(ep=8))
    inside.matches(r"all_gather +ep +nvlink")
    inside.matches(r"over links: nvlink [^,\n]*$")
    across = mixtral(c, "plan", "--machine", "h100", training_config__batch_size=16, numerics__units={"batch": 16},
                     mesh=mesh(ep=8, dp=2))
    across.matches(r"all_gather +ep +ib")
    across.matches(r"over links: nvlink .*, ib ")


@feature("Recomputed blocks keep their routing: the backward pass has the rows that the forward pass chose")
def kept_routing(c):
    same_bits([mixtral(c), mixtral(c, schedule__recompute="full"),
               mixtral(c, schedule__recompute="full", mesh=mesh(ep=4, tp=2))])
    program = mixtral(c, "trace", "--emit", "schedule-ir", "--rank", "0", schedule__recompute="full")
    again = [line.split()[1] for line in program.text.splitlines() if " recompute." in line]
    if "expert_linear" not in again or {"choose_experts", "expert_plan"} & set(again):
        program.fail(f"recomputed: {sorted(set(again))}")

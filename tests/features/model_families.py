# SPDX-License-Identifier: Apache-2.0
"""Families of dense models: what each has beside Llama's block changes what is computed, on every mesh alike."""
from feature import Missing, feature
from small_models import mesh, same_bits, weights

DENSE = """\
training_config:
  {seed: 7, batch_size: 8, sequence_length: 16, max_steps: 3, data_path: text.txt, tokenizer_type: char, eval_every: 0,
   sample_tokens: 0, optimizer: {type: AdamW, lr: 0.01}}
transformer_config:
  {embedding_dim: 32, intermediate_dim: 48, num_blocks: 2, num_heads: 4, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 8, sequence: 2, tp: 2}}
"""
MESHES = [mesh(cp=2, tp=2), mesh(pp=2, dp=2, tp=2)]


def family(c, model_type, changes, **keys):
    """Equal bits on every mesh, and other ones for each of the changes: a dictionary of keys."""
    c.write("run.yaml", DENSE)
    keys = {f"transformer_config__{key}": value for key, value in dict(keys, model_type=model_type).items()}
    one = c.with_keys(**keys)
    same_bits([one, *(c.with_keys(mesh=axes, **keys) for axes in MESHES)])
    for key, value in changes.items():
        other = c.with_keys(**dict(keys, **{f"transformer_config__{key}": value}))
        if weights(other) == weights(one):
            other.fail(f"{key}: {value} changes nothing")


@feature("Gemma 2: soft caps of scores and logits, norms of 1 + w around each branch, windows by block; one rank's bits")
def gemma2(c):
    family(c, "gemma2", dict(attention_soft_cap=0.0, logits_soft_cap=0.0, sliding_window=0, full_attention_blocks=[0],
                             query_pre_attn_scalar=30), num_groups=2, sliding_window=5, attention_soft_cap=0.01)


@feature("Gemma 3: norms of queries and keys, rotary wavelengths of their own in blocks with a window; one rank's bits")
def gemma3(c):
    family(c, "gemma3", dict(use_qk_norm=False, local_theta=20.0, rope_scaling__linear_factor=3.0),
           num_groups=2, sliding_window=5, full_attention_blocks=[1], local_theta=100.0)


@feature("Phi-3 and Phi-4: LongRoPE by the length of a run's sequences, a part of each head rotary; one rank's bits")
def phi3(c):
    scaling = dict(short_factors=[1, 1, 1], long_factors=[1, 2, 8.5], original_context_length=8)
    family(c, "phi3", dict(rope_scaling__original_context_length=16, rope_scaling__attention_factor=1.3,
                           rope_scaling__long_factors=[1, 2, 9]), num_groups=2, rotary_dim=6, rope_scaling=scaling)
    wrong = dict(scaling, long_factors=[1, 2])
    result = c.with_keys("check", code=2, transformer_config__model_type="phi3", transformer_config__rope_scaling=wrong)
    result.says("LongRoPE needs as many short_factors as long_factors")


@feature("Qwen2 and SmolLM3: Llama with biases of q, k and v, windows or no positions in some blocks, YaRN; one rank's bits")
def of_llama(c):
    yarn = dict(yarn_factor=4.0, original_context_length=256)
    family(c, "qwen2", dict(attention_bias=False, attention_output_bias=True, sliding_window=0,
                            full_attention_blocks=[1], rope_scaling__yarn_factor=2.0),
           num_groups=2, sliding_window=5, full_attention_blocks=[0], rope_scaling=yarn)
    family(c, "smollm3", dict(no_rope_blocks=[], rope_scaling__linear_factor=2.0), num_groups=2, no_rope_blocks=[1])


@feature("Granite: factors of the embedding, scores, residual branches and logits; one rank's bits")
def granite(c):
    family(c, "granite", dict(embedding_multiplier=2.0, attention_multiplier=1.0, residual_multiplier=0.5,
                              logits_scaling=3.0), num_groups=2)


@feature("OLMo 2, StarCoder2, GPT-NeoX: norms behind each branch, layer norms with biases, parallel residuals; one rank's bits")
def others(c):
    family(c, "olmo2", dict(attention_bias=True), num_groups=2)
    family(c, "starcoder2", dict(bias=False, sliding_window=0), num_groups=2, sliding_window=5)
    family(c, "gpt_neox", dict(parallel_residual=False, activation="gelu", rotary_dim=4), rotary_dim=2)


@feature("A model with gated delta nets (Qwen3.5, Qwen3-Next) is refused by name")
def delta_nets(c):
    c.write("run.yaml", DENSE)
    for model_type in ("qwen3_next", "qwen3_5"):
        result = c.with_keys("check", code=2, transformer_config__model_type=model_type)
        if "gated delta nets" not in result.text + result.err:
            raise Missing(f"{model_type} is not refused by name")

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trace --save` of a model that transformers computed, and `compare` with what it computed: logits, loss, gradients and
# parameters are within the bound of rounding errors, on one rank and on meshes, by Hugging Face's names, also where a
# tensor is transposed, a part of another one or one of several. What is computed otherwise is beyond it.
# usage: test_trace.sh PROGRAM
set -uo pipefail
files=$PWD/tests/reference/reference_files.py
graphs=$PWD/configs/graphs
. tests/commands.sh "$1"

made() { # WORDS... of reference_files.py
  checks=$((checks + 1))
  python3 "$files" "$@" > "$said" 2>&1 || complain "reference_files.py $1 $2"
}
# begin NAME [CHANGE]: the imported model, the batch, and a run of it
begin() {
  name=$1
  rm -rf hf model tokens.bin
  made model "$name" hf "${2:-}"
  made tokens "$name" tokens.bin
  ends 0 import hf --out model --quiet
  cat > run.yaml <<RUN
training_config: {seed: 1, data_path: tokens.bin, data_format: nanogpt_u16, sample_stride: 17, batch_size: 4,
  sequence_length: 16, max_steps: 1, eval_every: 0, sample_tokens: 0, validation_fraction: 0, model_path: model,
  optimizer: {type: AdamW, lr: 0.001}}
$(sed -n '/^transformer_config/,$p' model/config.yaml)
numerics: {threads: 2, units: {batch: 4, tp: 2, sequence: 2}}
RUN
}
# computed REGEX WORDS...: OUR numbers of the run, and theirs in the same order of samples
computed() {
  local args=() set
  for set in "${@:2}"; do args+=(--set "$set"); done
  rm -rf ours
  ends 0 trace --config run.yaml --save ours --tensors "^tokens\$|$1" "${args[@]}"
  made tensors "$name" ours/step-00000001.safetensors theirs.safetensors "${change:-}"
}
compares() { ends "$1" compare ours/step-00000001.safetensors theirs.safetensors; }
# within N: so many tensors are compared, and all are within the bound
within() {
  compares 0
  says "tensors: $1 compared"
  says "; 1 only in the first, 0 only in the second" # the tokens
  says "verdict: within the bound of rounding errors"
  grep -q ' of its size, within the bound of [0-9.]*e-0[5-9]; element' "$said" || complain "$name: the bound is not that of f32"
}
results='^logits$|^loss$|^grad\.'
all="$results|^(wte|lm_head|ln_f|block\.[01]\.(ln_.|(attn|mlp|moe)\.[a-z_]+))\$"

declare -A tensors=([llama3]=44 [llama_tied]=42 [qwen3]=50 [mixtral]=46)
for name in llama3 llama_tied qwen3 mixtral; do
  begin $name
  for mesh in '{axes: [dp], shape: [1]}' '{axes: [dp, tp], shape: [2, 2]}'; do
    computed "$all" "mesh=$mesh"
    within "${tensors[$name]}"
  done
done
computed "$results" 'mesh={axes: [ep, cp], shape: [2, 2]}' # of mixtral
compares 0

# Six targets of GPT-2's batch are -100, at places that no file of tokens has: its loss and gradients are those of fewer
# targets, and left out. Its parameters are transposed there, and three of ours are parts of one.
begin gpt2
for mesh in '{axes: [dp], shape: [1]}' '{axes: [dp, tp], shape: [2, 2]}'; do
  computed '^logits$|^wte$|^wpe$|^ln_f|^block\.[01]\.(ln_.|attn|mlp)\.[a-z_]*$' "mesh=$mesh"
  compares 0
  says "logits: "
  says "within the bound"
  says "tensors: 37 compared, 36 with the same bits"
  says "verdict: within the bound of rounding errors"
done
change='change("transformer.h.1.attn.c_attn.weight", lambda x: x[:40] + [x[40] + 1e-6] + x[41:])' # the key of input 0
computed '^block.1.attn.w.$' # stored numbers, which nothing rounds
compares 1
says "block.1.attn.wk: 1 of 1,024 elements, by at most "
says "element 256 is "
change=

# ---- what is beyond ----
# beyond WHAT NAME WORDS...: of a run with other settings
beyond() {
  computed "$results" "${@:3}"
  compares 1
  says "beyond the bound of rounding errors"
  grep -q "^logits: .*beyond\|^grad.*beyond" "$said" || complain "$1: neither logits nor gradients are beyond"
}
begin llama3
beyond eps llama3 transformer_config.norm_eps=2e-5
beyond theta llama3 transformer_config.theta=400000
beyond scaling llama3 transformer_config.rope_scaling.scaling_factor=7.5
sed 's/- x: add(x, dropout(o, p=dropout_prob))/- x: dropout(o, p=dropout_prob)/' "$graphs/llama.yaml" > residual.yaml
sed 's/cross_entropy(logits, targets/cross_entropy(logits, tokens/' "$graphs/llama.yaml" > shifted.yaml
sed 's/attention(q, k, v, head_dim=head_dim,/attention(q, k, v, head_dim=head_dim, causal=0,/' "$graphs/llama.yaml" > causal.yaml
for graph in residual shifted causal; do
  checks=$((checks + 1))
  cmp -s $graph.yaml "$graphs/llama.yaml" && complain "the graph is unchanged: $graph"
  cp run.yaml kept.yaml
  sed -i "s/  model_type: llama/  graph: $graph.yaml/" run.yaml
  beyond $graph llama3
  mv kept.yaml run.yaml
done
begin llama3 'change("model.layers.0.self_attn.q_proj.weight", lambda x: x[256:512] + x[:256] + x[512:])'
beyond "swapped heads" llama3
begin llama3 'change("model.layers.1.mlp.up_proj.weight", lambda x: [value * 1.0001 for value in x])'
beyond "one weight" llama3
begin qwen3
beyond eps qwen3 transformer_config.norm_eps=1e-5
# in half precision the bound is wider, and still finds these
computed "$results" training_config.precision=bf16
compares 0
says "verdict: within the bound of rounding errors"
beyond eps qwen3 training_config.precision=bf16 transformer_config.norm_eps=0.1
beyond theta qwen3 training_config.precision=bf16 transformer_config.theta=100
# numbers of PyTorch's that are a little wrong
perturbed() { # TENSOR CHANGE
  change="change('$1', $2)"
  computed "$results"
  compares 1
  says "verdict: 1 beyond the bound of rounding errors"
  change=
}
begin llama_tied
perturbed logits 'lambda x: [value * 1.00001 for value in x]'
perturbed grad.model.embed_tokens.weight 'lambda x: [value * 1.0001 for value in x]'
perturbed grad.model.layers.1.self_attn.v_proj.weight 'lambda x: [x[0] + 1e-4] + x[1:]'
perturbed grad.model.norm.weight 'lambda x: x[1:] + x[:1]'
perturbed loss 'lambda x: [x[0] * 1.001]'
perturbed logits 'lambda x: [float("nan")] + x[1:]'

end_of reference.trace 120

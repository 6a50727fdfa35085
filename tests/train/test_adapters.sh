#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs that train adapters: their checkpoints have no frozen parameters, which come from training_config.model_path at
# every start; a resume on another mesh gives the bits of the run that was not stopped, and other weights are refused.
# usage: test_adapters.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > model.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 4,
  eval_every: 0, sample_tokens: 0, optimizer: {lr: 0.01}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 32, intermediate_dim: 64, num_blocks: 2,
  num_heads: 4, num_groups: 2, max_sequence_length: 16}
numerics: {threads: 1, units: {batch: 4, tp: 2}}
RUN
cp model.yaml adapters.yaml
sed -i 's/max_steps: 4/max_steps: 8, model_save_interval: 4, model_path: base/' adapters.yaml
echo 'lora_config: {r: 4, lora_dropout: 0.1, target_modules: [q_proj, v_proj, down_proj], modules_to_save: [model.norm]}' >> adapters.yaml
weights() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl"; }
same_weights() {
  checks=$((checks + 1))
  [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || complain "the weights of $1 and $2 differ"
}
# the loss of an evaluation that says so
loss() { sed -n 's/^loss: //p' "$said"; }

ends 0 --config model.yaml --out base
ends 0 --config model.yaml --set training_config.seed=2 --out other
ends 0 --config adapters.yaml --out run
says "weights: 'base"

# Trained parameters and their state alone are written.
ends 0 checkpoint show run
says 'tensors: 41'
says 'block.0.attn.wq.lora_a.m f32 (4, 32)'
says '  ln_f f32 (32)'
grep -q 'attn.wq f32\|wte\|attn.wk' "$said" && complain 'a frozen parameter is in the checkpoint'
ends 0 checkpoint verify run

# A resume is the same run, on another mesh, too.
ends 0 --config adapters.yaml --out resumed --resume run/checkpoints/step-00000004
same_weights run resumed
ends 0 --config adapters.yaml --out meshed --resume run/checkpoints/step-00000004 \
  --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --set zero.stage=3
same_weights run meshed

# The frozen parameters are those that the adapters were trained beside.
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set training_config.model_path=other
says "the adapters of 'run/checkpoints/step-00000004' were trained with other weights than those of 'other'"
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set 'training_config.model_path=""'
says "other weights than those of 'the seed's random weights'"
[ ! -e wrong ] || complain 'a refused run has left something'
ends 2 --config adapters.yaml --out wrong --set training_config.model_path=run
says "'run/checkpoints/step-00000008' has what a run with adapters has trained, not a model"
ends 2 --config model.yaml --out wrong --set training_config.model_path=run
says "has what a run with adapters has trained, not a model"
ends 2 --config adapters.yaml --out wrong --resume run/checkpoints/step-00000004 --set lora_config.r=8
says "'lora_config.r' is 8 in this run, and 4 in"

# Evaluation and generation find them by the checkpoint's configuration.
ends 0 evaluate --checkpoint run --data text.txt
adapted=$(loss)
ends 0 evaluate --checkpoint base --data text.txt
[ -n "$adapted" ] && [ "$adapted" != "$(loss)" ] || complain "the loss with adapters is '$adapted', and without $(loss)"
ends 0 evaluate --config adapters.yaml --data text.txt --set training_config.checkpoint_dir=run/checkpoints
[ "$adapted" = "$(loss)" ] || complain "the loss by the configuration is $(loss), not $adapted"
ends 0 evaluate --checkpoint run --data text.txt --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
[ "$adapted" = "$(loss)" ] || complain "the loss on a mesh is $(loss), not $adapted"
ends 2 evaluate --checkpoint run --data text.txt --set training_config.model_path=other
says "were trained with other weights than those of 'other/checkpoints/step-00000004'"
ends 0 generate --checkpoint run --prompt 'word 1' --max-new-tokens 4

# Random weights are those of the seed, which need no file.
ends 0 --config adapters.yaml --set 'training_config.model_path=""' --out random
says 'the adapters are trained on random weights: training_config.model_path names no model'
ends 0 --config adapters.yaml --set 'training_config.model_path=""' --out random_resumed --resume random/checkpoints/step-00000004
same_weights random random_resumed
ends 0 evaluate --checkpoint random --data text.txt

# PEFT's folder of a run has what the run has trained, and is used beside the model.
ends 0 export run --out peft
says "peft: the adapters of 'run/checkpoints/step-00000008', in PEFT's format"
grep -q '"target_modules": \[$' peft/adapter_config.json && grep -q '^    "down_proj"$' peft/adapter_config.json ||
  complain 'adapter_config.json has other target_modules'
grep -q '^    "model.norm"$' peft/adapter_config.json || complain 'adapter_config.json has other modules_to_save'
ends 0 evaluate --checkpoint base --adapter peft --data text.txt
[ "$adapted" = "$(loss)" ] || complain "the loss of PEFT's folder is $(loss), not $adapted"
ends 0 generate --checkpoint base --adapter peft --prompt 'word 1' --max-new-tokens 4
ends 2 evaluate --checkpoint run --adapter peft --data text.txt
says "'run/checkpoints/step-00000008' has what a run with adapters has trained, not a model"

# A vocabulary that is counted in the data has its size in the model's embedding.
for c in model adapters; do sed 's/tokenizer_type: byte/tokenizer_type: char/; s/vocab_size: 256/vocab_size: 0/' $c.yaml > counted_$c.yaml; done
ends 0 --config counted_model.yaml --out counted
ends 0 --config counted_adapters.yaml --set training_config.model_path=counted --out counted_run
ends 0 export counted_run --out counted_peft
ends 0 evaluate --checkpoint counted_run --data text.txt
counted=$(loss)
ends 0 evaluate --checkpoint counted --adapter counted_peft --data text.txt
[ -n "$counted" ] && [ "$counted" = "$(loss)" ] || complain "the loss of PEFT's folder is $(loss), not $counted"

# Merged, the model has the same numbers but for rounding.
close() {
  awk -v a="$adapted" -v b="$(loss)" 'BEGIN { d = a - b; exit !(d < 2e-6 && d > -2e-6) }' ||
    complain "the loss of a merged model is $(loss), not $adapted"
}
for how in 'run --merge' 'base --adapter peft'; do
  rm -rf merged imported
  ends 0 export $how --out merged
  ends 0 import merged --out imported
  ends 0 evaluate --checkpoint imported --data text.txt --set training_config.tokenizer_type=byte
  close
done
ends 0 export run --merge --out half --dtype bf16
ends 2 export base --merge --out wrong
says "--merge: 'base/checkpoints/step-00000004' has no adapters"
ends 2 export run --merge --adapter peft --out wrong
says '--adapter merges the adapters of a folder, --merge those of a run: use one of the two'
ends 2 export run --dtype bf16 --out wrong
says '--dtype goes with a model: adapters are exported in f32'
ends 2 export random --merge --out wrong
says "the adapters of 'random/checkpoints/step-00000008' were trained on random weights, which no file has"

# A run begins with PEFT's adapters, and with what their file says.
grep -v '^lora_config' adapters.yaml > begun.yaml
echo 'lora_config: {path: peft}' >> begun.yaml
ends 0 --config begun.yaml --out begun
says "adapters: 'peft'"
ends 0 check --config begun.yaml
says 'trained: 1,696 parameters'
ends 0 checkpoint show begun
says 'lora_config.r: 4'
says 'initial_adapter: '
ends 0 --config begun.yaml --out begun_resumed --resume begun/checkpoints/step-00000004
same_weights begun begun_resumed
ends 0 --config begun.yaml --out begun_meshed --set 'mesh={axes: [pp, tp], shape: [2, 2]}'
same_weights begun begun_meshed
sed 's/path: peft/path: peft, r: 8, lora_dropout: 0.5, bias: all, target_modules: [q_proj]/' begun.yaml > other.yaml
ends 2 --config other.yaml --out wrong
says "'r' is another one in 'peft/adapter_config.json'"
says "'bias' is another one in 'peft/adapter_config.json'"
says "'target_modules' is another one in 'peft/adapter_config.json'"
ends 2 --config begun.yaml --out wrong --set lora_config.path=nowhere
says "cannot read 'nowhere/adapter_model.safetensors'"

# Some modules have another rank or lora_alpha.
sed "s/{r: 4,.*/{r: 4, target_modules: [q_proj, v_proj, block.0.mlp.w_up], rank_pattern: {'layers.1.*': 2, v_proj: 5}, \
alpha_pattern: {'(q|v)_proj': 6, block.0.mlp.w_up: 3}}/" adapters.yaml > patterns.yaml
ends 0 --config patterns.yaml --out patterns
ends 0 checkpoint show patterns
says 'block.0.attn.wq.lora_a f32 (4, 32)'
says 'block.1.attn.wq.lora_a f32 (2, 32)'
says 'block.1.attn.wv.lora_a f32 (2, 32)'
says 'block.0.attn.wv.lora_b f32 (16, 5)'
ends 0 --config patterns.yaml --out patterns_meshed --set 'mesh={axes: [pp, tp], shape: [2, 2]}'
same_weights patterns patterns_meshed
ends 2 --config patterns.yaml --out wrong --resume patterns --set 'lora_config.alpha_pattern={q_proj: 6}'
says "'lora_config.alpha_pattern' is {q_proj: 6.0} in this run, and "
ends 0 evaluate --checkpoint patterns --data text.txt
adapted=$(loss)
ends 0 export patterns --out patterns_peft
tr -d ' \n' < patterns_peft/adapter_config.json > one_line
grep -q '"alpha_pattern":{"q_proj":6,"v_proj":6,"up_proj":3}' one_line || complain 'the file has another alpha_pattern'
ends 0 evaluate --checkpoint base --adapter patterns_peft --data text.txt
[ "$adapted" = "$(loss)" ] || complain "the loss of PEFT's folder with patterns is $(loss), not $adapted"
ends 2 --config patterns.yaml --out wrong --set 'lora_config.rank_pattern={o_proj: 2}'
says "rank_pattern: no module with adapters is called 'o_proj'"
ends 2 --config patterns.yaml --out wrong --set 'lora_config.rank_pattern={q_proj: 2.5}'
says "'rank_pattern.q_proj' must be a whole number, found the number 2.5"
ends 2 --config patterns.yaml --out wrong --set 'lora_config.alpha_pattern={q_proj: 0}'
says "'alpha_pattern.q_proj' must be above 0, found the integer 0"

# DoRA's magnitudes begin as the norms of the weights' rows, so that the model begins as it was.
sed 's/{r: 4,/{r: 4, use_dora: true,/' adapters.yaml > dora.yaml
ends 0 --config dora.yaml --out dora
ends 0 --config dora.yaml --out dora_meshed --resume dora/checkpoints/step-00000004 \
  --set 'mesh={axes: [pp, tp], shape: [2, 2]}'
same_weights dora dora_meshed
ends 0 evaluate --checkpoint dora --data text.txt
adapted=$(loss)
ends 0 export dora --out dora_peft
ends 0 evaluate --checkpoint base --adapter dora_peft --data text.txt
[ "$adapted" = "$(loss)" ] || complain "the loss of PEFT's folder with DoRA is $(loss), not $adapted"
rm -rf merged imported
ends 0 export dora --merge --out merged
ends 0 import merged --out imported
ends 0 evaluate --checkpoint imported --data text.txt --set training_config.tokenizer_type=byte
close
# In half precision its layers read working copies. Attention in bf16 has other bits at each level.
for precision in f32 bf16; do
  of=(--set "training_config.precision=$precision" --set numerics.isa=x86-64)
  ends 0 --config dora.yaml --out "still_$precision" --set training_config.optimizer.lr=1e-30 \
    --set training_config.max_steps=1 "${of[@]}"
  ends 0 evaluate --checkpoint base --data text.txt "${of[@]}"
  adapted=$(loss)
  ends 0 evaluate --checkpoint "still_$precision" --data text.txt
  close
done

# in every precision the magnitudes begin as the norms of the weights' rows, as they are stored
for precision in f32 bf16 fp16; do
  ends 0 trace --config dora.yaml --save begin.$precision --tensors '^block.0.attn.wq(.lora_m)?$' \
    --set training_config.precision=$precision
  checks=$((checks + 1))
  python3 - begin.$precision/step-00000001.safetensors > "$said" 2>&1 <<'PYTHON' || complain "$precision: other magnitudes"
import json, math, struct, sys
data = open(sys.argv[1], "rb").read()
length = struct.unpack_from("<Q", data)[0]
header = json.loads(data[8:8 + length])
def numbers(name):
    begin, end = header[name]["data_offsets"]
    return struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)
weight, magnitudes = numbers("block.0.attn.wq"), numbers("block.0.attn.wq.lora_m")
assert len(magnitudes) == 32 and len(weight) == 32 * 32
for i, m in enumerate(magnitudes):
    norm = math.sqrt(sum(x * x for x in weight[32 * i:32 * i + 32]))
    assert abs(m - norm) < 1e-5 * norm, (i, m, norm)
PYTHON
done
ends 0 generate --checkpoint dora --prompt 'word 1' --max-new-tokens 4
ends 0 checkpoint reshard dora --shards 3 --out shards
ends 0 checkpoint merge shards --out whole
ends 0 checkpoint diff dora whole
says 'no difference'

# Products of frozen weights have one gradient, so that the model is less work.
ends 0 plan --config adapters.yaml
factor=$(sed -n 's/^  of the model: \([0-9.]*\) N tokens.*/\1/p' "$said")
awk -v f="$factor" 'BEGIN { exit !(f > 4 && f < 5) }' || complain "the model is $factor N a token"

# The rows behind a vocabulary's last token stay what they are, also of an output layer with adapters.
sed 's/vocab_size: 256/vocab_size: 257/; s/{r: 4,.*/{r: 4, use_dora: true, target_modules: [lm_head]}/; s/model_path: base/eval_every: 2/' \
  adapters.yaml | sed 's/  eval_every: 0, /  /' > head.yaml
ends 0 --config head.yaml --out head
ends 0 --config head.yaml --out head_meshed --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
same_weights head head_meshed

# Counts that balance experts are in the run's checkpoint alone: neither the model nor PEFT's folder has them.
sed 's/model_type: llama/model_type: mixtral, num_experts: 4, num_experts_per_token: 2/' model.yaml > experts.yaml
sed 's/model_type: llama/model_type: mixtral, num_experts: 4, num_experts_per_token: 2, balance: {loss: step}/; s/base/experts/; s/tp: 2}/tp: 2, expert: 2}/
  s/^lora_config.*/lora_config: {r: 4, target_modules: [q_proj], modules_to_save: [model.norm]}/' adapters.yaml > balanced.yaml
ends 0 --config experts.yaml --out experts
ends 0 --config balanced.yaml --out balanced
says "the checkpoint has no tensor 'block.1.moe.load': it begins at its initial value"
ends 0 --config balanced.yaml --out balanced_resumed --resume balanced/checkpoints/step-00000004 \
  --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --set zero.stage=3
grep -q 'it begins at its initial value' "$said" && complain 'counts of the checkpoint begin anew'
same_weights balanced balanced_resumed
ends 0 evaluate --checkpoint balanced --data text.txt
adapted=$(loss)
ends 0 generate --checkpoint balanced --prompt 'word 1' --max-new-tokens 4
ends 0 export balanced --out balanced_peft
ends 0 evaluate --checkpoint experts --adapter balanced_peft --data text.txt
[ -n "$adapted" ] && [ "$adapted" = "$(loss)" ] ||
  complain "the loss of PEFT's folder without counts is $(loss), not $adapted"
rm -rf merged imported
ends 0 export balanced --merge --out merged
ends 0 import merged --out imported
ends 0 evaluate --checkpoint imported --data text.txt --set training_config.tokenizer_type=byte
close
sed 's/^lora_config.*/lora_config: {path: balanced_peft}/' balanced.yaml > balanced_again.yaml
ends 0 --config balanced_again.yaml --out balanced_again --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --set zero.stage=3

# Experts that are trained whole are merged; a folder of PEFT's does not have them.
ends 0 --config balanced.yaml --out whole_experts --set 'lora_config.modules_to_save=[experts]'
ends 2 export whole_experts --out wrong
says "'model.layers.0.block_sparse_moe.experts.{expert}.w1.weight' is weights of experts, which PEFT's folders do not"
says '`export --merge` writes the model that they are a part of'
rm -rf merged imported
ends 0 evaluate --checkpoint whole_experts --data text.txt
adapted=$(loss)
ends 0 export whole_experts --merge --out merged
ends 0 import merged --out imported
ends 0 evaluate --checkpoint imported --data text.txt --set training_config.tokenizer_type=byte
close
rm -rf edited
cp -r balanced_peft edited
sed -i 's/"norm"/"experts"/; s/"model.norm"/"experts"/' edited/adapter_config.json
ends 2 evaluate --checkpoint experts --adapter edited --data text.txt
says "'model.layers.0.block_sparse_moe.experts.{expert}.w1.weight' is weights of experts, which PEFT's folders do not"

# Modules have the names of transformers 5, in which Mixtral's router is mlp.gate, or those of the model's files.
ends 0 --config balanced.yaml --out router --set 'lora_config.modules_to_save=[mlp.gate]'
ends 0 --config balanced.yaml --out router_by_file --set 'lora_config.modules_to_save=[layers.0.block_sparse_moe.gate, layers.1.mlp.gate]'
same_weights router router_by_file
ends 0 evaluate --checkpoint router --data text.txt
adapted=$(loss)
ends 0 export router --out router_peft
grep -q 'base_model.model.model.layers.1.mlp.gate.weight' router_peft/adapter_model.safetensors ||
  complain 'the router in the folder has another name'
rm -rf edited
cp -r router_peft edited
python3 - edited/adapter_model.safetensors << 'RENAME'
import sys
data = open(sys.argv[1], "rb").read()
end = 8 + int.from_bytes(data[:8], "little")
header = data[8:end].replace(b".mlp.gate.", b".block_sparse_moe.gate.")
open(sys.argv[1], "wb").write(len(header).to_bytes(8, "little") + header + data[end:])
RENAME
for folder in router_peft edited; do
  ends 0 evaluate --checkpoint experts --adapter $folder --data text.txt
  [ "$adapted" = "$(loss)" ] || complain "the loss of $folder is $(loss), not $adapted"
done

# A name is of whole parts of the graph's names: gate is the router, and not moe.w_gate.
ends 0 --config balanced.yaml --out gate --set 'lora_config.modules_to_save=[gate]'
same_weights gate router
ends 0 checkpoint show gate
says 'block.1.moe.router f32 (4, 32)'
grep -q 'moe.w_gate' "$said" && complain 'experts are trained with the router'

# PEFT's folder names modules, and not their buffers; what is no whole module is merged.
cat > experts.yaml << 'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 16, max_steps: 2,
  eval_every: 0, sample_tokens: 0, optimizer: {lr: 0.01}}
transformer_config: {model_type: deepseek_v3, vocab_size: 256, embedding_dim: 32, intermediate_dim: 32, num_blocks: 2,
  num_heads: 4, num_experts: 4, num_experts_per_token: 2, num_shared_experts: 1, first_k_dense_replace: 1,
  dense_intermediate_dim: 64, num_expert_groups: 2, num_kept_groups: 1, q_lora_rank: 16, kv_lora_rank: 16,
  qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8, max_sequence_length: 16, balance: {bias: {rate: 0.01}}}
numerics: {threads: 1}
RUN
ends 0 --config experts.yaml --out biased
sed 's/max_steps: 2/max_steps: 4, model_path: biased/' experts.yaml > router.yaml
echo 'lora_config: {r: 2, target_modules: [o_proj], modules_to_save: [mlp.gate, lm_head, model.norm]}' >> router.yaml
ends 0 --config router.yaml --out biased_router
ends 0 evaluate --checkpoint biased_router --data text.txt
adapted=$(loss)
ends 0 export biased_router --out biased_peft
tr -d ' \n' < biased_peft/adapter_config.json > one_line
grep -qF '"modules_to_save":["gate","model.norm","lm_head"]' one_line ||
  complain "adapter_config.json has other modules_to_save: $(cat one_line)"
ends 0 evaluate --checkpoint biased --adapter biased_peft --data text.txt
[ -n "$adapted" ] && [ "$adapted" = "$(loss)" ] || complain "the loss of a folder with a bias is $(loss), not $adapted"
ends 0 --config router.yaml --out bias_alone --set 'lora_config.modules_to_save=[e_score_correction_bias]'
ends 2 export bias_alone --out wrong
says "'block.1.moe.bias' is trained whole without the rest of 'model.layers.1.mlp.gate', which PEFT's folders cannot"
ends 0 export bias_alone --merge --out merged_bias

# What is not LoRA, or another LoRA, is refused by name.
refused() { # EDIT WORDS
  rm -rf edited
  cp -r peft edited
  sed -i "$1" edited/adapter_config.json
  ends 2 evaluate --checkpoint base --adapter edited --data text.txt
  says "$2"
}
refused 's/"LORA"/"IA3"/' "'edited/adapter_config.json': peft_type 'IA3' is not supported; LORA is"
refused 's/"r": 4/"r": 4, "layers_to_transform": [0]/' \
  "'edited/adapter_config.json': 'layers_to_transform' is not supported"
refused 's/"rank_pattern": {}/"rank_pattern": {"q_proj": 2}/' "lora_A.weight' has the shape (4, 32), not (2, 32)"
refused 's/"rank_pattern": {}/"rank_pattern": {"q_proj": 2.5}/' "rank_pattern: 2.5 of 'q_proj' is no rank"
refused 's/"rank_pattern": {}/"rank_pattern": 2/' "'rank_pattern' should be a map of names to numbers"
refused 's/"alpha_pattern": {}/"alpha_pattern": {"q_proj": 0}/' "alpha_pattern: 0 of 'q_proj' is out of range"
refused 's/"init_lora_weights": true/"init_lora_weights": "pissa_niter_4"/' \
  "adapters of init_lora_weights 'pissa_niter_4' go with weights that it has changed"
refused 's/"r": 4/"r": 3/' "tensor 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' has the shape (4, 32), not (3, 32)"
refused 's/"down_proj"/"up_proj"/' "tensor 'base_model.model.model.layers.0.mlp.up_proj.lora_A.weight' of shape (4, 32) is missing"
refused 's/"q_proj",//' "tensor 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' has no place in the model's adapters"
refused 's/"r": 4/"r": "four"/' "key 'r' should be a whole number, not a string"

# PEFT trains a copy of an embedding whose weight the output layer has, too.
sed -i 's/model_type: llama/model_type: llama, weight_tying: enabled/' model.yaml
ends 0 --config model.yaml --out tied
rm -rf edited
cp -r peft edited
sed -i 's/"model.norm"/"embed_tokens"/' edited/adapter_config.json
ends 2 evaluate --checkpoint tied --adapter edited --data text.txt
says "'model.embed_tokens' is the output layer's weight and the embedding's, and cannot be in modules_to_save"
[ ! -e wrong ] || complain 'a refused command has left something'

end_of train.adapters 135

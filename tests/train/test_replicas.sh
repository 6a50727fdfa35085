#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# validate: replicas in one process: a bit that is inverted in one rank's copy of a tensor (tests/flip.c) is named with the
# step, the tensor and the rank; a run that stops keeps no checkpoint of that state; one that resumes ends with the bits of
# a run without the fault.
# usage: test_replicas.sh PROGRAM PROGRAM-flips
set -uo pipefail
flips=$(realpath "$2")
. tests/commands.sh "$1"

write_text train.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: train.txt, tokenizer_type: byte, batch_size: 8, sequence_length: 16, max_steps: 24,
  eval_every: 0, sample_tokens: 0, model_save_interval: 6, use_clip_grad_norm: true,
  optimizer: {type: AdamW, lr: 0.01, weight_decay: 0.1}}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 16, num_heads: 4, num_groups: 2, num_blocks: 2,
  max_sequence_length: 16, weight_tying: enabled}
checkpoint: {keep_last: 0}
mesh: {axes: [dp], shape: [4]}
validate: replicas
validate_every: 4
numerics: {threads: 2, units: {batch: 4, tp: 2, sequence: 4}}
RUN
on() { # on AXES SIZES: a mesh, as an option
  echo "mesh={axes: [$1], shape: [$2]}"
}
config=run.yaml
# flipped CODE FLIPS WORDS...: the program with these faults, each of which happens
flipped() {
  local program=$flips want=$1 flip step rank tensor bit
  export TESSERA_FLIP=$2
  shift 2
  [[ " $* " = *" --resume "* ]] || set -- "$@" --overwrite
  if [ "$1" = verify ]; then
    set -- "${@:1:$#-1}"
  else
    set -- --config "$config" "$@"
  fi
  ends "$want" "$@"
  for flip in $TESSERA_FLIP; do
    IFS=: read -r step rank tensor bit _ <<< "$flip"
    says "flipped bit $bit of '$tensor' on rank $rank after step $step"
  done
  unset TESSERA_FLIP
}
chain_of() { tail -n 1 "$1/run.lock" | sed -n 's/.*"chain":"\([0-9a-f]*\)"}$/\1/p'; }
sha_of() { tail -n 1 "$1/metrics.jsonl" | sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p'; }
steps_of() { grep '"event":"step"' "$1/metrics.jsonl" | sed 's/,"tokens_per_s.*//'; }
checkpoints_of() { ls "$1/checkpoints" | sed 's/step-0*//' | xargs; }
# is WHAT GOT WANT
is() {
  checks=$((checks + 1))
  [ "$2" = "$3" ] || complain "$1: '$2', not '$3'"
}
# same FOLDER LIKE: as the run without a fault
same() {
  is "$1: the chain" "$(chain_of "$1")" "$(chain_of "$2")"
  is "$1: the weights" "$(sha_of "$1")" "$(sha_of "$2")"
  is "$1: the steps" "$(steps_of "$1" | md5sum)" "$(steps_of "$2" | md5sum)"
  [ "$(sha_of "$1" | wc -c)" = 65 ] || complain "$1 has no weights"
}
warnings() { grep -c '^warning: the replicas of ' "$said"; }

# ---- no fault ----
ends 0 --config run.yaml --out good
says "replicas: equal at 8 checks" # of steps 4, 8, 12, 16, 20, 24, and of checkpoints 6 and 18
is "the steps" "$(steps_of good | wc -l)" 24
ends 0 --config run.yaml --out each --set validate_every=1
says "replicas: equal at 24 checks"
same each good
ends 0 --config run.yaml --out never --set validate=none --set validate_every=1
! grep -q "^replicas:" "$said" || complain "compares, and should not"
same never good
ends 0 --config run.yaml --overwrite --set "$(on tp 1)"
says "warning: 'validate' has no effect"
says "replicas: none to compare"
ends 0 --config run.yaml --overwrite --set zero.stage=1
says "replicas: none to compare, no two ranks hold the same part"

# ---- stop: the tensors, at the next check ----
while read -r name flip step rest; do
  flipped 1 "$flip" --out "stop.$name"
  says "error: the replicas of '$rest' differ after step $step: rank 2 (on "
  says ", cpu) has other bits than the other 3 ranks that hold the same part"
  is "stop.$name: the checkpoints" "$(checkpoints_of "stop.$name")" 6
  is "stop.$name: the last step of metrics" "$(steps_of "stop.$name" | wc -l)" 11
done <<'FAULTS'
weight 9:2:block.1.attn.wq:12:1 12 block.1.attn.wq
m 9:2:block.1.attn.wq.m:3:1 12 block.1.attn.wq
v 11:2:block.0.ln_1.v:62:1 12 block.0.ln_1
state 12:2:ln_f.m:31:1 12 ln_f.m
both 12:2:ln_f.v:31:1 12 ln_f.v
FAULTS
says "error: the replicas of 'ln_f.v' differ"
flipped 1 "9:2:block.1.attn.wq.m:3:1"
says "= so do those of 'block.1.attn.wq.m' of rank 2 (on "
# it can be continued
ends 0 --config run.yaml --out stop.m --resume
same stop.m good
# the state is not kept at the end either
flipped 1 "24:1:wte:0:1" --out last --set validate=none
says "error: the replicas of 'wte' differ after step 24: rank 1 (on "
is "last: the checkpoints" "$(checkpoints_of last)" "6 12 18"
flipped 1 "23:1:wte:0:1" --out last23 --set validate_every=100 --set training_config.model_save_interval=100
says "after step 24: rank 1 "
[ ! -e last23/checkpoints ] || [ -z "$(checkpoints_of last23)" ] || complain "a checkpoint of a bad state"

# ---- before a checkpoint that somebody asks for, and of the best loss ----
export TESSERA_AFTER='10:kill -USR1 $PPID'
flipped 1 "9:1:wte:0:1" --out wanted --set validate_every=100
says "differ after step 10: rank 1 "
is "wanted: the checkpoints" "$(checkpoints_of wanted)" 6
flipped 0 "9:1:wte:0:1" --out wanted.resume --set validate_every=100 --set validate_policy=resume
says "the run resumes from 'wanted.resume/checkpoints/step-00000006', after step 6"
same wanted.resume good
unset TESSERA_AFTER
best=(--set validate_every=100 --set training_config.eval_every=5 --set checkpoint.keep_best=1 --set training_config.early_stop_patience=9)
flipped 1 "3:1:wte.v:0:1" --out best "${best[@]}"
says "differ after step 5: rank 1 "
is "best: the checkpoints" "$(ls best/checkpoints 2>/dev/null)" ""
ends 0 --config run.yaml --out best.good "${best[@]}"
flipped 0 "8:1:wte.v:0:1" --out best.resume "${best[@]}" --set validate_policy=resume
says "differ after step 10: rank 1 "
says "the run resumes from 'best.resume/checkpoints/step-00000006', after step 6"
same best.resume best.good
is "best.resume: evaluations" "$(grep '"eval"' best.resume/metrics.jsonl)" "$(grep '"eval"' best.good/metrics.jsonl)"

# the fault ends the run early, and the check at its end does not let it
early=(--set validate_every=100 --set training_config.eval_every=5 --set training_config.early_stop_patience=1
  --set training_config.early_stop_min_delta=0.3)
ends 0 --config run.yaml --out stops.good "${early[@]}"
says "done: step 24,"
flipped 0 "19:0:ln_f:31:1 19:0:ln_f:63:1 19:0:ln_f:95:1 19:0:ln_f:127:1" --out stops "${early[@]}" --set validate_policy=resume
says "early stop: the validation loss has not improved since step 15"
says "differ after step 20: rank 0 "
says "after step 18"
same stops stops.good
is "stops: the evaluations" "$(grep -c '"eval"' stops/metrics.jsonl)" "$(grep -c '"eval"' stops.good/metrics.jsonl)"

# ---- warn: once a check ----
flipped 0 "9:2:block.1.attn.wq.m:3:1" --out warn --set validate_policy=warn
is "warn: the warnings" "$(warnings)" 5 # 12, 16, 18, 20, 24
says "replicas: different at 5 of 8 checks"
is "warn: the checkpoints" "$(checkpoints_of warn)" "6 12 18 24"
[ "$(sha_of warn)" != "$(sha_of good)" ] || complain "the inverted bit has no effect"
ends 1 verify warn
says "the first that differs" # a rank whose state is wrong makes wrong gradients

# ---- resume: the bits of the run without a fault ----
i=0
while read -r flip; do
  i=$((i + 1))
  flipped 0 "$flip" --out "resume$i" --set validate_policy=resume --dump-grads "resume$i.grads"
  is "resume$i: the warnings" "$(warnings)" 1
  says "note: the run resumes from 'resume$i/checkpoints/step-00000006', after step 6"
  says "replicas: different at 1 of 10 checks"
  same "resume$i" good
  is "resume$i: the starts" "$(grep -c '"event":"start"' "resume$i/run.lock")" 2
  is "resume$i: the checkpoints" "$(checkpoints_of "resume$i")" "6 12 18 24"
  is "resume$i: the gradients" "$(ls "resume$i.grads"/step-* | wc -l)" 24
done <<'FLIPS'
9:0:wte:20:1
9:3:block.0.ln_1.m:31:1
10:1:block.1.mlp.w_up.v:64:1
FLIPS
ends 0 --config run.yaml --out good.grads.run --dump-grads good.grads
for step in 07 12 24; do
  checks=$((checks + 1))
  cmp good.grads/step-000000$step.safetensors resume1.grads/step-000000$step.safetensors || complain "other gradients of step $step"
done
ends 0 lock diff good resume1
says "all losses are equal"
ends 0 checkpoint diff good resume2
ends 0 verify resume3
# each step is compared, and each makes a checkpoint
flipped 0 "9:2:wte.m:5:1" --out resume.each --set validate_policy=resume --set validate_every=1 --set training_config.model_save_interval=1
says "'resume.each/checkpoints/step-00000008', after step 8"
same resume.each good
# another mesh resumes a run that has returned
flipped 0 "9:2:wte.m:5:1" --out resume.mesh --set validate_policy=resume --set training_config.max_steps=18
ends 0 --config run.yaml --out resume.mesh --resume --set "$(on tp,pp 2,2)" --set pipeline.microbatches=2
same resume.mesh good
# two faults, one after the other
flipped 0 "9:2:wte.m:5:1 15:3:wte:7:1" --out twice --set validate_policy=resume
is "twice: the warnings" "$(warnings)" 2
says "step-00000006', after step 6"
says "step-00000012', after step 12"
same twice good
# at the end, and of a run that a signal ends
flipped 0 "23:2:wte.m:5:1" --out resume.end --set validate_policy=resume --set validate_every=23 --set training_config.model_save_interval=20
says "step-00000020', after step 20"
same resume.end good
flipped 1 "23:2:wte.m:5:1" --out resume.none --set validate_policy=resume --set validate=none
says "warning: the replicas of 'wte"
says "has no checkpoint of step 0 or before"
export TESSERA_AFTER='11:kill -TERM $PPID'
flipped 143 "11:2:wte.m:5:1" --out resume.signal --set validate_policy=resume
says "stopped: step 6,"
is "resume.signal: the checkpoints" "$(checkpoints_of resume.signal)" 6
unset TESSERA_AFTER
ends 0 --config run.yaml --out resume.signal --resume
same resume.signal good

# ---- where it does not resume ----
flipped 1 "9:2:wte.m:5:2" --out again --set validate_policy=resume
says "error: the run ends after step 12: it has resumed because replicas differed after step 12, and has not passed that check since"
is "again: the warnings" "$(warnings)" 2
is "again: the checkpoints" "$(checkpoints_of again)" 6
# checks pass between the two, but not that one
flipped 1 "9:2:wte.m:5:9" --out again.each --set validate_policy=resume --set validate_every=1
is "again.each: the warnings" "$(warnings)" 2
flipped 1 "3:2:wte.m:5:1" --out early --set validate_policy=resume
says "error: the run ends: 'early/checkpoints' has no checkpoint of step 0 or before"
flipped 1 "3:2:wte.m:5:1" --set validate_policy=resume --set training_config.model_save_interval=0 --set training_config.checkpoint_dir=early2
says "has no checkpoint of step 0 or before"
sed 's/model_save_interval: 6, //; /^checkpoint:/d' run.yaml > nothing_kept.yaml
config=nothing_kept.yaml
flipped 1 "9:2:wte.m:5:1" --set validate_policy=resume
says "warning: validate_policy has no effect: no checkpoints are kept"
says "error: the run ends: no checkpoints are kept"
config=run.yaml
# one that cannot be read is skipped for the one before
export TESSERA_AFTER='14:for f in damaged/checkpoints/step-00000012/rank-*; do printf x | dd of=$f bs=1 seek=9000 conv=notrunc 2>/dev/null; done'
flipped 0 "14:2:wte.m:5:1" --out damaged --set checkpoint.background=false --set validate_policy=resume
says "warning: 'damaged/checkpoints/step-00000012' is skipped: "
says "the run resumes from 'damaged/checkpoints/step-00000006', after step 6"
same damaged good
ends 0 checkpoint verify damaged
unset TESSERA_AFTER
# what another start of the run has left behind this one's begin is not what this one has written
ends 0 --config run.yaml --out left --set training_config.max_steps=16 --set training_config.model_save_interval=4
flipped 0 "17:1:wte:0:1" --out left --resume left/checkpoints/step-00000004 --set validate_policy=resume \
  --set training_config.model_save_interval=100 --set validate_every=5
says "the run resumes from 'left/checkpoints/step-00000004', after step 4"
same left good

# ---- two copies: it cannot be told which is wrong, but run.lock can ----
two=(--set "$(on dp 2)" --set validate_every=1)
for rank in 0 1; do
  flipped 1 "9:$rank:block.0.ln_1:20:1" --out "two$rank" "${two[@]}"
  says "error: the replicas of 'block.0.ln_1' differ after step 9: rank 0 (on "
  says ", cpu) and rank 1 (on "
  says "hold the same part with different bits"
  says "= which of 2 copies is wrong cannot be told: no more than half are equal"
  says "= \`tessera-train verify two$rank\` tells whether the copy of rank 0, whose hash is in run.lock, is right"
done
ends 1 verify two0
says "step 9 is the first that differs: the weights;"
ends 0 verify two1
says "verified: steps 1 to 9"
flipped 1 "9:1:block.0.ln_1:20:1" --out two2 "${two[@]}" --set validate_every=4
says "differ after step 12: rank 0 "
says "= \`tessera-train verify two2\` finds the first step after which the weights of rank 0 were wrong"
ends 1 verify two2
says "step 10 is the first that differs"
flipped 1 "9:1:block.0.ln_1:20:1" "${two[@]}"
says "= \`tessera-train verify\` can tell, of a run with --out"

# ---- meshes: what is compared, and what is not ----
# mesh_fault NAME AXES SIZES FLIP RANKS OPTIONS...: found after step 12 on these ranks, and a run that resumes has the bits
mesh_fault() {
  local name=$1 flip=$4 ranks=$5 mesh
  mesh=$(on "$2" "$3")
  shift 5
  flipped 1 "$flip" --set "$mesh" "$@"
  is "$name: the ranks" "$(sed -n 's/^error: the replicas of .* differ after step 12: //p' "$said" | grep -o 'rank [0-9]*' | xargs)" "$ranks"
  flipped 0 "$flip" --out "$name" --set "$mesh" --set validate_policy=resume "$@"
  says "after step 6"
  same "$name" good
}
mesh_fault tp tp,dp 2,2 9:3:block.0.ln_1.v:9:1 "rank 3"
mesh_fault split dp,tp 2,2 9:1:block.1.attn.wq:9:1 "rank 1 rank 3"
mesh_fault tied dp,pp 2,2 12:2:wte:9:1 "rank 0 rank 2" --set pipeline.microbatches=2
mesh_fault stage dp,pp 2,2 9:3:ln_f.m:9:1 "rank 1 rank 3" --set pipeline.microbatches=2
mesh_fault cp cp 4 9:1:block.1.mlp.w_down:9:1 "rank 1"
mesh_fault zero1 dp,tp 2,2 9:0:ln_f.m:9:1 "rank 0 rank 1" --set zero.stage=1
mesh_fault zero2 dp,cp 2,4 9:6:wte.v:9:1 "rank 6" --set zero.stage=2
mesh_fault zero3 dp,tp 2,2 9:0:block.0.ln_2:9:1 "rank 0 rank 1" --set zero.stage=3
mesh_fault groups dp 4 9:3:wte:9:1 "rank 1 rank 3" --set 'device_config={enable_ddp: true, enable_fsdp: true, mesh_shape: [2, 2]}' --set 'mesh=null'
mesh_fault offload dp,tp 2,2 9:3:ln_f.v:9:1 "rank 3" --set 'zero={offload: file, offload_path: .}'
# a shard of ZeRO's is its only copy
flipped 0 "9:1:wte.m:9:1" --out shard --set zero.stage=1
says "replicas: none to compare"
[ "$(sha_of shard)" != "$(sha_of good)" ] || complain "the inverted bit of a shard has no effect"
ends 1 verify shard

# ---- recipes of other runs: each against itself without a fault ----
# recipe_fault NAME FLIP SETTINGS...
recipe_fault() {
  local name=$1 flip=$2
  shift 2
  ends 0 --config run.yaml --out "$name.good" "$@"
  flipped 1 "$flip" --out "$name.stop" "$@"
  says "differ after step 12: rank 2 "
  flipped 0 "$flip" --out "$name" "$@" --set validate_policy=resume
  says "after step 6"
  same "$name" "$name.good"
}
recipe_fault sgd 9:2:wte.momentum:9:1 --set training_config.optimizer='{type: SGD, momentum: 0.9, lr: 0.01}'
recipe_fault bf16 9:2:wte:9:1 --set training_config.precision=bf16
recipe_fault kahan 9:2:wte.compensation:9:1 --set training_config.precision=bf16 --set training_config.optimizer.kahan_summation=true
recipe_fault fp16 9:2:wte.v:9:1 --set training_config.precision=fp16
recipe_fault fast 9:2:wte.v:9:1 --set numerics.policy=fast
experts='{model_type: mixtral, vocab_size: 256, embedding_dim: 16, intermediate_dim: 12, num_blocks: 1, num_heads: 4, num_groups: 2, num_experts: 4, num_experts_per_token: 2, max_sequence_length: 16}'
for tensor in moe.w_gate moe.w_down.m moe.router.v; do
  recipe_fault "experts.$tensor" "9:2:block.0.$tensor:9:1" --set transformer_config="$experts" --set "$(on dp,ep 4,2)" \
    --set numerics.units.batch=8
done

# ---- padding ----
padded=(--set training_config.tokenizer_type=char --set transformer_config.vocab_size=0 --set "$(on dp,tp 4,2)")
recipe_fault padding 9:2:wte:9:1 "${padded[@]}"
flipped 1 9:3:wte:-1:1 "${padded[@]}"
says "differ after step 12: rank 3 "
flipped 0 9:3:wte:-1:1 --out padding.again "${padded[@]}" --set validate_policy=resume
same padding.again padding.good

# ---- frozen parameters, which no checkpoint of the run has ----
ends 0 --config run.yaml --set training_config.max_steps=2 --out base
adapters=(--set lora_config='{r: 4, target_modules: [q_proj, v_proj]}')
recipe_fault adapters 9:2:block.1.attn.wq.lora_a.m:9:1 "${adapters[@]}" --set training_config.model_path=base
recipe_fault frozen 9:2:block.1.attn.wk:9:1 "${adapters[@]}" --set training_config.model_path=base
recipe_fault frozen.random 9:2:block.0.mlp.w_up:9:1 "${adapters[@]}"
recipe_fault frozen.bf16 9:2:block.0.mlp.w_up:9:1 "${adapters[@]}" --set training_config.precision=bf16
recipe_fault dora 9:2:wte:9:1 --set lora_config='{r: 4, use_dora: true, target_modules: [q_proj]}' --set training_config.model_path=base
wide='{model_type: llama, vocab_size: 256, embedding_dim: 128, intermediate_dim: 128, num_heads: 4, num_groups: 2, num_blocks: 2, max_sequence_length: 16}'
ends 0 --config run.yaml --set training_config.max_steps=2 --set transformer_config="$wide" --out wide
for bit in 9 -20; do # a number's code, and what scales are made of
  recipe_fault "nf4.$bit" "9:2:block.1.attn.wq:$bit:1" --set transformer_config="$wide" --set training_config.model_path=wide \
    --set lora_config='{r: 4, quantize_base: nf4}'
done
flipped 1 9:1:block.0.mlp.w_up:9:1 --out gone "${adapters[@]}" --set training_config.model_path=base --set "$(on dp 2)"
says "hold the same part with different bits"
# a base model that is gone
cp -r base going
export TESSERA_AFTER='10:rm -r going'
flipped 1 9:2:block.0.mlp.w_up:9:1 --out gone2 "${adapters[@]}" --set training_config.model_path=going --set validate_policy=resume
says "warning: 'gone2/checkpoints/step-00000006' is skipped: "
says "error: the run ends: 'gone2/checkpoints' has no checkpoint of step 8 or before"
unset TESSERA_AFTER

# ---- a run that repeats another one's steps, and others ----
flipped 0 9:2:wte.m:5:1 --locked good --out locked --set validate_policy=resume
same locked good
flipped 1 9:2:wte.m:5:1 verify good --set "$(on dp 4)"
says "error: the replicas of 'wte' differ after step 12: rank 2 "
ends 0 verify good --set "$(on dp 4)"
says "repeated from the begin, 24 steps, on 4 ranks"
flipped 0 "9:2:wte:0:1" --out quiet --set validate_policy=resume --quiet
same quiet good
flipped 1 "9:2:wte:20:1" --check-determinism 12
says "error: the replicas of 'wte' differ after step 12: rank 2 "
end_of "replicas" 300

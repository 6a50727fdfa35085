#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# validate: replicas over processes: a bit that is inverted on one rank (tests/flip.c) is named with its rank, process and
# host, once; all processes stop, continue or return to a checkpoint together.
# usage: test_replicas.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
flips=$build/tessera-train-flips
settings=(--config "$recipe" --set training_config.max_steps=16 --set training_config.eval_every=0
  --set training_config.sample_tokens=0 --set training_config.model_save_interval=4 --set checkpoint.keep_last=0
  --set transformer_config.num_blocks=2 --set numerics.units.batch=8 --set validate=replicas --set validate_every=3)
log=$scratch/log

# run CODE PROCESSES FOLDER FLIPS WORDS...: FLIPS as TESSERA_FLIP; each happens
run() {
  local code=0 flip step rank tensor bit
  checks=$((checks + 1))
  TESSERA_FLIP=$4 bounded "${launcher[@]}" -n "$2" "$flips" "${settings[@]}" --out "$scratch/$3" "${@:5}" > "$log" 2>&1 || code=$?
  [ "$code" = "$1" ] || wrong "$3: exit code $code, not $1" "$log"
  for flip in $4; do
    IFS=: read -r step rank tensor bit _ <<< "$flip"
    says "flipped bit $bit of '$tensor' on rank $rank after step $step"
  done
}
says() {
  checks=$((checks + 1))
  grep -qF -- "$1" "$log" || wrong "does not say: $1" "$log"
}
is() { # is WHAT GOT WANT
  checks=$((checks + 1))
  [ "$2" = "$3" ] || wrong "$1: '$2', not '$3'" "$log"
}
chain_of() { tail -n 1 "$scratch/$1/run.lock" | sed -n 's/.*"chain":"\([0-9a-f]*\)"}$/\1/p'; }
same() { # the chain, the weights and the steps of FOLDER are those of the run of one process
  is "$1: the chain" "$(chain_of "$1")" "$(chain_of good)"
  is "$1: the weights" "$(hash_of "$scratch/$1/metrics.jsonl")" "$(hash_of "$scratch/good/metrics.jsonl")"
  is "$1: the steps" "$(grep -c '"event":"step"' "$scratch/$1/metrics.jsonl")" 16
}
count() { grep -c "^$1: the replicas of " "$log" || true; }
place() { # place RANK PROCESS: as it is named
  echo "rank $1 (process $2 on $(hostname), cpu)"
}
last_checkpoint() { # of FOLDER
  local all=("$scratch/$1"/checkpoints/step-????????)
  basename "${all[-1]}"
}
dp4=(--set 'mesh={axes: [dp], shape: [4]}')

run 0 1 good "" # the mesh's one rank
[ ${#settings[@]} -gt 0 ] && [ "$(chain_of good | wc -c)" = 65 ] || fail "no chain of the run of one process"

run 0 4 none "" "${dp4[@]}"
says "replicas: equal at 8 checks" # 3, 4, 6, 8, 9, 12, 15, 16
same none

# ---- stop ----
while read -r flip step rank process tensor; do
  run 1 4 "stop$rank" "$flip" "${dp4[@]}"
  says "error: the replicas of '$tensor' differ after step $step: $(place "$rank" "$process") has other bits than the other 3 ranks"
  is "stop$rank: the errors" "$(count error)" 1
  is "stop$rank: the checkpoint" "$(last_checkpoint "stop$rank")" step-00000004
done <<'FLIPS'
7:3:block.1.attn.wq:20:1 8 3 3 block.1.attn.wq
6:0:block.0.ln_1.m:30:1 6 0 0 block.0.ln_1.m
8:1:wte.v:21:1 8 1 1 wte.v
FLIPS

# ---- warn: once a check ----
run 0 4 warn "7:2:wte.m:28:1" "${dp4[@]}" --set validate_policy=warn
is "warn: the warnings" "$(count warning)" 5 # 8, 9, 12, 15, 16
says "replicas: different at 5 of 8 checks"

# ---- resume: on meshes whose ranks are in processes alone and together ----
while read -r name processes axes shape flip; do
  run 0 "$processes" "$name" "$flip" --set "mesh={axes: [$axes], shape: [$shape]}" --set validate_policy=resume
  is "$name: the warnings" "$(count warning)" 1
  says "the run resumes from '$scratch/$name/checkpoints/step-00000004', after step 4"
  same "$name"
done <<'MESHES'
dp.last 4 dp 4 7:3:block.1.attn.wq:20:1
dp.first 4 dp 4 7:0:wte.v:28:1
dp.pairs 2 dp 4 6:1:block.0.ln_1.m:30:1
tp 2 dp,tp 2,2 7:3:ln_f:12:1
tp.split 4 dp,tp 2,2 7:1:block.1.attn.wq:12:1
pp 4 dp,pp 2,2 7:2:wte:12:1
cp 4 cp,dp 2,2 7:1:block.0.mlp.w_up.m:30:1
MESHES
run 0 4 zero "7:2:ln_f.m:28:1" --set 'mesh={axes: [dp, tp], shape: [2, 2]}' --set zero.stage=2 --set validate_policy=resume
says "warning: the replicas of 'ln_f' differ after step 8: $(place 2 2) and $(place 3 3) hold the same part with different bits"
same zero
run 0 2 twice "7:3:wte:20:1 11:1:wte.m:30:1" "${dp4[@]}" --set validate_policy=resume
is "twice: the warnings" "$(count warning)" 2
same twice
run 1 4 again "7:3:wte:20:2" "${dp4[@]}" --set validate_policy=resume
says "error: the run ends after step 8: it has resumed because replicas differed after step 8, and has not passed that check since"
is "again: the checkpoint" "$(last_checkpoint again)" step-00000004
run 1 4 early "2:3:wte:20:1" "${dp4[@]}" --set validate_policy=resume
says "error: the run ends: '$scratch/early/checkpoints' has no checkpoint of step 0 or before"
# one that is damaged, for all processes
export TESSERA_AFTER="9:[ \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} != 0 ] || printf x | dd of=$scratch/damaged/checkpoints/step-00000008/rank-00000.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null"
run 0 4 damaged "9:2:wte.m:28:1" "${dp4[@]}" --set validate_policy=resume --set checkpoint.background=false --set validate_every=5
says "step-00000008' is skipped: "
says "after step 4"
same damaged
unset TESSERA_AFTER
# a run of more processes than before continues one that has returned and stopped
run 0 2 more "7:1:wte.m:28:1" "${dp4[@]}" --set validate_policy=resume --set training_config.max_steps=12
run 0 4 more "" "${dp4[@]}" --resume
same more

# ---- two copies ----
run 1 2 two "7:1:wte:20:1" --set 'mesh={axes: [dp], shape: [2]}' --set validate_every=1
says "error: the replicas of 'wte' differ after step 7: $(place 0 0) and $(place 1 1) hold the same part with different bits"
says "which of 2 copies is wrong cannot be told"
bounded "$program" verify "$scratch/two" > "$log" 2>&1 || wrong "the copy of rank 0 is not right" "$log"
says "verified: steps 1 to 7"

# ---- a library's own sums ----
run 0 4 fast "" "${dp4[@]}" --set numerics.policy=fast
says "replicas: equal at 8 checks"
report

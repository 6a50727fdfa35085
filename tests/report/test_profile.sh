#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `profile` over several meshes: its trace is sound and adds up to its table, and recording changes no bit
# of the weights. Runs in the source root.
# usage: test_profile.sh PROGRAM CHECK_TRACE
set -uo pipefail

program=$1
check_trace=$2
config=tests/equality/llama.yaml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 runs=0
complain() {
  echo "$@"
  failed=$((failed + 1))
}

hash_of() { tail -n 1 "$1" | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p'; }

# profile_of WHAT STEPS SET…: profiles so many steps, then trains as many.
profile_of() {
  local what=$1 steps=$2 out=$scratch/out args=(--set "training_config.max_steps=$(($2 + 1))") set
  shift 2
  runs=$((runs + 1))
  for set in training_config.eval_every=0 training_config.sample_tokens=0 scheduler_config.type=constant "$@"; do
    args+=(--set "$set")
  done
  rm -rf "$out"
  "$program" profile --config "$config" "${args[@]}" --steps "$steps" --out "$out" >"$scratch/profile" ||
    { complain "$what: profile failed"; return; }
  "$check_trace" "$out/trace.json" "$scratch/profile" || complain "$what: the trace"
  grep -q "^profile of $steps step" "$scratch/profile" || complain "$what: not $steps steps"
  grep -q '^advice: ' "$scratch/profile" || complain "$what: no advice"
  "$program" --config "$config" "${args[@]}" --quiet --metrics "$scratch/metrics" ||
    complain "$what: training failed"
  local with without
  with=$(hash_of "$out/metrics.jsonl")
  without=$(hash_of "$scratch/metrics")
  if [ "${#with}" != 64 ] || [ "$with" != "$without" ]; then
    complain "$what: weights $with with a recorder, $without without"
  fi
}

pipeline=(device_config.enable_pp=true 'device_config.mesh_shape=[2]')
profile_of 'one rank' 5
profile_of 'one thread' 1 numerics.threads=1
profile_of 'dp 2' 2 device_config.enable_ddp=true 'device_config.mesh_shape=[2]'
profile_of 'pp 2' 2 "${pipeline[@]}" pipeline.microbatches=4
grep -q '^bubble: ' "$scratch/profile" || complain 'pp 2: no bubble'
grep -q '"op":"receive".*"peer":0' "$scratch/out/trace.json" || complain 'pp 2: no receive from rank 0'
grep -q '"op":"send".*"peer":1' "$scratch/out/trace.json" || complain 'pp 2: no send to rank 1'
profile_of 'pp 2, dp 2' 2 device_config.enable_pp=true device_config.enable_ddp=true \
  'device_config.mesh_shape=[2, 2]' pipeline.microbatches=4 pipeline.schedule=zb_h1
profile_of 'tp 2, 3 threads' 2 device_config.enable_tp=true 'device_config.mesh_shape=[2]' numerics.threads=3

# TESSERA_COMM_TRACE says what is sent, numbered by rank, and changes no bit.
words=(--config "$config" --quiet --set training_config.max_steps=2 --set device_config.enable_ddp=true
  --set 'device_config.mesh_shape=[2]')
"$program" "${words[@]}" --metrics "$scratch/silent" 2>"$scratch/none"
TESSERA_COMM_TRACE=1 "$program" "${words[@]}" --metrics "$scratch/traced" 2>"$scratch/comm"
[ ! -s "$scratch/none" ] || complain 'without TESSERA_COMM_TRACE: lines'
[ "$(hash_of "$scratch/silent")" = "$(hash_of "$scratch/traced")" ] || complain 'TESSERA_COMM_TRACE: other weights'
awk '!/^comm step=[12] rank=[01] seq=[0-9]+ op=[a-z_]+ axis=dp bytes=[0-9]+ algo=tree tree=[a-z]+ policy=deterministic transport=memory path=shm ms=[0-9.]+ what=/ { bad = 1 }
  { split($3, rank, "="); split($4, seq, "="); if (seq[2] != next_of[rank[2]]++) bad = 1 }
  END { exit bad || next_of[0] < 10 || next_of[0] != next_of[1] }' "$scratch/comm" ||
  complain 'TESSERA_COMM_TRACE: other lines'

# evaluate and generate say it of each of their passes, and give the same results.
"$program" --config "$config" --quiet --set training_config.max_steps=2 --set "training_config.checkpoint_dir=$scratch/kept" \
  --set training_config.model_save_interval=2 || complain 'no checkpoint'
for words in "evaluate --data src/base/text.c" 'generate --prompt ab --set eval_config.max_new_tokens=4'; do
  # shellcheck disable=SC2086 # words
  set -- ${words%% *} --checkpoint "$scratch/kept" ${words#* } --quiet --set 'mesh={axes: [tp], shape: [2]}'
  "$program" "$@" >"$scratch/silent" 2>"$scratch/none" || complain "$1: failed"
  TESSERA_COMM_TRACE=1 "$program" "$@" >"$scratch/traced" 2>"$scratch/comm" || complain "$1: failed with a trace"
  [ ! -s "$scratch/none" ] || complain "$1 without TESSERA_COMM_TRACE: lines"
  cmp -s "$scratch/silent" "$scratch/traced" || complain "$1: TESSERA_COMM_TRACE changes what it gives"
  awk '!/^comm step=[0-9]+ rank=[01] seq=[0-9]+ op=[a-z_]+ axis=tp bytes=[0-9]+ algo=[a-z]+ .* what=/ { bad = 1 }
    { split($3, rank, "="); split($4, seq, "="); split($2, step, "="); if (seq[2] != next_of[rank[2]]++) bad = 1 }
    END { exit bad || step[2] < 2 || next_of[0] < 10 || next_of[0] != next_of[1] }' "$scratch/comm" ||
    complain "$1: other lines of TESSERA_COMM_TRACE"
done
TESSERA_COMM_TRACE=yes "$program" "$@" >"$scratch/silent" 2>"$scratch/none" &&
  complain 'TESSERA_COMM_TRACE=yes is taken'
grep -q "^error: TESSERA_COMM_TRACE is 'yes', which is neither 1 nor 0$" "$scratch/none" ||
  complain 'TESSERA_COMM_TRACE=yes: another error'

# A graph without a loss runs once, as step 1: x·xᵀ of (4, 8) is 16 sums of 4 bytes.
"$program" --config configs/examples/dp_step.yaml >"$scratch/silent" 2>"$scratch/none" || complain 'dp_step: failed'
TESSERA_COMM_TRACE=1 "$program" --config configs/examples/dp_step.yaml >"$scratch/traced" 2>"$scratch/comm" ||
  complain 'dp_step: failed with a trace'
[ ! -s "$scratch/none" ] || complain 'dp_step without TESSERA_COMM_TRACE: lines'
cmp -s "$scratch/silent" "$scratch/traced" || complain 'dp_step: TESSERA_COMM_TRACE changes the outputs'
sed 's/ transport=.*/ what=y/' "$scratch/comm" >"$scratch/lines"
printf 'comm step=1 rank=%s seq=0 op=all_reduce axis=dp bytes=64 algo=tree tree=binary policy=deterministic what=y\n' \
  0 1 | diff - "$scratch/lines" || complain 'dp_step: other lines of TESSERA_COMM_TRACE'

# Without --out the trace is in the working directory; quiet runs print nothing.
root=$PWD
(mkdir "$scratch/here" && cd "$scratch/here" &&
  TESSERA_SHARE=$root "$program" profile --config "$root/$config" --set training_config.data_path="$root/src/base/*.c" \
    --steps 1 --quiet >said && [ -s trace.json ] && [ ! -s said ]) || complain 'without --out: no trace.json'

echo "profile: $runs runs, $failed complaints"
[ "$runs" -ge 6 ] && [ "$failed" = 0 ]

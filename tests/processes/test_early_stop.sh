#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of several processes that evaluations end: all of them stop after the same step, with the checkpoints and the
# weights of a run of one process, and so does a run that several processes resume.
# usage: test_early_stop.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"

# train WORKERS FOLDER MESH OPTION…: what it printed in $scratch/out
train() {
  local processes=$1 folder=$2 with=() code=0
  options_of "$3"
  [ "$processes" = 1 ] || with=("${launcher[@]}" -n "$processes")
  bounded "${with[@]}" "$program" --config "$recipe" --metrics "$folder.metrics" --set training_config.eval_every=2 \
    --set training_config.validation_path='tests/processes/*.sh' --set training_config.tokenizer_type=byte \
    --set transformer_config.vocab_size=256 --set training_config.sample_tokens=0 \
    --set training_config.optimizer.lr=0.05 --set training_config.early_stop_patience=2 --set checkpoint.keep_best=1 \
    --set checkpoint.keep_last=1 --set training_config.checkpoint_dir="$folder" "${options[@]}" "${@:4}" \
    > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ "$code" = 0 ] || wrong "$library, $processes processes: exit code $code" "$scratch/out"
}
ending() { grep '"event":"end"' "$1.metrics" | sed 's/.*"step"/"step"/'; }

train 1 "$scratch/one" dp=1
grep -q '"reason":"early_stop"' "$scratch/one.metrics" || fail "a run of one process does not stop early"
for mesh in dp=2,tp=2 pp=2,dp=2; do
  train 2 "$scratch/$mesh" $mesh
  [ "$(ending "$scratch/$mesh")" = "$(ending "$scratch/one")" ] ||
    wrong "$library, $mesh: $(ending "$scratch/$mesh"), not $(ending "$scratch/one")"
  [ "$(ls "$scratch/$mesh") $(cat "$scratch/$mesh/best")" = "$(ls "$scratch/one") $(cat "$scratch/one/best")" ] ||
    wrong "$library, $mesh: other checkpoints"
done
train 1 "$scratch/half" dp=1 --set training_config.max_steps=3
train 2 "$scratch/half" dp=2 --resume
[ "$(ending "$scratch/half" | tail -n 1)" = "$(ending "$scratch/one")" ] || wrong "$library: a resumed run ends otherwise"
report

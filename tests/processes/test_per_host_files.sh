#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Processes whose files have the same names and other contents, as on hosts that each have a copy: nothing is computed of
# a mixture. Every file that a process reads by itself is compared before the first step.
# usage: test_per_host_files.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
patience=60 host=$(hostname)

mkdir "$scratch/a" "$scratch/b"
seq 1 3000 | tr '\n' ' ' > "$scratch/a/text.txt"
cp "$scratch/a/text.txt" "$scratch/b"
data=(--set training_config.data_path=text.txt --set training_config.eval_every=0 --set training_config.sample_tokens=0)
# run_in FOLDER OPTION…: a run of one process
run_in() {
  local folder=$1
  shift
  (cd "$folder" && bounded "$program" --config "$recipe" "${data[@]}" "$@" --quiet > "$scratch/out" 2>&1) ||
    { cat "$scratch/out"; fail "no checkpoint in $folder"; }
}
# job WORDS…: one process in each folder; the exit code in `code`
job() {
  code=0
  rm -f "$scratch/metrics"
  bounded "${launcher[@]}" -n 1 -wdir "$scratch/a" "$program" "$@" : \
    -n 1 -wdir "$scratch/b" "$program" "$@" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
}
train=(--config "$recipe" "${data[@]}" --metrics "$scratch/metrics" --set training_config.max_steps=6)
# refused NAME WHAT LINE WORDS…: process 1 has another WHAT, first in that line; no step is made
refused() {
  job "${@:4}"
  [ "$code" = 2 ] || wrong "$library, $1: exit code $code, not 2" "$scratch/out"
  grep -qE "^error: process 1 on $host has another $2 than process 0 on $host: line [0-9]+ is '$3" "$scratch/out" ||
    wrong "$library, $1: does not say what differs" "$scratch/out"
  [ "$(grep -c 'error: ' "$scratch/out")" = 1 ] || wrong "$library, $1: more than an error" "$scratch/out"
  if grep -q '"event":"step"' "$scratch/metrics" 2>/dev/null; then wrong "$library, $1: has trained"; fi
}
accepted() { # NAME WORDS…
  job "${@:2}"
  [ "$code" = 0 ] || wrong "$library, $1: exit code $code" "$scratch/out"
}

run_in "$scratch/a" --set training_config.max_steps=2 --set training_config.checkpoint_dir=model
cp -r "$scratch/a/model" "$scratch/b/model"
cp -r "$scratch/a/model" "$scratch/a/longer"
cp -r "$scratch/a/model" "$scratch/b/longer"
run_in "$scratch/b" --set training_config.max_steps=4 --set training_config.checkpoint_dir=longer --resume
run_in "$scratch/a" --set training_config.max_steps=2 --set training_config.checkpoint_dir=seed --set training_config.seed=3
run_in "$scratch/b" --set training_config.max_steps=2 --set training_config.checkpoint_dir=seed --set training_config.seed=77

dp=(--set 'mesh={axes: [dp], shape: [2]}')
pp=(--set 'mesh={axes: [pp], shape: [2]}')
for stage in 0 1 3; do
  refused "weights of two models, zero $stage" checkpoint "seed 77' here and 'seed 3' there" \
    "${train[@]}" "${dp[@]}" --set zero.stage=$stage --set training_config.model_path=seed
done
refused "weights of two models, pp" checkpoint "seed " "${train[@]}" "${pp[@]}" --set training_config.model_path=seed
refused "weights of two steps" checkpoint "step 4' here and 'step 2' there" \
  "${train[@]}" "${pp[@]}" --set training_config.model_path=longer
accepted "the same weights" "${train[@]}" "${pp[@]}" --set training_config.model_path=model

# resuming from another step of the same run, named or not: at once
refused "resumes from two steps" checkpoint "step 4' here and 'step 2' there" "${train[@]}" "${dp[@]}" --resume longer
cp -r "$scratch/a/model" "$scratch/a/only"
refused "resumes in a folder of one" checkpoint "no checkpoint' here and 'step 2' there" \
  "${train[@]}" "${dp[@]}" --resume --set training_config.checkpoint_dir=only
accepted "resumes from the same step" "${train[@]}" "${dp[@]}" --resume model

# the commands that use a checkpoint
for mesh in "tp" "pp"; do
  on=(--set "mesh={axes: [$mesh], shape: [2]}")
  refused "evaluates two steps, $mesh" checkpoint "step 4' here and 'step 2' there" \
    evaluate --checkpoint longer --data text.txt "${on[@]}"
  refused "evaluates two models, $mesh" checkpoint "seed 77' here and 'seed 3' there" \
    evaluate --checkpoint seed --data text.txt "${on[@]}"
  refused "generates with two steps, $mesh" checkpoint "step 4' here and 'step 2' there" \
    generate --checkpoint longer --prompt 1 --set eval_config.max_new_tokens=4 "${on[@]}"
  accepted "evaluates copies, $mesh" evaluate --checkpoint model --data text.txt "${on[@]}"
  accepted "generates with copies, $mesh" generate --checkpoint model --prompt 1 --set eval_config.max_new_tokens=4 "${on[@]}"
done
echo '{"eos_token_id": 1}' > "$(echo "$scratch"/a/model/step-*)/generation_config.json"
echo '{"eos_token_id": 2}' > "$(echo "$scratch"/b/model/step-*)/generation_config.json"
refused "generates to other ends" "hash of its data or prompts" "prompts " \
  generate --checkpoint model --prompt 1 --set eval_config.max_new_tokens=4 "${pp[@]}"

# evaluation sets: their contexts, choices and answers; the same are scored as by one process
for answer in 0 1; do
  for question in 12 "1 3"; do
    printf '{"question": "%s", "choices": ["4 5", "67"], "answer": %d}\n' "$question" "$answer"
  done
done > "$scratch/a/set.jsonl"
cp "$scratch/a/set.jsonl" "$scratch/b/same.jsonl"
cp "$scratch/a/set.jsonl" "$scratch/a/same.jsonl"
sed 's/"answer": 1/"answer": 0/' "$scratch/a/set.jsonl" > "$scratch/b/set.jsonl"
refused "evaluates on two sets" "hash of its data or prompts" "prompts " \
  evaluate --checkpoint model --eval-set set.jsonl --max-length 16 "${dp[@]}"
accepted "evaluates on copies of a set" evaluate --checkpoint model --eval-set same.jsonl --max-length 16 --log-samples two.jsonl "${dp[@]}"
(cd "$scratch/a" && bounded "$program" evaluate --checkpoint model --eval-set same.jsonl --max-length 16 --log-samples one.jsonl \
  > "$scratch/out" 2>&1) || wrong "$library: no scores by one process" "$scratch/out"
cmp "$scratch/a/one.jsonl" "$scratch/a/two.jsonl" || wrong "$library: two processes have other scores than one" "$scratch/out"
[ ! -e "$scratch/b/two.jsonl" ] || wrong "$library: process 1 has written scores, too" "$scratch/out"

# the other files of data
tail -c 600 "$scratch/a/text.txt" > "$scratch/a/val.txt"
head -c 600 "$scratch/a/text.txt" > "$scratch/b/val.txt"
refused "validates on two texts" "hash of its data or prompts" "validation " \
  "${train[@]}" "${dp[@]}" --set training_config.validation_path=val.txt --set training_config.eval_every=2
refused "evaluates two texts" "hash of its data or prompts" "validation " \
  evaluate --checkpoint model "${dp[@]}" --set training_config.data_path=text.txt --set training_config.validation_path=val.txt
cp "$scratch/a/val.txt" "$scratch/b/val.txt"
accepted "validates on copies" "${train[@]}" "${dp[@]}" --set training_config.validation_path=val.txt \
  --set training_config.eval_every=2
report

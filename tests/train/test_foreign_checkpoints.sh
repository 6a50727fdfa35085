#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a user puts among checkpoints, or into one, stays: a run removes the files that it writes itself, and nothing
# else; and what it cannot remove does not stop it, now or later.
# usage: test_foreign_checkpoints.sh PROGRAM
set -uo pipefail
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 8,
  model_save_interval: 2, checkpoint_dir: ck, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
checkpoint: {background: false}
RUN
train() { ends 0 --config run.yaml "$@"; }
keep_last() { echo "checkpoint.keep_last=$1"; }
# has FILE TEXT: it is there with this content
has() {
  checks=$((checks + 1))
  [ "$(cat "$1" 2> /dev/null)" = "$2" ] || complain "'$1' is not '$2': $(find ck | sort | head -n 30 | tr '\n' ' ')"
}
gone() {
  checks=$((checks + 1))
  [ ! -e "$1" ] || complain "'$1' is still there"
}
steps_are() {
  checks=$((checks + 1))
  local there
  there=$(cd ck && ls -d step-???????? | tr '\n' ' ')
  [ "$there" = "$* " ] || complain "the checkpoints are $there, not $*"
}

echo forged > forged.safetensors

# ---- a folder of the user's with the name of an unfinished checkpoint ----
mkdir -p ck/step-00000004.partial
echo mine > ck/step-00000004.partial/results.csv
echo "mine: 1" > ck/step-00000004.partial/config.yaml
train
says "warning: 'ck/step-00000004.partial' stays: 'config.yaml' in it was not written by this program"
has ck/step-00000004/results.csv mine
ends 0 checkpoint verify ck/step-00000004
ends 0 checkpoint verify ck/step-00000008
rm -r ck
# a file, and a link
mkdir -p ck elsewhere
echo mine > ck/step-00000002.partial
cp -r elsewhere ck/x && echo mine > elsewhere/rank-00000.safetensors && ln -s "$PWD/elsewhere" ck/step-00000020.partial
train
says "warning: 'ck/step-00000002.partial' stays: it was not written by this program"
says "warning: 'ck/step-00000020.partial' stays: it was not written by this program"
says "no checkpoint after step 2"
has ck/step-00000002.partial mine
has elsewhere/rank-00000.safetensors mine
steps_are step-00000004 step-00000006 step-00000008
rm -r ck

# ---- what a killed run leaves is removed as before ----
train --set training_config.max_steps=2 --set training_config.seed=3
mv ck/step-00000002 ck/step-00000003.partial
cp -r ck/step-00000003.partial ck/step-00000005.old.partial
mkdir ck/step-00000006.partial
train
steps_are step-00000004 step-00000006 step-00000008
gone ck/step-00000003.partial
gone ck/step-00000005.old.partial
gone ck/step-00000006.partial
rm -r ck

# ---- a file in a checkpoint that is pruned ----
train --set training_config.max_steps=4
echo mine > ck/step-00000002/NOTES
mkdir ck/step-00000004/figures && echo mine > ck/step-00000004/figures/loss.txt
train --resume --set "$(keep_last 1)"
says "'ck/step-00000002.partial' stays: 'NOTES' in it was not written by this program"
has ck/step-00000002.partial/NOTES mine
has ck/step-00000004.partial/figures/loss.txt mine
gone ck/step-00000002.partial/rank-00000.safetensors
gone ck/step-00000004.partial/manifest.json
steps_are step-00000008
# nothing of that stops a later run, with --resume or --overwrite
train --resume --set "$(keep_last 1)" --set training_config.max_steps=10
says "warning: 'ck/step-00000004.partial' stays: 'figures' in it was not written by this program"
has ck/step-00000004.partial/figures/loss.txt mine
train --overwrite --set "$(keep_last 2)" --set training_config.max_steps=6
steps_are step-00000004 step-00000006
has ck/step-00000004/figures/loss.txt mine
ends 0 checkpoint verify ck
echo mine > ck/step-00000006/NOTES
train --overwrite --set training_config.max_steps=4
has ck/step-00000006.partial/NOTES mine
has ck/step-00000004/figures/loss.txt mine
# one that is written again
train --overwrite --set training_config.max_steps=8
echo again > ck/step-00000006/NOTES
train --resume ck/step-00000004
has ck/step-00000006.old.partial/NOTES again
ends 0 checkpoint verify ck/step-00000006
train --overwrite
rm -r ck

# ---- folders of the user's that come while the run goes on ----
timeout 120 "$program" --config run.yaml --metrics slow.jsonl --set training_config.max_steps=1000000 \
  --set training_config.model_save_interval=500 --set "$(keep_last 1)" > "$said" 2>&1 < /dev/null &
pid=$!
until grep -qF '"step":1,' slow.jsonl 2> /dev/null || ! kill -0 $pid 2> /dev/null; do sleep 0.02; done
mine=()
for step in $(seq 500 500 20000); do
  folder=$(printf 'ck/step-%08d' "$step")
  mkdir "$folder" 2> /dev/null || continue
  cp forged.safetensors "$folder/rank-00000.safetensors" && echo mine > "$folder/manifest.json" && mine+=("$folder")
done
until grep -qF 'no checkpoint after step' "$said" || ! kill -0 $pid 2> /dev/null; do sleep 0.02; done
kill -TERM $pid
wait $pid
says "appeared while the run was going on: it is not replaced"
checks=$((checks + 1))
[ ${#mine[@]} -gt 0 ] || complain "nothing was put beside the run"
for folder in "${mine[@]}"; do
  has "$folder/manifest.json" mine
  has "$folder/rank-00000.safetensors" forged
done
end_of train.foreign_checkpoints 40

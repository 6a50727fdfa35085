#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --dump-grads: a folder of gradients is one run's, and the files are the same on every mesh.
# usage: test_gradient_dump.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 3,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1,
  max_sequence_length: 8}
numerics: {threads: 1, units: {batch: 2, tp: 2}}
RUN
holds() { [ "$(cd "$1" && echo *)" = "$2" ] || complain "$1 holds $(cd "$1" && echo *), not $2"; }
picture() { (cd "$1" && find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2); }
# leaves FOLDER CODE TEXT WORDS...: refused, and the folder is as it was
leaves() {
  local folder=$1 before
  before=$(picture "$folder")
  ends "$2" "${@:4}"
  says "$3"
  [ "$(picture "$folder")" = "$before" ] || complain "${*:4}: '$folder' has changed"
}
files='step-00000001.safetensors step-00000002.safetensors step-00000003.safetensors'
all="config.yaml $files"

ends 0 --config run.yaml --dump-grads alone
holds alone "$all"
ends 0 --config run.yaml --dump-grads mesh --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
for name in $files; do cmp "alone/$name" "mesh/$name" || complain "$name differs on a mesh"; done
ends 0 --config run.yaml
recipe=$(grep -o 'recipe [0-9a-f]*$' "$said")
head -c 300 alone/step-00000003.safetensors | grep -qaF "\"recipe\":\"${recipe#recipe }\"" || complain "no $recipe in the files"
leaves alone 2 "'alone' has gradients of another run" --config run.yaml --dump-grads alone
leaves . 2 "--check-determinism writes nothing, not even --dump-grads" --config run.yaml --dump-grads alone --check-determinism 1

# What is refused leaves the folder as it was, also with --overwrite, and makes none.
mkdir full && echo '{"event":"run"}' > full/metrics.jsonl
refusals=(
  "2|cannot write '/nosuch/x'|--metrics /nosuch/x"
  "2|/proc/x|--out /proc/x"
  "2|/proc/x|--set training_config.checkpoint_dir=/proc/x"
  "1|the model does not fit|--set device_config.memory_limit=1"
  "2|'full' has the results of a run|--out full --resume"
  "2|is the --dump-grads folder of this run|--set training_config.checkpoint_dir=FOLDER")
for refusal in "${refusals[@]}"; do
  IFS='|' read -r code text words <<< "$refusal"
  # shellcheck disable=SC2086 # words
  leaves . "$code" "$text" --config run.yaml --dump-grads made ${words//FOLDER/made}
  [[ $words = *--resume* ]] && continue
  # shellcheck disable=SC2086 # words
  leaves . "$code" "$text" --config run.yaml --dump-grads alone --overwrite ${words//FOLDER/alone}
done

# Gradients of another run are not mixed with a resumed run's; its own are.
longer=(--set training_config.max_steps=5)
ends 0 --config run.yaml --out run --dump-grads own --quiet
ends 0 --config run.yaml --dump-grads other --set training_config.seed=99 --set training_config.max_steps=4 --quiet
leaves . 2 "'other' has gradients of another run" --config run.yaml --out run --resume "${longer[@]}" --dump-grads other
says "'training_config.seed' is 1 in this run, and 99 in that one"
mkdir unknown && cp alone/step-00000001.safetensors unknown
leaves . 2 "'unknown' has gradients of another run" --config run.yaml --out run --resume "${longer[@]}" --dump-grads unknown
mkdir own/step-00000005.safetensors
ends 2 --config run.yaml --out run --resume "${longer[@]}" --dump-grads own
says "own/step-00000005.safetensors: error: cannot write 'own/step-00000005.safetensors': Is a directory"
rmdir own/step-00000005.safetensors
ends 0 --config run.yaml --out run --resume "${longer[@]}" --dump-grads own --metrics own/metrics.jsonl
ends 0 --config run.yaml --out run --resume --set training_config.max_steps=6 --dump-grads own --metrics own/metrics.jsonl
ends 0 --config run.yaml --dump-grads whole --set training_config.max_steps=6
for name in whole/*.safetensors; do cmp "$name" "own/${name#*/}" || complain "${name#*/} differs in a resumed run"; done

# The folder of results may be that of the gradients; another run's results are not replaced.
ends 0 --config run.yaml --out both --dump-grads both --quiet
ends 0 --config run.yaml --out both --dump-grads both --resume "${longer[@]}"
holds both "checkpoints config.yaml metrics.jsonl run.lock $files step-00000004.safetensors step-00000005.safetensors"
ends 0 --config run.yaml --out both --dump-grads both --overwrite
holds both "checkpoints config.yaml metrics.jsonl run.lock $files"
leaves run 2 "'run' has the results of a run" --config run.yaml --dump-grads run
leaves run 2 "'run' has the results of a run" --config run.yaml --dump-grads run --overwrite
mkdir notes && echo mine > notes/config.yaml
leaves notes 2 "'notes/config.yaml' is there, and no run of tessera-train has written it" --config run.yaml --dump-grads notes

# One run at a time writes there.
endless=(--set training_config.max_steps=1000000 --set training_config.num_epochs=1000000 --time-limit 60 --quiet)
"$program" --config run.yaml --dump-grads busy "${endless[@]}" &
other=$!
for i in $(seq 300); do [ -e busy/step-00000001.safetensors ] && break || sleep 0.1; done
for words in "" --overwrite; do
  # shellcheck disable=SC2086 # words
  ends 2 --config run.yaml --dump-grads busy --set training_config.seed=9 $words
  says "'busy' is in use by process $other on"
done
[ -e busy/step-00000001.safetensors ] || complain "a refused run has removed gradients"
kill $other && wait $other

touch alone/step-00000009.safetensors.17-2.tmp alone/notes.txt
ends 0 --config run.yaml --dump-grads alone --overwrite --set training_config.max_steps=1
holds alone 'config.yaml notes.txt step-00000001.safetensors'

end_of train.gradient_dump 33

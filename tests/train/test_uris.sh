#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# file: names a file wherever a path does, and every other scheme is refused before anything is made: what is on the
# disk is compared. A FIFO in a file's place ends a command, which does not wait for somebody to write into it.
# usage: test_uris.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

write_text text.txt
cp "$tokenizer" tok.json
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: bpe, tokenizer_path: tok.json, batch_size: 4,
  sequence_length: 8, max_steps: 2, eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out kept --quiet
ends 0 export kept --out model --quiet

picture() { find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2; }
before=$(picture)
# refuses CODE TEXT WORDS...
refuses() {
  ends 2 "${@:2}"
  says "$1"
  [ "$(picture)" = "$before" ] || complain "${*:2}: the folder has changed: $(ls)"
}
for scheme in s3 gs; do
  uri=$scheme://bucket/name
  text="error: '$uri': files are read and written by path; there is no access to '$scheme'"
  run=(--config run.yaml)
  refuses "$text" "${run[@]}" --out $uri
  refuses "$text" "${run[@]}" --metrics $uri
  refuses "$text" "${run[@]}" --set training_config.checkpoint_dir=$uri
  refuses "$text" "${run[@]}" --set checkpoint.dir=$uri
  refuses "$text" "${run[@]}" --set zero.offload=file --set zero.offload_path=$uri
  refuses "$text" "${run[@]}" --set training_config.data_path=$uri
  refuses "$text" "${run[@]}" --set training_config.tokenizer_path=$uri
  refuses "$text" "${run[@]}" --resume $uri
  refuses "$text" --config $uri
  refuses "$text" profile "${run[@]}" --steps 1 --out $uri
  refuses "$text" plan "${run[@]}" --svg $uri
  refuses "$text" plan "${run[@]}" --machine $uri
  refuses "$text" plan --calibrate $uri
  refuses "$text" inspect --mesh $uri
  refuses "$text" tokenize text.txt --out $uri
  refuses "$text" tokenize $uri --out made
  refuses "$text" export kept --out $uri
  refuses "$text" export $uri --out made
  refuses "$text" import model --out $uri
  refuses "$text" import $uri --out made
  refuses "$text" checkpoint merge kept --out $uri
  refuses "$text" checkpoint verify $uri
  refuses "$text" generate --checkpoint $uri --prompt word
  refuses "$text" generate --checkpoint kept --prompt-file $uri
  refuses "$text" evaluate --checkpoint kept --data $uri
done

# words that a shell would have replaced
run=(--config run.yaml)
# shellcheck disable=SC2088,SC2016
for word in '~/x' '$HOME/x' '$x'; do
  text="error: '$word' begins with '$(grep -o '^[~$][A-Za-z]*' <<< "$word")', which a shell replaces and this program does not"
  for key in training_config.checkpoint_dir checkpoint.dir training_config.data_path training_config.model_path \
    training_config.tokenizer_path training_config.validation_path device_config.mesh_graph_descriptor; do
    refuses "$text" "${run[@]}" --set "$key=$word"
    says "--set:1:"
  done
  refuses "$text" "${run[@]}" --set zero.offload=file --set "zero.offload_path=$word"
  refuses "$text" "${run[@]}" --set "training_config.data_sources=['$word']"
  refuses "$text" "${run[@]}" --out="$word"
  refuses "$text" "${run[@]}" --resume="$word"
  refuses "$text" --config="$word"
  refuses "$text" tokenize text.txt --out="$word"
  refuses "$text" import model --out="$word"
  refuses "$text" export "$word" --out=made
  refuses "$text" evaluate --checkpoint kept --data="$word"
done
# shellcheck disable=SC2016
refuses "'\${HOME}/x' begins with a variable, which is not replaced on the command line" "${run[@]}" --out='${HOME}/x'
# shellcheck disable=SC2016
ends 0 "${run[@]}" --print-config --set 'training_config.checkpoint_dir=${PWD}/x'
says "checkpoint_dir: $PWD/x"
ends 0 "${run[@]}" --print-config --set training_config.checkpoint_dir=./~/x

# made FILE WORDS...: what a command with file:///… makes lies in just this place
mkdir in
here=file://$PWD/in
made() {
  ends 0 "${@:2}"
  [ -s "in/$1" ] || complain "${*:2}: there is no in/$1"
  [ -z "$(find . -name 'file:*')" ] || complain "${*:2}: has made $(find . -name 'file:*')"
  rm -rf in && mkdir in
  [ "$(picture | grep -v ' in$\|^\./in ')" = "$before" ] || complain "${*:2}: something lies elsewhere: $(ls)"
}
made run/checkpoints/step-00000002/manifest.json --config "file://$PWD/run.yaml" --out "$here/run" --quiet
made run/metrics.jsonl --config run.yaml --out "$here/run" --quiet
made m.jsonl --config run.yaml --metrics "$here/m.jsonl"
made "c d/step-00000002/manifest.json" --config run.yaml --set "training_config.checkpoint_dir=$here/c%20d"
made c/step-00000002/manifest.json --config run.yaml --set checkpoint.dir=file:in/c
made trace.json profile --config run.yaml --steps 1 --out "$here"
made t.bin tokenize "file://$PWD/text.txt" --out "$here/t.bin" --tokenizer "file://$PWD/tok.json"
made e/config.json export "file://$PWD/kept" --out "$here/e"
made i/manifest.json import "file://localhost$PWD/model" --out "$here/i"
made m/manifest.json checkpoint merge "file://$PWD/kept" --out "$here/m"
made pictures/mesh.svg plan --config run.yaml --svg "$here/pictures"
rmdir in

# FIFOs, into which nobody writes. All at once: what may be a pipe is waited for
mkfifo fifo
mkdir said && cp -r model model1 && cp -r model model2 && cp -r model model3
rm model1/config.json model2/model.safetensors model3/tokenizer.json
mkfifo model1/config.json model2/model.safetensors model3/tokenizer.json
step=kept/checkpoints/step-00000002
for file in "$step"/*; do
  cp -r $step "piped-${file##*/}"
  rm "piped-${file##*/}/${file##*/}" && mkfifo "piped-${file##*/}/${file##*/}"
done
before=$(picture | grep -v '[.]/said')
jobs=0 pids=()
starts() { # CODE TEXT WORDS...
  printf '%s\n' "$1" "$2" "${*:3}" > "said/$jobs.wanted"
  timeout 90 "$program" "${@:3}" > "said/$jobs.said" 2>&1 </dev/null &
  pids+=($!)
  jobs=$((jobs + 1))
}
starts 2 "cannot read 'fifo'" --config fifo
starts 2 "cannot read 'fifo'" --config run.yaml --set training_config.data_path=fifo
starts 2 "cannot read 'fifo'" --config run.yaml --set training_config.tokenizer_path=fifo
starts 2 "cannot read 'fifo'" evaluate --checkpoint kept --data fifo
starts 2 "cannot read 'fifo'" tokenize fifo --out made
starts 2 "cannot read 'model1/config.json'" import model1 --out made1
starts 2 "cannot read 'model2/model.safetensors'" import model2 --out made2
starts 2 "cannot read 'model3/tokenizer.json'" import model3 --out made3
for file in "$step"/*; do
  name=${file##*/}
  text="piped-$name/$name: error: cannot read the checkpoint's file: it is a device or a pipe, not a file" code=1
  [ "$name" != manifest.json ] || text="cannot read 'piped-$name/$name': it is a device or a pipe, not a file"
  starts $code "$text" checkpoint verify "piped-$name"
  starts $code "$text" checkpoint reshard "piped-$name" --shards 2 --out "made4-$name"
  starts $code "$text" export "piped-$name" --out "made5-$name"
  starts $code "$text" --config run.yaml --resume "piped-$name" --out "made6-$name"
done
for ((i = 0; i < jobs; i++)); do
  wait "${pids[i]}"
  code=$?
  cp "said/$i.said" "$said"
  { read -r want && read -r text && read -r words; } < "said/$i.wanted"
  checks=$((checks + 1))
  [ "$code" = "$want" ] || complain "$words: exit code $code, not $want"
  says "$text"
done
[ "$(picture | grep -v '[.]/said')" = "$before" ] || complain "a command that met a FIFO has left something: $(ls)"

end_of train.uris 90

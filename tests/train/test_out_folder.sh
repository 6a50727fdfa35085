#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a run leaves in the folder of --out is not touched by another one: refused runs change no byte of it, one run at
# a time has it, and what is not of a run is not overwritten.
# usage: test_out_folder.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
descriptor=$(realpath mesh_descriptors/cpu_2x2.textproto)
. tests/commands.sh "$1" "$2"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 3,
  eval_every: 0, sample_tokens: 0, log_every: 1}
transformer_config: {model_type: gpt2, embedding_dim: 16, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1}
RUN
endless=(--set training_config.max_steps=1000000 --set training_config.num_epochs=1000000)

# Everything in a folder: names, kinds, where links go, bytes.
picture() { (cd "$1" && find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2); }
# leaves FOLDER CODE TEXT WORDS...: refused, and the folder is as it was
leaves() {
  local folder=$1 before
  before=$(picture "$folder")
  ends "$2" "${@:4}"
  says "$3"
  [ "$(picture "$folder")" = "$before" ] || complain "${*:4}: '$folder' has changed"
}
steps_of() { grep -c '"event":"step"' "$1"; }

# another run's results
ends 0 --config run.yaml --out kept --quiet
leaves kept 2 "'kept' has the results of a run, with checkpoints up to step 3" --config run.yaml --out kept
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept --set training_config.seed=2
leaves kept 2 "'training_config.seed' is 2 in this run" --config run.yaml --out kept --set training_config.seed=2 --resume
leaves kept 2 "'kept' has the results of a run" profile --config run.yaml --out kept --steps 1
says "= --overwrite discards it, another folder keeps it"
leaves kept 2 "unknown key" --config run.yaml --out kept --set training_config.sed=2
leaves kept 1 "the model does not fit" --config run.yaml --out kept --resume --set device_config.memory_limit=4096
leaves kept 2 "'kept/metrics.jsonl' would" --config run.yaml --out other --metrics kept/metrics.jsonl --set training_config.data_format=text \
  --set training_config.data_path=kept/metrics.jsonl
[ ! -e other ] || complain "a refused run has left its folder"
mkdir bare && cp kept/metrics.jsonl bare
leaves bare 2 "'bare' has the results of a run" --config run.yaml --out bare
rm -r bare && mkdir bare && cp kept/config.yaml bare
leaves bare 2 "'bare' has the results of a run" --config run.yaml --out bare
# a checkpoint of another folder is not this folder's
ends 0 --config run.yaml --out second --quiet --set training_config.seed=2
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept --resume second --set training_config.seed=2

# a run that ended before its first checkpoint, and another one that is to go on with it
mkdir early && cp kept/config.yaml kept/metrics.jsonl early
others=(--set training_config.seed=2 --set transformer_config.num_heads=4)
leaves early 2 "error: 'early' has the results of a run" --config run.yaml --out early --resume "${others[@]}"
says "'training_config.seed' is 2 in this run, and 1 in that one"
says "'transformer_config.num_heads' is 4 in this run, and 2 in that one"
says "a run continues with the recipe that it began with"
! grep -q -- "--resume goes on" "$said" || complain "advises --resume, which was given"
! grep -q "max_steps'" "$said" || complain "names a key that may change"
leaves early 2 "'training_config.seed' is 2 in this run" --config run.yaml --out early --set checkpoint.resume=auto "${others[@]}"
ends 0 --config run.yaml --out early --resume --set training_config.max_steps=4
rm -r early

# checkpoints that cannot be read are not given up, nor is one that the run resumes from
cp -r kept broken
rm broken/checkpoints/step-*/manifest.json
leaves broken 1 "has checkpoints, and none can be read" --config run.yaml --out broken --resume
leaves broken 1 "has checkpoints, and none can be read" --config run.yaml --out broken --resume --set training_config.seed=99
leaves kept 2 "--resume continues a run, --overwrite discards it: use one of the two" --config run.yaml --out kept --resume --overwrite
# what is no file is not replaced by one
mkfifo pipe
for command in "tokenize text.txt --tokenizer byte --out" "plan --calibrate"; do
  leaves . 2 "cannot write 'pipe': it is a device or a pipe, not a file" $command pipe
done
rm pipe
# files that are there and were not written by the command that would replace them
mkdir foreign && cp -r kept foreign/run && mkdir -p foreign/steps/checkpoints/step-00000007 foreign/linked
echo "my notes" > foreign/trace.json
echo "my notes" > foreign/machine.yaml
mkdir foreign/drawn foreign/links && echo "my notes" > foreign/drawn/pipeline.svg
echo "my notes" > foreign/y.npy
echo "my notes" > foreign/t.bin.chars.txt
echo "my notes" > foreign/steps/checkpoints/step-00000007/notes
ln -s /nowhere/at/all foreign/linked/metrics.jsonl
cat > forward.yaml <<'RUN'
training_config: {seed: 1}
tensors: {x: {shape: [4, 8], dtype: f32, init: normal(1.0)}}
graph: [y: "matmul(x, x, transpose_b=1)"]
outputs: [y]
RUN
leaves foreign 2 "'foreign/trace.json' is there and is no trace of tessera-train" profile --config run.yaml --steps 1 --out foreign
leaves foreign 2 "'foreign/machine.yaml' is there and is no description of a machine that" plan --calibrate foreign/machine.yaml
leaves foreign 2 "'foreign/drawn/pipeline.svg' is there and is no SVG picture of tessera-train" plan --config run.yaml --svg foreign/drawn
leaves foreign 2 "'foreign/y.npy' is there, and no run of tessera-train has used 'foreign'" --config forward.yaml --out foreign
leaves foreign 2 "'foreign/t.bin.chars.txt' is there without 'foreign/t.bin'" tokenize text.txt --tokenizer char --out foreign/t.bin
leaves foreign 2 "'foreign/run/metrics.jsonl' is of another run" --config run.yaml --metrics foreign/run/metrics.jsonl
echo '{"event":"click","at":3}' > foreign/clicks.jsonl
leaves foreign 2 "the file has no metrics, and would be emptied" --config run.yaml --metrics foreign/clicks.jsonl
ln -s loop foreign/loop
leaves foreign 2 "cannot read 'foreign/loop': Too many levels of symbolic links" --config run.yaml --set training_config.data_path=foreign/loop
leaves foreign 2 "is named as a checkpoint and is none" --config run.yaml --out foreign/steps --overwrite
mkdir foreign/run/checkpoints/step-00000005 && echo mine > foreign/run/checkpoints/step-00000005/notes
leaves foreign 2 "is named as a checkpoint and is none" --config run.yaml --out foreign/run --resume \
  --set training_config.max_steps=6
ln -s ../run.svg foreign/link.svg
ln -s ../run.svg foreign/links/pipeline.svg
leaves foreign 2 "cannot write 'foreign/links/pipeline.svg': it is a symbolic link" plan --config run.yaml --svg foreign/links
leaves foreign 2 "cannot write 'foreign/link.svg': it is a symbolic link" tokenize text.txt --out foreign/link.svg
echo "my notes" > foreign/notes.txt && cp foreign/notes.txt foreign/pair.bin && cp foreign/notes.txt foreign/other.idx
leaves foreign 2 "'foreign/notes.txt' is there and is no file of tokens" tokenize text.txt --out foreign/notes.txt
leaves foreign 2 "'foreign/notes.txt' is there and is no file of tokens" tokenize text.txt --out foreign/notes.txt --format nanogpt
leaves foreign 2 "'foreign/pair.bin' is there and is no file of tokens" tokenize text.txt --out foreign/pair --format megatron
leaves foreign 2 "'foreign/other.idx' is there and is no file of tokens" tokenize text.txt --out foreign/other --format megatron
: > nothing.txt
leaves foreign 2 "there is no token to write" tokenize nothing.txt --out foreign/new.bin
mkdir foreign/merged.partial && cp foreign/notes.txt foreign/merged.partial/notes && cp foreign/notes.txt foreign/file.partial
leaves foreign 2 "'foreign/merged.partial' is there, and no command has left it" checkpoint merge kept --out foreign/merged
leaves foreign 2 "'foreign/file.partial' is there, and no command has left it" export kept --out foreign/file
for format in llmc nanogpt megatron; do
  ends 0 tokenize text.txt --out again.bin --format $format --quiet
  again=() && [ $format != nanogpt ] || again=(--overwrite)
  ends 0 tokenize text.txt --out again.bin --format $format --quiet "${again[@]}"
  rm again.*
done
leaves foreign 2 "it is a symbolic link" --config run.yaml --out foreign/linked
ends 0 plan --config run.yaml --svg charts
ends 0 plan --config run.yaml --svg charts
ends 0 profile --config run.yaml --steps 1 --out profiled
ends 0 profile --config run.yaml --steps 1 --out profiled --overwrite
ends 0 --config forward.yaml --out forward
ends 0 --config forward.yaml --out forward --overwrite
rm -r foreign profiled forward

# checkpoints of which none is whole: nothing is given up without a word
step=kept/checkpoints/step-00000003
cp -r kept whole
for damage in 'echo x >> FOLDER/history.safetensors' 'echo x >> FOLDER/config.yaml' 'rm FOLDER/history.safetensors' \
  'echo x >> FOLDER/rank-00000.safetensors' 'rm FOLDER/rank-00000.safetensors' 'truncate -s 900 FOLDER/rank-00000.safetensors' \
  'echo x >> FOLDER/manifest.json'; do
  eval "${damage//FOLDER/$step}"
  leaves kept 1 "'kept/checkpoints' has checkpoints, and none can be read" --config run.yaml --out kept --resume \
    --set training_config.max_steps=5
  leaves kept 1 "has checkpoints, and none can be read" --config run.yaml --out kept --set checkpoint.resume=auto \
    --set training_config.max_steps=5
  rm -r kept && cp -r whole kept
done

# a run that resumes from elsewhere, or from nothing, has no right to another one's folder
mkdir nothing_kept
other=(--set training_config.seed=9 --set training_config.max_steps=4)
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept --resume "${other[@]}" \
  --set training_config.checkpoint_dir=nothing_kept
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept "${other[@]}" --set checkpoint.resume=auto \
  --set training_config.checkpoint_dir=nothing_kept
ends 0 --config run.yaml --out nine --set training_config.seed=9 --set training_config.checkpoint_dir=nine_kept
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept --resume nine_kept "${other[@]}" \
  --set training_config.checkpoint_dir=nine_kept
rm -r kept/checkpoints
leaves kept 2 "'kept' has the results of a run" --config run.yaml --out kept --resume "${other[@]}"
# one that nothing was saved of, and one whose checkpoints lie elsewhere, have it
ends 0 --config run.yaml --out kept --resume
ends 0 --config run.yaml --out nine --resume "${other[@]}" --set training_config.checkpoint_dir=nine_kept
[ "$(steps_of nine/metrics.jsonl)" = 4 ] || complain "a resumed run has lost its metrics"
rm -r kept nine nine_kept nothing_kept && cp -r whole kept

# what a run has written of its configuration is the same run elsewhere, whose checkpoints lie there
ends 0 --config kept/config.yaml --out again --quiet
[ -d again/checkpoints/step-00000003 ] && [ ! -e checkpoints ] || complain "the checkpoints lie elsewhere"
ends 0 --config again/config.yaml --out again --resume --set training_config.max_steps=4
says "resumes from 'again/checkpoints/step-00000003', after step 3"
ends 0 --config kept/config.yaml
[ ! -e checkpoints ] || complain "checkpoints that nobody asked for"
rm -r again whole

# a configuration that a power cut has cut, at a line's end or within a line, and a run that saved nothing: the same run
# has the folder, and another one has not
ends 0 --config run.yaml --out cut --quiet
rm -r cut/checkpoints
cp cut/config.yaml cut.yaml
for bytes in $(head -n 20 cut.yaml | wc -c) $(head -n 40 cut.yaml | wc -c) $(($(head -n 40 cut.yaml | wc -c) + 4)) $(wc -c < cut.yaml); do
  head -c "$bytes" cut.yaml > cut/config.yaml
  leaves cut 2 "'cut' has the results of a run" --config run.yaml --out cut --resume --set training_config.seed=2
  leaves cut 2 "'cut' has the results of a run" --config run.yaml --out cut
  rm -rf gone && cp -r cut gone
  ends 0 --config run.yaml --out gone --resume --quiet
done
rm -r cut gone

# also with a mesh descriptor beside the configuration that it was made of
cp "$descriptor" pair.textproto
echo 'device_config: {mesh_graph_descriptor: pair.textproto, enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]}' |
  cat run.yaml - > meshed.yaml
ends 0 --config meshed.yaml --out meshed --quiet
ends 0 --config meshed/config.yaml --out meshed --resume --set training_config.max_steps=4
says "done: step 4"
rm -r meshed

# the same run goes on, and --overwrite begins anew
ends 0 --config run.yaml --out kept --resume --set training_config.max_steps=5
[ "$(steps_of kept/metrics.jsonl)" = 5 ] || complain "a resumed run has lost its metrics"
ends 0 --config kept/config.yaml --out kept --resume --set training_config.max_steps=6
ends 0 --config run.yaml --out kept --overwrite --set training_config.seed=2
[ "$(steps_of kept/metrics.jsonl)" = 3 ] || complain "--overwrite has kept lines of metrics"
[ "$(ls kept/checkpoints)" = step-00000003 ] || complain "--overwrite has kept checkpoints"

# what a run reads is not given up by it
cp -r kept whole
cp text.txt whole/checkpoints/step-00000003/mine.txt
step=whole/checkpoints/step-00000003
for input in model_path=whole model_path=$step data_path=$step/mine.txt validation_path=$step/mine.txt; do
  leaves whole 2 "'$step' would be removed, and this run reads '$step/" --config run.yaml --out whole --overwrite \
    --set training_config.$input
  leaves whole 2 "'$step' would be removed, and this run reads" --config run.yaml --overwrite \
    --set training_config.checkpoint_dir=whole/checkpoints --set training_config.$input
done
leaves whole 2 "'$step' would be removed, and this run reads '$step/config.yaml'" --config $step/config.yaml --out whole --overwrite
mkdir whole/checkpoints/step-00000009.partial && mv $step/mine.txt whole/checkpoints/step-00000009.partial
leaves whole 2 "step-00000009.partial' would be removed, and this run reads" --config run.yaml --out whole --resume \
  --set training_config.data_path=whole/checkpoints/step-00000009.partial/mine.txt --set training_config.max_steps=4 --set training_config.seed=2

# A manifest is no input where another run has begun to remove its checkpoint after this one read it: the same file
# under the name that it has then.
rm -r whole/checkpoints/step-00000009.partial
mkdir whole/checkpoints/step-00000002.partial
ln $step/manifest.json whole/checkpoints/step-00000002.partial/manifest.json
ends 0 --config run.yaml --out whole --resume --set training_config.max_steps=4 --set training_config.seed=2
[ ! -e whole/checkpoints/step-00000002.partial ] || complain "an unfinished checkpoint is left"
rm -r whole

# the user's own files
mkdir own && cp run.yaml own/config.yaml && cp text.txt own
(cd own && leaves . 2 "no run of tessera-train has written it" --config config.yaml --out . ; exit $failed) || failed=$?
leaves own 2 "no run of tessera-train has written it" --config run.yaml --out own --overwrite
echo "of the user's" > notes.txt
cp notes.txt notes.before
ends 2 --config run.yaml --metrics notes.txt
says "the file has no metrics, and would be emptied for them"
cmp -s notes.txt notes.before || complain "notes have become metrics"
for name in config.yaml.tmp .tessera-train.lock; do
  rm -rf planted && mkdir planted && ln -s ../notes.txt "planted/$name"
  timeout 60 "$program" --config run.yaml --out planted --quiet > "$said" 2>&1
  cmp -s notes.txt notes.before || complain "a link '$name' was followed"
  checks=$((checks + 1))
done

# a lock that fails is no lock; on a file system without locks the run is the user's to watch
before=$(picture .)
with_fault EIO@2 ends 1 --config run.yaml --metrics locked.jsonl --quiet
says "locked.jsonl: error: cannot lock 'locked.jsonl': Input/output error"
[ "$(picture .)" = "$before" ] || complain "a run that could not lock its metrics has left something"
with_fault ENOLCK@1- ends 0 --config run.yaml --out unlocked
says "warning: 'unlocked' cannot be locked (No locks available): no other run may use it"
says "unlocked/metrics.jsonl: warning: it cannot be locked (No locks available): no other run may use it"
[ "$(steps_of unlocked/metrics.jsonl)" = 3 ] || complain "a run without locks has other metrics"
rm -r unlocked

# optimizer state in a file: a disk that fails ends the run with its reason, and nothing is left
before=$(picture .)
for n in 1 2; do
  with_fault ENOSPC@$n ends 1 --config run.yaml --set zero.offload=file --set zero.offload_path=. --quiet
  says "of optimizer state in a file in '.': No space left on device"
  [ "$(picture .)" = "$before" ] || complain "ENOSPC@$n: the file of optimizer state is left"
done
ends 0 --config run.yaml --set zero.offload=file --set zero.offload_path=. --quiet

# a live run has the folder, a dead one does not
"$program" --config run.yaml --out live --quiet "${endless[@]}" > live.said 2>&1 &
pid=$!
for _ in $(seq 600); do [ -s live/metrics.jsonl ] && break; sleep 0.1; done
lines=$(wc -l < live/metrics.jsonl)
ends 2 --config run.yaml --out live --quiet
says "'live' is in use by process $pid on $(hostname)"
ends 2 --config run.yaml --out live --quiet --resume
ends 2 --config run.yaml --out live --quiet --overwrite
ends 2 --config run.yaml --metrics live/metrics.jsonl --quiet
says "another run writes its metrics here"
[ "$(wc -l < live/metrics.jsonl)" -ge "$lines" ] || complain "a live run's metrics were cut"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
[ -e live/.tessera-train.lock ] || complain "a killed run has given its folder back"
ends 0 --config run.yaml --out live --overwrite --quiet
[ ! -e live/.tessera-train.lock ] || complain "a run has left its lock"

# two at once: one has it, the other is refused, and the results are of one
for try in $(seq 12); do
  "$program" --config run.yaml --out "race$try" --quiet > one.said 2>&1 &
  one=$!
  "$program" --config run.yaml --out "race$try" --quiet --set training_config.seed=2 > two.said 2>&1 &
  two=$!
  wait $one; a=$?
  wait $two; b=$?
  checks=$((checks + 1))
  cat one.said two.said > "$said"
  [ "$a $b" = "0 2" ] || [ "$a $b" = "2 0" ] || complain "two runs on one folder end with $a and $b"
  [ "$(grep -c '"event":"start"' "race$try/metrics.jsonl")" = 1 ] || complain "metrics of two runs"
  [ "$(steps_of "race$try/metrics.jsonl")" = 3 ] || complain "metrics of two runs"
done

# a run that waits for the folder resumes from what the run before it has written until then
ends 0 --config run.yaml --out late --quiet --set training_config.model_save_interval=2
cp -r late later
for kept in late none; do
  rm -r late && cp -r later late && mkdir written && mv late/checkpoints/step-00000003 written
  [ $kept = late ] || rm -r late/checkpoints/step-00000002
  (
    exec 9> late/.tessera-train.lock
    flock 9 && touch held && sleep 1 && mv written/step-00000003 late/checkpoints
  ) &
  for _ in $(seq 600); do [ -e held ] && break; sleep 0.01; done
  ends 0 --config run.yaml --out late --resume --set training_config.max_steps=5
  says "resumes from 'late/checkpoints/step-00000003', after step 3"
  [ "$(steps_of late/metrics.jsonl)" = 5 ] || complain "a run that waited has lost metrics"
  wait
  rmdir written && rm held
done
rm -r late later

# a folder of checkpoints is no run's --out folder or checkpoint, and the other way round
ends 0 --config run.yaml --out first --quiet
leaves first 2 "'first' is the --out folder of another run" --config run.yaml --set training_config.checkpoint_dir=first \
  --set training_config.seed=8
leaves first 2 "'first' is the --out folder of another run" --config run.yaml --set training_config.checkpoint_dir=first \
  --overwrite
leaves first 2 "'first/checkpoints/step-00000003' is a checkpoint, not a folder of them" --config run.yaml \
  --set training_config.checkpoint_dir=first/checkpoints/step-00000003
leaves first 2 "'first/checkpoints' is a folder of checkpoints, up to step 3" --config run.yaml --out first/checkpoints
leaves first 2 "'first/checkpoints/step-00000003' is a checkpoint" --config run.yaml --out first/checkpoints/step-00000003
ends 2 --config run.yaml --out both --set training_config.checkpoint_dir=both
says "'both' is the --out folder of this run"
[ ! -e both ] || complain "a refused run has left its folder"
rm -r first

# a read that fails ends the command with its reason, and what was there stays; or it was of no importance
ends 0 --config run.yaml --out whole --quiet --overwrite
refusals=0
for n in $(seq 40); do
  cp -r whole "read$n"
  before=$(picture "read$n") code=0
  TESSERA_FAULT=EIO-read@$n timeout 120 "$faulty" --config run.yaml --out "read$n" --resume \
    --set training_config.max_steps=4 > "$said" 2>&1 </dev/null || code=$?
  checks=$((checks + 1))
  if [ $code = 0 ]; then
    says "done: step 4"
  else
    refusals=$((refusals + 1))
    says "Input/output error"
    [ $code = 1 ] || complain "EIO-read@$n: exit code $code"
    [ "$(picture "read$n")" = "$before" ] || complain "EIO-read@$n: the folder has changed"
  fi
  rm -r "read$n"
done
[ "$refusals" -ge 5 ] || complain "only $refusals reads failed"

end_of train.out_folder 180

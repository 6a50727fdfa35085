#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Inputs that nobody means: sizes beyond every machine are decided or refused within seconds and some megabytes, what is no
# text is not tokenized, and mistakes are reported where they are.
# usage: test_odd_inputs.sh PROGRAM [SANITIZER]   none, or what the program is instrumented with
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN

# ---- sizes ----
# decided CODE WORDS...: within 10 s and 2 GB; the address sanitizer itself maps terabytes
limit=2000000
[ "${2-none}" = none ] || limit=unlimited
decided() {
  local begin=$SECONDS code=0
  checks=$((checks + 1))
  (ulimit -v $limit && timeout -s KILL 30 "$program" "${@:2}") > "$said" 2>&1 </dev/null || code=$?
  [ "$code" = "$1" ] || complain "${*:2}: exit code $code, not $1"
  [ $((SECONDS - begin)) -lt 10 ] || complain "${*:2}: takes $((SECONDS - begin)) s"
}
huge=2147483647
for model in "llama, intermediate_dim: 16, num_groups: 2" gpt2 "qwen3, intermediate_dim: 16, num_groups: 2"; do
  base="transformer_config={model_type: $model, vocab_size: 256, embedding_dim: 8, num_heads: 2, num_blocks: 1, max_sequence_length: 64}"
  for command in check plan trace; do
    decided 0 $command --config run.yaml --set "$base" --set transformer_config.vocab_size=$huge
    decided 0 $command --config run.yaml --set "$base" --set transformer_config.embedding_dim=8388608
    decided 0 $command --config run.yaml --set "$base" --set transformer_config.max_sequence_length=$huge
    decided 2 $command --config run.yaml --set "$base" --set transformer_config.num_blocks=$huge
    decided 2 $command --config run.yaml --set "$base" --set transformer_config.num_heads=$huge
    [ "$model" = gpt2 ] || decided 0 $command --config run.yaml --set "$base" --set transformer_config.intermediate_dim=$huge
  done
done
decided 0 check --config run.yaml --set training_config.max_steps=$huge
decided 0 check --config run.yaml --set training_config.batch_size=1000000
decided 0 check --config run.yaml --set 'mesh={axes: [tp], shape: [2]}' --set transformer_config.vocab_size=2147483646

# ---- no text ----
printf '\x80\x81abc\xff' > latin.txt
printf 'abc\0def' > nul.txt
printf 'MZ\x90\0\3' > program.txt
python3 -c 'import pickle, sys; sys.stdout.buffer.write(pickle.dumps(list(range(500))))' > pickle.txt
{ seq 300000 && printf '\xe9'; } > late.txt
cp text.txt text.parquet
for tokenizer in byte char; do
  while read -r file text; do
    ends 2 tokenize "$file" --out made.bin --tokenizer $tokenizer
    says "$file:$text"
    ends 2 --config run.yaml --set training_config.data_path="$file" --set training_config.tokenizer_type=$tokenizer
    says "$file:$text"
    [ -z "$(ls made* 2>/dev/null)" ] || complain "$file: something was made"
  done <<'END'
latin.txt 1:1: error: invalid UTF-8: byte 0x80
nul.txt 1:4: error: not text: byte 0x00
program.txt 1:3: error: invalid UTF-8: byte 0x90
pickle.txt 1:1: error: invalid UTF-8: byte 0x80
late.txt 300001:1: error: invalid UTF-8: byte 0xe9
END
done
# options of JSONL without JSONL
printf '{"text": "one"}\n{"text": "two"}\n' > lines.jsonl
for option in "--jsonl-key body" --skip-bad-lines; do
  # shellcheck disable=SC2086 # words
  ends 2 tokenize text.txt --out made.bin $option
  says "error: ${option% body} goes with a .jsonl or .ndjson file, and no input is one"
  [ -z "$(ls made* 2>/dev/null)" ] || complain "$option: something was made"
done
ends 0 tokenize text.txt lines.jsonl --out made.bin --jsonl-key text --skip-bad-lines --quiet
rm made.bin
# what is a text, whatever its name, is one for both
ends 0 tokenize text.parquet --out made.bin --quiet
ends 0 --config run.yaml --set training_config.data_path=text.parquet --quiet

# ---- messages ----
# errors COUNT WORDS...
errors() {
  ends 2 "${@:2}"
  [ "$(grep -c 'error: ' "$said")" = "$1" ] || complain "${*:2}: not $1 errors"
}
errors 1 check --config run.yaml --set 'mesh={axes: [dp], shape: [0]}'
says "--set:1:27: error: 'shape[0]' must be at least 1"
errors 1 check --config run.yaml --set 'mesh={axes: [tp], shape: [3]}' --set numerics.units.tp=2
says "error: 2 tp units do not fit tp = 3"
says "      = none would: num_heads 2 does not divide over tp = 3"
grep -q "3 would fit" "$said" && complain "a hint that leads to the next error"
errors 1 check --config run.yaml --set numerics.units.tp=3 --set 'mesh={axes: [tp], shape: [2]}'
says "= tp: 2 or 4 would fit"
errors 1 check --config run.yaml --set transformer_config.num_blocks=$huge
says "--set:1:31: error: num_blocks 2147483647 makes the graph one of more than 200000 calls and repetitions"
errors 1 check --config run.yaml --set transformer_config.num_blocks=100000
says "--set:1:31: error: num_blocks 100000 makes"
for word in gs:/x s3:/bucket/x https:/host/x; do
  errors 1 --config run.yaml --out $word
  says "error: '$word' looks like a URI of '${word%%:*}', which begins with ${word%%:*}://"
  [ ! -e "${word%%:*}:" ] || complain "a folder was made"
done
ends 0 --config run.yaml --out ./gs: --quiet

for value in abc -1 0 1e9 5s; do
  TESSERA_JOIN_TIMEOUT_S=$value errors 1 --config run.yaml --out made
  says "error: TESSERA_JOIN_TIMEOUT_S is '$value', which is no number of seconds above 0"
done
TESSERA_JOIN_TIMEOUT_S=2.5 ends 0 --config run.yaml --quiet
for value in abc 999 -1 128 1x 0 2; do
  TESSERA_TIME_LIMIT_STATUS=$value errors 1 --config run.yaml --out made
  says "error: TESSERA_TIME_LIMIT_STATUS is '$value', which is neither 1 nor an integer from 3 to 127"
done
[ ! -e made ] || complain "a refused run has left its folder"
for value in "" 1 3 7 127; do
  TESSERA_TIME_LIMIT_STATUS=$value ends 0 --config run.yaml --quiet
done
for value in abc 2 yes 01 -1; do
  TESSERA_COMM_TRACE=$value errors 1 --config run.yaml --out made
  says "error: TESSERA_COMM_TRACE is '$value', which is neither 1 nor 0"
  [ ! -e made ] || complain "a refused run has left its folder"
done
for value in "" 0 1; do
  TESSERA_COMM_TRACE=$value ends 0 --config run.yaml --quiet
done

# planted where a run writes: a lock that is none, and a link to nothing
for kind in "a symbolic link" "a FIFO" "a folder"; do
  rm -rf planted && mkdir planted
  case $kind in
  *link) ln -s nowhere planted/.tessera-train.lock ;;
  *FIFO) mkfifo planted/.tessera-train.lock ;;
  *) mkdir planted/.tessera-train.lock ;;
  esac
  errors 1 --config run.yaml --out planted
  says "error: 'planted/.tessera-train.lock' is $kind, not a lock file"
  errors 1 --config run.yaml --set training_config.checkpoint_dir=planted
  says "error: 'planted/.tessera-train.lock' is $kind, not a lock file"
  [ "$(ls -A planted)" = .tessera-train.lock ] || complain "$kind: the refused run has left something"
done
ln -s nowhere dangling
errors 1 --config run.yaml --out dangling
says "error: cannot make the folder 'dangling': it is a dangling link"
[ -L dangling ] && [ ! -e nowhere ] || complain "a refused run has changed a link"

# counts whose products and sums no number holds
ends 0 --config run.yaml
steps=$(grep -o '^done: step [0-9]*' "$said")
for epochs in 4611686018427387904 9223372036854775807; do
  ends 0 --config run.yaml --set training_config.num_epochs=$epochs
  says "$steps,"
done
for most in 07:09 06:08; do
  errors 1 --config run.yaml --set "scheduler_config={type: wsd, warmup_steps: 1, hold_steps: 1, decay_steps: 92233720368547758${most%:*}}"
  says "error: warm-up, hold and decay make 92233720368547758${most#*:} steps, but max_steps is "
done

end_of train.odd_inputs 116

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Settings that mean nothing are refused, not ignored, and errors about a key point to it; numbers near their limits are
# printed as they are.
# usage: test_odd_settings.sh PROGRAM
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
largest=9223372036854775807

# ---- the environment ----
for value in true yes 2 01 " 1"; do
  TESSERA_DETERMINISTIC=$value ends 2 --config run.yaml
  says "error: TESSERA_DETERMINISTIC is '$value', which is neither 1 nor 0"
done
for value in "" 0 1; do
  TESSERA_DETERMINISTIC=$value ends 0 check --config run.yaml --set numerics.policy=fast
  [ "$(grep -c "note: TESSERA_DETERMINISTIC=1" "$said")" = "${value:-0}" ] || complain "TESSERA_DETERMINISTIC='$value'"
done
TESSERA_SHARE='' ends 0 check --config run.yaml

# ---- options without a value ----
empty() { # OPTION COMMAND...
  ends 2 "${@:2}" "$1" ""
  says "error: $1 needs a value"
  ends 2 "${@:2}" "$1="
  says "error: $1 needs a value"
  [ "$(grep -c error: "$said")" = 1 ] || complain "$1=: not one error"
}
empty --time-limit train --config run.yaml
empty --steps profile --config run.yaml
empty --rank trace --config run.yaml
empty --dump check --config run.yaml
empty --dtype export ck --out made
empty --format tokenize text.txt --out made
empty --shards checkpoint reshard ck --out made
empty --metrics train --config run.yaml
ends 2 profile --config run.yaml --steps
[ "$(grep -c "error: --steps needs a value" "$said")" = 1 ] || complain "--steps: not one error"

# ---- a tag is a cell of a table ----
ends 2 check --config run.yaml --set 'checkpoint.tag="two\nlines"'
says "--set:1:16: error: 'tag' must be one line without control characters"
ends 0 check --config run.yaml --set 'checkpoint.tag="grün 1"'

# ---- folders ----
ends 2 --config run.yaml --set training_config.checkpoint_dir=
says "--set:1:1: error: "
ends 2 --config run.yaml --set 'training_config.checkpoint_dir=""'
says "--set:1:32: error: the name of a folder is empty"
ends 2 --config run.yaml --set training_config.checkpoint_dir=text.txt
says "--set:1:32: error: cannot make the folder 'text.txt': Not a directory"
ends 2 --config run.yaml --set training_config.checkpoint_dir=text.txt/ck
says "--set:1:32: error: cannot make the folder 'text.txt/ck': Not a directory"
ends 2 --config run.yaml --out made --set zero.offload=file --set zero.offload_path=nowhere
says "--set:2:19: error: cannot use the folder 'nowhere': No such file or directory"
ends 2 --config run.yaml --out made --set zero.offload=file --set zero.offload_path=text.txt
says "--set:2:19: error: cannot use the folder 'text.txt': Not a directory"
[ ! -e made ] || complain "a refused run has left its folder"

# ---- other data when a run goes on ----
ends 0 --config run.yaml --set training_config.checkpoint_dir=ck
tr a b < text.txt > other.txt
ends 2 --config run.yaml --set training_config.checkpoint_dir=ck --resume --set training_config.data_path=other.txt
says "--set:2:27: error: 'data' is "
ends 2 --config run.yaml --set training_config.checkpoint_dir=ck --resume --set 'training_config.data_sources=[other.txt]'
says "--set:2:30: error: 'data' is "

# ---- what is damaged is a failure ----
for way in missing link fifo cut; do
  rm -rf bad && cp -r ck bad
  manifest=bad/step-00000002/manifest.json
  case $way in
  missing) rm $manifest ;;
  link) mv $manifest bad/x && ln -s ../x $manifest ;;
  fifo) rm $manifest && mkfifo $manifest ;;
  cut) echo >> $manifest ;;
  esac
  ends 1 checkpoint ls bad
  says "bad/step-00000002"
  ends 1 checkpoint verify bad
  [ $way = missing ] || ends 1 checkpoint verify bad/step-00000002
done
ends 2 checkpoint verify text.txt
ends 2 checkpoint ls nowhere

# ---- numbers ----
ends 2 check --config run.yaml --set "scheduler_config={type: wsd, warmup_steps: 0, hold_steps: 1, decay_steps: $largest}"
says "warm-up, hold and decay make 9223372036854775808 steps, but max_steps is 2"

end_of train.odd_settings 51

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Data is read from where the configuration names it: a file of the same name in a folder above is other data. A path with
# a folder in it, as tt-train's configurations have, is looked for up to three folders above, and the run reports it.
# usage: test_data_paths.sh PROGRAM
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

mkdir -p root/configs/training/llama/deeper root/data
write_text root/data/text.txt
cp "$tokenizer" root/data/tok.json
cat > root/configs/training/llama/run.yaml <<'RUN'
training_config: {seed: 1, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2, eval_every: 0,
  sample_tokens: 0, data_path: text.txt}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
cp root/configs/training/llama/run.yaml root/configs/training/llama/deeper
run=root/configs/training/llama/run.yaml
set_to() { echo "training_config.$1=$2"; }
silent() { ! grep -q 'note:' "$said" || complain "a note"; }

# a bare name: here, or beside the configuration
for folder in root root/configs root/configs/training; do
  cp root/data/text.txt $folder/text.txt
  ends 2 --config $run
  says "cannot read 'text.txt'"
  ends 2 --config $run --set "$(set_to data_path data/text.txt)" --set "$(set_to validation_path text.txt)"
  says "cannot read 'text.txt'"
  rm $folder/text.txt
done
cp root/data/text.txt root/configs/training/llama
ends 0 --config $run
silent
rm root/configs/training/llama/text.txt
cp root/data/text.txt text.txt
ends 0 --config $run
silent
rm text.txt

# with a folder in it
note="'data/text.txt' is neither in the working folder nor beside $run: 'root/data/text.txt' is read"
ends 0 --config $run --set "$(set_to data_path data/text.txt)"
says "--set:1:27: note: $note"
ends 0 check --config $run --set "$(set_to data_path data/text.txt)"
says "note: $note"
ends 0 --config $run --set "$(set_to data_sources '[data/text.txt]')"
says "note: $note"
ends 0 --config $run --set "$(set_to data_path data/text.txt)" --set "$(set_to validation_path data/text.txt)"
[ "$(grep -cF "note: $note" "$said")" = 2 ] || complain "not two notes"
ends 0 --config $run --set "$(set_to data_path data/text.txt)" --set "$(set_to tokenizer_type bpe)" \
  --set "$(set_to tokenizer_path data/tok.json)"
says "'data/tok.json' is neither in the working folder nor beside $run: 'root/data/tok.json' is read"
ends 0 --config $run --set "$(set_to data_path 'data/*.txt')"
says "'data/*.txt' is neither in the working folder nor beside $run"
(cd root && ends 0 --config "${run#root/}" --set "$(set_to data_path data/text.txt)" && silent; exit $failed) || failed=$?
ends 2 --config root/configs/training/llama/deeper/run.yaml --set "$(set_to data_path data/text.txt)"
says "cannot read 'data/text.txt'"

end_of train.data_paths 15

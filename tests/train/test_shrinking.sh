#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A mapped file that becomes shorter while one process reads it ends the command with 1 and the file's name; what a run
# has saved before is whole, and the run resumes from it; nothing of another command's output is left.
# usage: test_shrinking.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
tokenizer=$(realpath tests/data/bpe/digits.json)
. tests/commands.sh "$1" "$2"

cp "$tokenizer" tok.json
for i in $(seq 2000); do printf "\\x$(printf %02x $((i * i * 31 % 251)))\\x00"; done > some.bin
for _ in $(seq 500); do cat some.bin; done > whole.bin # 2 MB
cp whole.bin tokens.bin
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: tokens.bin, data_format: nanogpt_u16, tokenizer_type: bpe, tokenizer_path: tok.json,
  batch_size: 4, sequence_length: 64, max_steps: 1000000, num_epochs: 1000000, eval_every: 0, sample_tokens: 0,
  log_every: 1, model_save_interval: 2}
transformer_config: {model_type: llama, vocab_size: 403, embedding_dim: 64, intermediate_dim: 64, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN

text="the file has become shorter while it was read"
# cuts FILE WHEN WORDS...: FILE is cut to 100 bytes as soon as a file that WHEN names is there
cuts() {
  local file=$1 when=$2 code=0 pid
  shift 2
  checks=$((checks + 1))
  timeout 120 "$program" "$@" > "$said" 2>&1 </dev/null &
  pid=$!
  while [ -z "$(compgen -G "$when")" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
  truncate -s 100 "$file"
  wait $pid || code=$?
  [ "$code" = 1 ] || complain "$*, $file is cut: exit code $code, not 1"
  says "$file: error: $text"
}

cuts tokens.bin 'out/checkpoints/step-00000004' --config run.yaml --out out
ends 0 checkpoint verify out
says "all hashes agree"
kept=$(sed -n 's/.*: step \([0-9]*\),.*/\1/p' "$said")
[ "${kept:-0}" -ge 4 ] || complain "a cut file has taken the checkpoint of step 4"
cp whole.bin tokens.bin
ends 0 --config run.yaml --out out --resume --quiet --set training_config.max_steps=$((kept + 2))
ends 0 checkpoint show out
says "step: $((kept + 2))"

# the others write slowly where they write, so that the file is cut while they read it
yes 'word 1 of a text, word 2, word 3 and all the words that there are' | head -c 30000000 > text.txt
with_fault slow@2-5 cuts text.txt 'made.bin*' tokenize text.txt --tokenizer tok.json --out made.bin
ends 0 export out --out model --quiet
ends 0 checkpoint merge out --out merged --quiet
with_fault slow@1-6 cuts model/model.safetensors 'made*' import model --out made
text="cannot read byte" # which is not mapped
with_fault slow@1-6 cuts merged/rank-00000.safetensors 'made*' checkpoint reshard merged --shards 2 --out made
[ -z "$(compgen -G 'made*')" ] || complain "something is left: $(compgen -G 'made*')"

end_of train.shrinking 9

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A file that may not be read, or a folder that may not be written, is the user's mistake for every command: exit code
# 2, the file's name, before anything is computed.
# usage: test_permissions.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

as=() # somebody whom permissions bind
if [ "$(id -u)" = 0 ]; then
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  command -v setpriv > /dev/null && "${as[@]}" "$program" --version > /dev/null 2>&1 ||
    { echo "skipped: as root, and nobody else can run the program"; exit 77; }
  chmod 777 "$scratch"
fi

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 1, eval_every: 0,
  sample_tokens: 0}
transformer_config: {model_type: gpt2, embedding_dim: 8, num_heads: 2, num_blocks: 1, max_sequence_length: 8}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out trained
chmod -R a+rX trained
cp run.yaml hidden.yaml
cp text.txt hidden.txt
cp -r trained hidden
mkdir locked
touch locked/file
chmod 555 locked
chmod 000 hidden hidden.yaml hidden.txt
trap 'chmod -R u+rwX "$scratch"; rm -rf "$scratch" "$said"' EXIT

refused() { # FILE WORDS...
  local code=0
  checks=$((checks + 1))
  timeout 10 "${as[@]}" "$program" "${@:2}" > "$said" 2>&1 </dev/null || code=$?
  [ "$code" = 2 ] || complain "${*:2}: exit code $code"
  says "$1"
  says "Permission denied"
}
refused hidden.yaml --config hidden.yaml
refused hidden.yaml check --config hidden.yaml
refused hidden.txt --config run.yaml --set training_config.data_path=hidden.txt
refused hidden evaluate --checkpoint hidden
refused hidden checkpoint verify hidden
refused locked/out --config run.yaml --out locked/out
refused locked/metrics --config run.yaml --metrics locked/metrics
refused locked/kept --config run.yaml --set training_config.checkpoint_dir=locked/kept
refused locked/tokens tokenize text.txt --out locked/tokens --tokenizer byte
refused locked/machine.yaml plan --calibrate locked/machine.yaml
refused locked/pictures plan --config run.yaml --svg locked/pictures
refused locked/shards checkpoint reshard trained --out locked/shards --shards 2
refused locked/model export trained --out locked/model

end_of train.permissions 14

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nothing of a checkpoint is parsed before it is known to be what was written: its configuration and tokenizer that are
# links, pipes, folders, shorter or other bytes are refused as `verify` does, by name. A run's folder
# whose checkpoints are all damaged says so.
# usage: test_side_files.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: char, batch_size: 4, sequence_length: 8, max_steps: 6,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 0, embedding_dim: 8, intermediate_dim: 16, num_heads: 2,
  num_groups: 2, num_blocks: 1, max_sequence_length: 64}
numerics: {threads: 1}
RUN
ends 0 --config run.yaml --out kept --quiet
whole=kept/checkpoints/step-00000006

# refuses FOLDER TEXT: every command that uses the checkpoint, soon, with exit code 1; nothing is made
refuses() {
  local command begin
  while read -r command; do
    begin=$SECONDS
    # shellcheck disable=SC2086 # words
    ends 1 $command
    says "$2"
    [ $((SECONDS - begin)) -lt 8 ] || complain "$command: takes $((SECONDS - begin)) s"
    grep -q root: "$said" && complain "$command: quotes /etc/passwd"
    [ ! -e made ] || complain "$command: something was made"
  done <<END
checkpoint verify $1
generate --checkpoint $1 --prompt word --max-new-tokens 1
evaluate --checkpoint $1 --data text.txt
export $1 --out made
checkpoint reshard $1 --shards 2 --out made
--config run.yaml --resume $1
--config run.yaml --set training_config.model_path=$1
END
}
for name in config.yaml vocabulary.txt; do
  bytes=$(stat -c %s $whole/$name)
  for damage in "ln -s /etc/passwd F" "mkfifo F" "mkdir F" "head -c 50 W > F" "tr a b < W > F" ":"; do
    rm -rf c && cp -r $whole c && rm c/$name
    script=${damage//F/c\/$name}
    eval "${script//W/$whole\/$name}"
    case $damage in
      ln*) text="c/$name: error: cannot read the checkpoint's file: it is a symbolic link" ;;
      mkfifo*) text="c/$name: error: cannot read the checkpoint's file: it is a device or a pipe, not a file" ;;
      mkdir*) text="c/$name: error: cannot read the checkpoint's file: Is a directory" ;;
      head*) text="c/$name: error: the file has $([ "$bytes" -gt 50 ] && echo 50 || echo "$bytes") bytes, not $bytes as when it was written" ;;
      tr*) text="c/$name: error: the file is damaged in its first $bytes bytes" ;;
      :) text="c/$name: error: cannot read the checkpoint's file: No such file or directory" ;;
    esac
    [ "$bytes" -gt 50 ] || [ "${damage%% *}" != head ] || { head -c 5 $whole/$name > c/$name && text="has 5 bytes, not $bytes"; }
    refuses c "$text"
  done
done

# what somebody has put beside them is a file or refused
echo '[{"role": "user", "content": "word"}]' > chat.json
for name in generation_config.json chat_template.jinja tokenizer_config.json; do
  for damage in "mkfifo F" "ln -s /etc/passwd F"; do
    rm -rf c made && cp -r $whole c && eval "${damage/F/c\/$name}"
    text="cannot read 'c/$name': it is a $([ "${damage%% *}" = ln ] && echo "symbolic link" || echo "device or a pipe, not a file")"
    begin=$SECONDS
    ends 2 export c --out made
    says "$text"
    ends 2 --config run.yaml --set training_config.model_path=c --out made --quiet
    says "$text"
    [ ! -e made ] || complain "$damage: something was made"
    if [ $name = generation_config.json ]; then
      ends 2 generate --checkpoint c --prompt word --max-new-tokens 1
      says "$text"
    fi
    [ $((SECONDS - begin)) -lt 8 ] || complain "$damage: it is waited for"
  done
done
ends 0 export $whole --out made

# a folder of Hugging Face is files, too
for name in config.json generation_config.json tokenizer_config.json tokenizer.json; do
  rm -rf model imported && cp -r made model && rm -f model/$name && mkfifo model/$name
  begin=$SECONDS
  ends 2 import model --out imported
  says "cannot read 'model/$name': it is a device or a pipe, not a file"
  [ ! -e imported ] || complain "a refused import has left its folder"
  [ $((SECONDS - begin)) -lt 8 ] || complain "import waits for $name"
done

# a run's folder with nothing but damaged checkpoints
for damage in 'echo x >> M' 'rm M'; do
  rm -rf d made && cp -r kept d
  eval "${damage//M/d\/checkpoints\/step-00000006\/manifest.json}"
  while read -r command; do
    # shellcheck disable=SC2086 # words
    ends 1 $command
    says "'d/checkpoints/step-00000006' is skipped: "
    says "error: 'd/checkpoints' has checkpoints, and none can be read"
  done <<'END'
checkpoint verify d
checkpoint show d
checkpoint verify d/checkpoints
generate --checkpoint d --prompt word
evaluate --checkpoint d --data text.txt
export d --out made
checkpoint reshard d --shards 2 --out made
--config run.yaml --set training_config.model_path=d
--config run.yaml --out d --resume
END
done
mkdir empty
ends 2 checkpoint verify empty
says "'empty' is no checkpoint and has none"

end_of checkpoint.side_files 110

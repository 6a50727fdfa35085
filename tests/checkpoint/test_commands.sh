#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the commands around checkpoints say and refuse, word by word, and that their results do not depend on the mesh.
# usage: test_commands.sh PROGRAM [SANITIZER]
set -uo pipefail
program=$(realpath "$1")
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export TESSERA_SHARE=$root
failed=0 checks=0

# says WORDS-ON-STANDARD-INPUT: what the command before printed is these lines ("…" stands for any text).
says() {
  local want pattern
  want=$(cat)
  checks=$((checks + 1))
  pattern=${want//\\/\\\\}
  pattern=${pattern//\*/\\*}
  pattern=${pattern//\?/\\?}
  pattern=${pattern//\[/\\[}
  pattern=${pattern//…/*}
  # shellcheck disable=SC2053 # it is a pattern
  [[ $said == $pattern ]] && return
  failed=$((failed + 1))
  printf '%s\n--- printed:\n%s\n--- not:\n%s\n' "$command" "$said" "$want"
}

# run CODE ARGUMENTS…: both streams into $said.
run() {
  local want=$1 code
  shift
  command="tessera-train $*"
  said=$("$program" "$@" 2>&1)
  code=$?
  checks=$((checks + 1))
  [ "$code" = "$want" ] && return
  failed=$((failed + 1))
  printf '%s\n%s\nexit code %s, not %s\n' "$command" "$said" "$code" "$want"
}

for i in $(seq 300); do echo "the $i quick brown foxes jump over $((i * 7)) lazy dogs"; done >text.txt
cat >run.yaml <<'YAML'
training_config:
  data_path: text.txt
  seed: 5
  batch_size: 4
  max_steps: 6
  eval_every: 0
  sample_tokens: 0
  model_save_interval: 2
  checkpoint_dir: kept
numerics:
  isa: x86-64
  units: {batch: 4, tp: 2}
transformer_config:
  model_type: llama
  vocab_size: 0
  embedding_dim: 16
  intermediate_dim: 32
  num_blocks: 2
  num_heads: 2
  num_groups: 2
  max_sequence_length: 16
YAML
two="--set mesh.axes=[tp] --set mesh.shape=[2]"

# ---- writing and going on ----
run 0 --config run.yaml --quiet
run 0 checkpoint ls kept
says <<'TEXT'
      step        loss        size  written                  folder
         2      …  kept/step-00000002
         4      …  kept/step-00000004
         6      …  kept/step-00000006
TEXT
run 0 checkpoint ls kept/step-00000004
says <<'TEXT'
      step        loss        size  written                  folder
         4      …  kept/step-00000004
TEXT
run 2 --config run.yaml --quiet
says <<'TEXT'
run.yaml:9:19: error: 'kept' has the checkpoints of a run, up to step 6
    9 |   checkpoint_dir: kept
      |                   ^~~~
      = --resume continues it, --overwrite discards it, another checkpoint_dir keeps it
TEXT
run 2 --config run.yaml --quiet --resume --set training_config.seed=6 --set transformer_config.theta=1000.0
says <<'TEXT'
--set:1:22: error: 'training_config.seed' is 6 in this run, and 5 in 'kept/step-00000006'
    1 | training_config.seed=6
      |                      ^
--set:2:26: error: 'transformer_config.theta' is 1000 in this run, and not there in 'kept/step-00000006'
    2 | transformer_config.theta=1000.0
      |                          ^~~~~~
      = a run continues with the recipe that it began with; training_config.model_path takes the weights alone into a new one
TEXT
run 2 --config run.yaml --quiet --resume nowhere
says <<'TEXT'
error: there is no checkpoint 'nowhere'
TEXT
run 2 --config run.yaml --quiet --resume text.txt
says <<'TEXT'
error: 'text.txt' is no checkpoint and has none: it has no manifest.json and no folder step-…
TEXT
run 0 --config run.yaml --resume --set checkpoint.dir=empty --set training_config.max_steps=1
says <<'TEXT'
note: 'empty' holds no checkpoint to resume from: the run begins at step 0
…
done: step 1, …
TEXT
run 2 --config run.yaml --quiet --time-limit soon
says <<'TEXT'
error: --time-limit: 'soon' is no time such as 5400, 90m or 1h30m
TEXT
run 2 --config run.yaml --quiet --set checkpoint.time_limit=1h1h
says <<'TEXT'
--set:1:23: error: 'time_limit' must be a time such as 5400, 90m or 1h30m, found the text '1h1h'
    1 | checkpoint.time_limit=1h1h
      |                       ^~~~
TEXT
run 0 --config run.yaml --time-limit 3s --set training_config.max_steps=1000000 --set training_config.num_epochs=1000000 --set checkpoint.dir=limited
says <<'TEXT'
…
time limit: stops after step … of 1000000
stopped: step …
TEXT

# ---- looking at them ----
run 0 checkpoint verify kept
says <<'TEXT'
kept/step-00000006: step 6, 65 tensors in 4 files, …: all hashes agree
TEXT
run 0 checkpoint show kept/step-00000002
says <<'TEXT'
checkpoint: kept/step-00000002
step: 2
samples: 8
loss: …
optimizer state: yes
written: … UTC, by tessera-train …, on 1 rank
recipe: …
  training_config.seed: 5
…
files: …
tensors: 65
…
TEXT
run 2 checkpoint shw kept
says <<'TEXT'
error: checkpoint has nothing called 'shw'
      = did you mean 'show'?
TEXT
# more files than a tensor has rows: in little memory, and as many as are there
limit=400000
[ "${2-none}" = none ] || limit=unlimited # the address sanitizer itself maps terabytes
most=$(ulimit -v $limit && "$program" checkpoint reshard kept --out many --shards 1000000 2>&1)
files=$(find many -name 'rank-*' | wc -l)
checks=$((checks + 1))
[ "$most" = "many: step 6 in $files files of tensors
note: there are $files files, not 1000000: no tensor has more rows" ] && [ "$files" -gt 20 ] || {
  echo "FAILED: reshard into 1000000 files: $files files, and: $most"
  failed=$((failed + 1))
}
run 0 checkpoint diff kept many
says <<'TEXT'
no difference: step 6
TEXT
run 2 checkpoint diff kept
says <<'TEXT'
error: checkpoint diff takes 2 folders, not 1
TEXT
run 2 checkpoint reshard kept --out new
says <<'TEXT'
error: into how many files? --shards N is needed
TEXT
run 0 checkpoint reshard kept --out four --shards 4
run 0 checkpoint merge four --out one
run 0 checkpoint diff kept one
says <<'TEXT'
no difference: step 6
TEXT
run 2 checkpoint merge four --out one
says <<'TEXT'
error: 'one' is there already
TEXT
run 0 checkpoint diff kept/step-00000002 kept/step-00000004
says <<'TEXT'
…
wte: … elements, the most by …
wte.m: …
TEXT
cp -r kept/step-00000006 damaged
printf x | dd of=damaged/rank-00000.safetensors bs=1 seek=20000 conv=notrunc status=none
run 1 checkpoint verify damaged
says <<'TEXT'
damaged/rank-00000.safetensors: error: tensor '…' is damaged: bytes … to … have hash …, not …
TEXT
run 1 generate --checkpoint damaged --prompt the
says <<'TEXT'
damaged/rank-00000.safetensors: error: tensor '…' is damaged: bytes … to … have hash …, not …
TEXT

# ---- resuming from weights alone ----
run 0 --config run.yaml --set training_config.model_path=kept --set checkpoint.dir=tuned --set training_config.seed=9
says <<'TEXT'
…
weights: 'kept/step-00000006'
…
done: step 6, …
TEXT
run 2 --config run.yaml --set training_config.model_path=kept --set checkpoint.dir=wider \
  --set transformer_config.intermediate_dim=64 --quiet
says <<'TEXT'
kept/step-00000006/manifest.json: error: tensor 'block.0.mlp.w_gate' is (32, 16) there, and (64, 16) in this run's model
…
TEXT

# ---- evaluate and generate: the same on any mesh, alone or together ----
run 0 evaluate --checkpoint kept --quiet
alone=$said
says <<'TEXT'
checkpoint: kept/step-00000006, step 6
data: text.txt, 1,… tokens of 1,… bytes
loss: …
perplexity: …
bits per byte: …
TEXT
# shellcheck disable=SC2086 # words
run 0 evaluate --checkpoint kept --quiet $two
says <<<"$alone"
# shellcheck disable=SC2086
run 0 generate --checkpoint kept --quiet --max-new-tokens 30 --prompt "the 1" --prompt "lazy" $two
together=$said
run 0 generate --checkpoint kept --quiet --max-new-tokens 30 --prompt "the 1"
says <<<"$(sed '1d;/^--- 2/,$d' <<<"$together")"
# a plan for devices that this machine may not have
run 0 plan --config run.yaml --set device_config.device=cuda
says <<'TEXT'
machine h100: …
  taken       assumed; --machine selects the CUDA devices
…
TEXT
# a checkpoint that names a mesh, used on one that device_config lays out, and on none
run 0 --config run.yaml --quiet --set checkpoint.dir=meshed --set mesh.axes=[dp] --set mesh.shape=[2]
run 0 generate --checkpoint meshed --quiet --max-new-tokens 30 --prompt "the 1"
meshed=$said
run 0 generate --checkpoint meshed --quiet --max-new-tokens 30 --prompt "the 1" --set device_config.memory_limit=1GiB
says <<<"$meshed"
run 0 generate --checkpoint meshed --quiet --max-new-tokens 30 --prompt "the 1" --set device_config.enable_tp=true \
  --set device_config.mesh_shape=[2]
says <<<"$meshed"
for command in "generate --prompt the" "evaluate"; do
  # shellcheck disable=SC2086
  run 2 $command --checkpoint kept --set training_config.end_of_text=999
  says <<'TEXT'
--set:1:29: error: 'end_of_text' is 999, but the model's vocabulary has …
…
TEXT
done
printf 'the 1\nlazy\n' >prompts.txt
run 0 generate --checkpoint kept --quiet --max-new-tokens 30 --prompt-file prompts.txt
says <<<"$together"
printf '\xef\xbb\xbfthe 1\r\nlazy\r\n' >windows.txt
run 0 generate --checkpoint kept --quiet --max-new-tokens 30 --prompt-file windows.txt
says <<<"$together"
said=$("$program" generate --checkpoint kept --quiet --max-new-tokens 30 --prompt-file - <prompts.txt 2>&1)
says <<<"$together"
printf 'the\0 1\n' >nul.txt
run 2 generate --checkpoint kept --prompt-file nul.txt
says <<'TEXT'
nul.txt:1:4: error: not text: byte 0x00
…
TEXT
run 2 generate --checkpoint kept --prompt x --metrics m --out o
says <<'TEXT'
error: --metrics belongs to the commands 'train', 'check' and 'profile'
error: --out belongs to the commands 'train', 'check', 'profile', 'evaluate', 'checkpoint', 'import', 'export', 'tokenize' and 'sweep'
TEXT
run 2 tokenize text.txt --out t.bin --config run.yaml --set a=1 --mesh m --dump mesh
says <<'TEXT'
error: --config belongs to the commands 'train', 'check', 'inspect', 'trace', 'profile', 'plan', 'evaluate', 'generate', 'data', 'kernels', 'serve' and 'sweep'
error: --mesh belongs to …
error: --set belongs to …
error: --dump belongs to …
TEXT
run 2 generate --checkpoint kept --prompt "caf"$'\xe9'
says <<'TEXT'
--prompt 1:1:4: error: invalid UTF-8: byte 0xe9
…
TEXT
run 2 --config run.yaml --mesh "" --metrics=
says <<'TEXT'
error: --mesh needs a value
error: --metrics needs a value
TEXT
run 0 generate --checkpoint kept --quiet --max-new-tokens 12 --temperature 0 --prompt "the "
greedy=$said
run 0 generate --config run.yaml --quiet --max-new-tokens 12 --temperature 0 --seed 99 --prompt "the "
says <<<"$greedy"
run 2 generate --checkpoint kept --prompt "§"
says <<'TEXT'
--prompt 1:1:1: error: …
TEXT
run 2 generate --checkpoint kept
says <<'TEXT'
error: nothing to resume from: --prompt, --prompt-file or --chat is needed
TEXT
run 2 generate --prompt x
says <<'TEXT'
error: no weights: --checkpoint DIR is needed
      = tessera-train --help lists all options
TEXT
run 2 check --config run.yaml --prompt x --data y
says <<'TEXT'
error: --data belongs to the command 'evaluate'
error: --prompt belongs to the command 'generate'
TEXT

echo "$checks checks, $failed failed"
[ "$checks" -ge 90 ] && [ "$failed" = 0 ]

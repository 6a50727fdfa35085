#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# schedule.all_reduce_overlap: auto is true where a step takes less time with it by the plan for the mesh's devices.
# The oracle is `plan` with true and with false. Inside one process it is false.
# usage: test_overlap_auto.sh PROGRAM
set -uo pipefail
export TESSERA_SHARE=$PWD
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 8, sequence_length: 16, max_steps: 2, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 32, num_heads: 4, num_blocks: 2,
  max_sequence_length: 16}
mesh: {axes: [dp], shape: [2]}
numerics: {threads: 1}
RUN
key=schedule.all_reduce_overlap
notes() { sed -n 's/.*: note: all_reduce_overlap: //p' "$said"; }
noted() { [ "$(notes)" = "$1" ] || complain "the note is not: $1"; }
# begun: how many collectives only begin, in the program that was printed
begun() { grep -c 'begins with bucket' "$said"; }

# ---- one process: a note only where auto is written ----
inside="auto is false: the ranks of dp are in one process, in which a collective is complete when it begins"
for command in "" check plan; do
  ends 0 $command --config run.yaml
  noted ""
  ends 0 $command --config run.yaml --set $key=auto
  noted "$inside"
  says "--set:1:29: note: all_reduce_overlap: "
  ends 0 $command --config run.yaml --set schedule.overlap=auto --dump program
  noted "$inside"
  [ "$(begun)" = 0 ] || complain "$command: collectives that only begin"
  ends 0 $command --config run.yaml --set $key=auto --set 'mesh={axes: [tp], shape: [2]}'
  noted ""
done
for word in true True TRUE; do
  ends 0 check --config run.yaml --set $key=$word --dump program
  [ "$(begun)" -gt 0 ] || complain "$word: no collective only begins"
done
ends 2 check --config run.yaml --set $key=yes
says "--set:1:29: error: unknown all_reduce_overlap: the text 'yes'"
says "= valid: true, false, auto"

# ---- devices ----
step_of() { sed -n 's/^step: \([0-9.]* [a-z]*\).*/\1/p' "$said"; }
# plans WANTED OPTION...: on GPUs auto is that, as the steps of both plans are; what runs is that program
plans() {
  local wanted=$1 with without
  local options=(--config run.yaml --set device_config.device=cuda "${@:2}")
  ends 0 plan "${options[@]}" --set $key=true
  with=$(step_of)
  ends 0 plan "${options[@]}" --set $key=false
  without=$(step_of)
  [ "$wanted" = "$(awk -v a="$with" -v b="$without" 'BEGIN {
    u["s"] = 1; u["ms"] = 1e-3; u["us"] = 1e-6; split(a, x, " "); split(b, y, " ")
    print x[1] * u[x[2]] < y[1] * u[y[2]] ? "true" : "false" }')" ] || complain "$*: steps of $with and $without"
  for command in plan check; do
    ends 0 $command "${options[@]}"
    noted "auto is $wanted: by the plan for 'h100' a step takes $with with it, and $without without it"
    says "run.yaml: note: all_reduce_overlap: "
    ends 0 $command "${options[@]}" --dump program
    cp "$said" auto.said
    ends 0 $command "${options[@]}" --dump program --set $key="$wanted"
    diff <(grep '^ ' auto.said) <(grep '^ ' "$said") > lines || complain "$command $*: other program than $wanted"
    grep -q '^ ' "$said" || complain "$command $*: no program"
  done
}
plans true --set schedule.bucket_size=16KiB
plans true --set schedule.bucket_size=16KiB --set zero.stage=2
plans true --set zero.stage=3
plans false # one bucket, which begins when the backward pass ends
plans true --set schedule.bucket_size=16KiB --set schedule.recompute=full --set numerics.policy=fast
# Each microbatch adds to the sums of the one before it, which is waited for.
plans false --set schedule.bucket_size=16KiB --set numerics.reduce_tree=flat \
  --set training_config.gradient_accumulation_steps=2

# ---- memory ----
total_of() { sed -n 's/^  total  *\([0-9,]*\) .*/\1/p' "$said" | tr -d ,; }
gpus=(--config run.yaml --set device_config.device=cuda --set zero.stage=3)
ends 0 check "${gpus[@]}" --set $key=true
with=$(total_of)
ends 0 check "${gpus[@]}" --set $key=false
without=$(total_of)
[ "$with" -gt "$without" ] || complain "overlap needs no memory: $with bytes, $without without it"
ends 0 check "${gpus[@]}" --set device_config.memory_limit="$with"
says "auto is true: by the plan for 'h100' "
ends 0 check "${gpus[@]}" --set device_config.memory_limit=$((with - 1))
notes | grep -qE '^auto is false: with it a rank needs [0-9.]+ [KM]iB of [0-9.]+ [KM]iB \(device_config.memory_limit\)$' ||
  complain "memory is no reason"
[ "$(total_of)" = "$without" ] || complain "the program is not that without overlap"
# Neither fits: the memory is no reason.
ends 0 check "${gpus[@]}" --set device_config.memory_limit=$((without - 1))
says "auto is true: by the plan for 'h100' "
# A way to recompute that is chosen behind it.
ends 0 check "${gpus[@]}" --set device_config.memory_limit="$with" --set schedule.recompute=auto
says "all_reduce_overlap: auto is "
says "recompute: auto is "

# ---- the configuration keeps auto; the policy fast says nothing of it ----
ends 0 check --config run.yaml --print-config
says "  all_reduce_overlap: auto  # default"
ends 0 --config run.yaml --out out --set $key=auto
grep -q '^  all_reduce_overlap: auto  # --set$' out/config.yaml || complain "the run's configuration has another word"
fast="note: 'fast' without schedule.all_reduce_overlap: the gradients' sums wait for the backward pass"
ends 0 check --config run.yaml --set numerics.policy=fast
! grep -qF "$fast" "$said" || complain "a note about what auto has decided"
ends 0 check --config run.yaml --set numerics.policy=fast --set $key=false
says "--set:2:29: $fast"
end_of overlap_auto 74

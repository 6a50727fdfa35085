#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# schedule.recompute: auto takes the first way to recompute with which a run fits the memory. The oracle is `check` of
# each way by itself: a limit of exactly its bytes admits it, and one byte less does not.
# usage: test_recompute_auto.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, batch_size: 4, sequence_length: 32, max_steps: 2, eval_every: 0,
  sample_tokens: 0, tokenizer_type: byte}
transformer_config: {model_type: gpt2, vocab_size: 256, embedding_dim: 32, num_heads: 4, num_blocks: 8,
  max_sequence_length: 32, dropout_prob: 0.1}
device_config: {enable_ddp: true, mesh_shape: [2]}
schedule: {recompute: auto}
numerics: {threads: 1, units: {batch: 4}}
RUN
hash_of() { sed -n 's/.*weights sha256 \([0-9a-f]*\).*/\1/p' "$said"; }
total_of() { sed -n 's/^  total  *\([0-9,]*\) .*/\1/p' "$said" | tr -d ,; }

ways=(none cheap "full, recompute_every: 8" "full, recompute_every: 4" "full, recompute_every: 3"
  "full, recompute_every: 2" full)
needs=()
for way in "${ways[@]}"; do
  ends 0 check --config run.yaml --set "schedule={recompute: $way}"
  needs+=($((2 * $(total_of)))) # one process has both ranks
done
# The first way that needs no more than $1 bytes; where none does, the last of those that need the least.
least=$(printf '%s\n' "${needs[@]}" | sort -n | head -n 1)
for i in "${!ways[@]}"; do [ "${needs[i]}" != "$least" ] || least_way=${ways[i]}; done
first_within() {
  local i
  for i in "${!ways[@]}"; do [ "${needs[i]}" -gt "$1" ] || { echo "${ways[i]}"; return; }; done
  echo "$least_way"
}
distinct=$(printf '%s\n' "${needs[@]}" | sort -u | wc -l)
[ "$distinct" -ge 5 ] || complain "only $distinct different needs: ${needs[*]}"

for need in "${needs[@]}"; do
  for limit in "$need" $((need - 1)); do
    want=$(first_within "$limit")
    ends 0 check --config run.yaml --set device_config.memory_limit="$limit"
    says "run.yaml:6:23: note: recompute: auto is $want: a process needs "
  done
done

# What is chosen is what runs, in the memory that it may have, and its bits are those of every way.
ends 0 --config run.yaml --set schedule.recompute=none --out none
want=$(hash_of)
[ ${#want} = 64 ] || complain "no hash"
for limit in "${needs[1]}" "${needs[4]}" "$least"; do
  ends 0 --config run.yaml --set device_config.memory_limit="$limit" --out "auto-$limit"
  says "auto is $(first_within "$limit"): "
  [ "$(hash_of)" = "$want" ] || complain "limit $limit: other weights"
done
ends 1 --config run.yaml --set device_config.memory_limit=$((least - 1)) --out never
says "auto is $least_way: a process needs "
says "the model does not fit: "

# A machine's memory, and GPUs of which no memory is known.
ends 0 plan --machine h100 --config run.yaml --set device_config.device=cuda
says "auto is none: a rank needs "
ends 0 check --config run.yaml --set device_config.device=cuda
says "auto is cheap: the memory of the GPUs is not known without device_config.memory_limit"
ends 0 check --config run.yaml
says "(what the host has available)"
end_of recompute_auto 29

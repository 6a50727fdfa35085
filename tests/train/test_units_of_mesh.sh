#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# evaluate and generate on a mesh that the units of the checkpoint's recipe do not fit: they use the mesh's own, with a
# note, and results that differ in their last bits alone.
# usage: test_units_of_mesh.sh PROGRAM
set -uo pipefail
. tests/commands.sh "$1"

write_text text.txt
cat > run.yaml <<'RUN'
training_config: {seed: 1, data_path: text.txt, tokenizer_type: byte, batch_size: 4, sequence_length: 8, max_steps: 2,
  eval_every: 0, sample_tokens: 0}
transformer_config: {model_type: llama, vocab_size: 256, embedding_dim: 48, num_heads: 12, num_groups: 12, num_blocks: 1,
  intermediate_dim: 96, max_sequence_length: 8}
numerics: {threads: 1}
RUN
loss_of() { sed -n 's/^loss: //p' "$said"; }
# uses NOTE MESH...: the checkpoint `kept` on that mesh, with the loss of one rank up to rounding
uses() {
  local note=$1 mesh=("${@:2}") loss
  ends 0 evaluate --checkpoint kept --data text.txt
  loss=$(loss_of)
  ends 0 evaluate --checkpoint kept --data text.txt "${mesh[@]}"
  awk -v a="$loss" -v b="$(loss_of)" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) < 1e-5) }' ||
    complain "${mesh[*]}: the loss of one rank is $loss"
  notes "$note"
  ends 0 generate --checkpoint kept --prompt word --max-new-tokens 3 --temperature 0 "${mesh[@]}"
}
notes() {
  if [ -n "$1" ]; then says "note: the checkpoint's units of $1 do not fit this mesh: results differ in their last bits"
  else ! grep -q "fit this mesh" "$said" || complain "units that fit do not"; fi
}
on() { printf -- "mesh={axes: [%s], shape: [%s]}" "$1" "$2"; }

ends 0 --config run.yaml --out kept --set numerics.units='{tp: 4, sequence: 4}' --set numerics.reduce_tree=flat
uses "" --set "$(on tp 4)"
uses tp --set "$(on tp 2)"
uses tp --set "$(on tp 3)"
uses "" --set "$(on cp 4)"
uses "the sequence" --set "$(on cp 2)"
uses "tp and the sequence" --set "$(on 'cp, tp' '2, 2')"
ends 0 --config run.yaml --out kept --overwrite --set numerics.units='{sequence: 4}' --set numerics.reduce_tree=flat \
  --set device_config.cp_layout=zigzag
uses "the sequence" --set "$(on cp 2)"
ends 0 --config run.yaml --out kept --overwrite --set numerics.units='{tp: 6, sequence: 4}'
uses "" --set "$(on cp 2)"
uses tp --set "$(on tp 4)"
uses "" --set "$(on tp 2)"
uses tp --set "$(on tp 3)" # two units are no subtree of six
# units that an option gives stay
ends 2 evaluate --checkpoint kept --data text.txt --set "$(on tp 4)" --set numerics.units.tp=6
says "6 tp units do not fit tp = 4"

end_of train.units_of_mesh 37

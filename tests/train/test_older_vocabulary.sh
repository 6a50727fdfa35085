#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of a version that stored a vocabulary of 1,030 tokens in as many rows (older_vocabulary was written by it) is
# resumed, evaluated and verified by one that stores it in 1,152, and says from where on its bits may differ.
# usage: test_older_vocabulary.sh PROGRAM
set -uo pipefail
older=$(realpath tests/train/older_vocabulary)
. tests/commands.sh "$1"

write_text text.txt
cp "$older"/*.yaml .
copy() { mkdir -p "$1" && cp -r "$older/checkpoints" "$older/run.lock" "$1"; }
recipe_of() { grep -o 'recipe [0-9a-f]\{32\}$' "$said"; }
begins="warning: from step 3 on the vocabulary is stored in 1152 rows, not in 1030: the bits may be others than those of the version that wrote 'run/checkpoints/step-00000003'"
stays="the vocabulary of 'run/checkpoints/step-00000005' was stored in 1030 rows to step 3: a run that begins now may have other bits"

# The loss is what that version printed.
copy run
ends 0 evaluate --checkpoint run --data text.txt
says "loss: 6.955361"
ends 0 checkpoint show run
says "table f32 (1030, 4)"

ends 0 --config run.yaml --out run --resume --set training_config.max_steps=5
says "run.yaml:3:34: $begins"
says "run/run.lock: warning: the chain of hashes begins anew at step 3: it is of another recipe"
one=$(grep -o 'weights sha256.*' "$said") mixed=$(recipe_of)
ends 0 checkpoint show run
says "vocab_padded: 1152"
says "vocab_padded.before: 1030 rows to step 3"
ends 0 --config run.yaml --out run --resume --set training_config.max_steps=6
says "warning: $stays"
[ "$(recipe_of)" = "$mixed" ] || complain "another recipe without another change"
ends 2 --config run.yaml --out run --resume --strict --set training_config.max_steps=7
says "error: the vocabulary of 'run/checkpoints/step-00000006' was stored in 1030 rows to step 3"
ends 0 verify run
says "verified: "

# On a mesh the bits after that step are the same.
rm -r run && copy run
ends 0 --config run.yaml --out run --resume --set training_config.max_steps=5 --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
says "$begins"
says "$one"

# A run that begins now has another recipe and no warning.
ends 0 --config run.yaml --out new --set training_config.max_steps=3
! grep -q warning "$said" || complain "a warning without a reason"
[ "$(recipe_of)" != "$mixed" ] || complain "a mixed run has the recipe of a pure one"
ends 0 --config run.yaml --out new --resume --set training_config.max_steps=5
! grep -q warning "$said" || complain "a warning without a reason"

# run.lock: repeated steps have the file's bits or do not.
ends 1 --config run.yaml --locked "$older/run.lock" --out again
says "warning: the vocabulary is stored in 1152 rows, in the run of '$older/run.lock' in 1030: the bits may differ"
says "is the first that differs"

end_of train.older_vocabulary 11

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A mesh that splits below a unit cannot keep the recipe's bits. By policy 'deterministic' it is refused by name;
# by 'fast' it trains, with losses as near to the recipe's as rounding leaves them: 20 steps, 1e-5 of the loss.
# Runs in the source root.
# usage: test_fast.sh PROGRAM
set -euo pipefail

program=$1
. tests/equality/runs.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 meshes=0 config=

wrong() {
  failed=$((failed + 1))
  echo "$config: $1"
  cat "$scratch/said"
}

# The recipe's own losses, with what a mesh is compared to.
recipe() { # MODEL SETTING...
  config=tests/equality/pairs_$1.yaml
  shift
  run_hash "$program" "$config" "$scratch" training_config.max_steps=20 numerics.threads=1 "$@" >/dev/null ||
    { wrong 'the recipe alone does not train'; exit 1; }
  run_losses "$scratch" >"$scratch/want"
  [ "$(wc -l <"$scratch/want")" = 20 ] || { wrong 'not 20 losses'; exit 1; }
}

below() { # ERROR SETTING...
  local error=$1 status=0
  shift
  meshes=$((meshes + 1))
  run_hash "$program" "$config" "$scratch" training_config.max_steps=20 numerics.threads=1 "$@" \
    >/dev/null || status=$?
  [ "$status" = 2 ] || wrong "$*: exit code $status, not 2"
  grep -qF ": error: $error" "$scratch/said" || wrong "$*: not refused with '$error'"

  run_hash "$program" "$config" "$scratch" training_config.max_steps=20 numerics.threads=1 \
    numerics.policy=fast "$@" >/dev/null || { wrong "$*: policy fast does not train"; return 0; }
  run_losses "$scratch" | paste "$scratch/want" - | awk '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1 }
    NF != 2 || !(difference <= 1e-5 * $1) { print "step " NR ": loss " $2 ", but of the recipe " $1; bad = 1 }
    END { exit bad || NR != 20 }' || wrong "$*: policy fast is too far from the recipe"
}

recipe gpt2
below '4 batch units do not fit dp = 8 with 1 microbatch of 1 row a rank' \
  'mesh.axes=[dp]' 'mesh.shape=[8]'
below '4 batch units do not fit dp = 1 with 8 microbatches of 1 row a rank' \
  'mesh.axes=[pp]' 'mesh.shape=[2]' pipeline.microbatches=8
below '4 batch units do not fit dp = 2 with 4 microbatches of 1 row a rank' \
  'mesh.axes=[dp, pp]' 'mesh.shape=[2, 2]' pipeline.microbatches=4 pipeline.schedule=zb_h1 zero.stage=2
below '2 sequence units cannot be split over cp = 4' \
  'mesh.axes=[cp]' 'mesh.shape=[4]' \
  training_config.gradient_accumulation_steps=4 training_config.batch_size=2
below '2 sequence units cannot be split over cp = 2' \
  'mesh.axes=[cp]' 'mesh.shape=[2]' device_config.cp_layout=zigzag \
  training_config.gradient_accumulation_steps=4 training_config.batch_size=2
below '1 sequence units cannot be split over cp = 2' \
  'mesh.axes=[cp]' 'mesh.shape=[2]' numerics.units.sequence=1 \
  training_config.gradient_accumulation_steps=4 training_config.batch_size=2
below '2 sequence units cannot be split over cp = 1, tp = 4' \
  'mesh.axes=[tp]' 'mesh.shape=[4]' device_config.enable_sp=true

recipe llama numerics.units.tp=2
below '2 tp units do not fit tp = 4' 'mesh.axes=[tp]' 'mesh.shape=[4]' numerics.units.tp=2

# Small steps: with the file's own rounding errors grow from one to the next, on some levels tenfold.
recipe qwen3 numerics.units.batch=1 numerics.units.tp=1 training_config.optimizer.lr=0.0003
below '1 batch units do not fit dp = 2 with 1 microbatch of 4 rows a rank' \
  'mesh.axes=[dp, tp]' 'mesh.shape=[2, 2]' numerics.units.batch=1 numerics.units.tp=1 zero.stage=3 \
  training_config.optimizer.lr=0.0003
below '1 tp units do not fit tp = 2' \
  'mesh.axes=[tp]' 'mesh.shape=[2]' numerics.units.batch=1 numerics.units.tp=1 training_config.optimizer.lr=0.0003

echo "$meshes meshes below a unit, $failed complaints"
[ "$meshes" -ge 10 ] && [ "$failed" = 0 ]

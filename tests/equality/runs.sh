# SPDX-License-Identifier: Apache-2.0
# What test_pairs.sh and scripts/equality_sweep share: the settings of a line of pairs.txt, and one run.
# shellcheck shell=bash

# The --set words of a run of the pairs_*.yaml recipes, one a line. Their 8 samples a step are 4 units: a
# pipeline and cp take as many microbatches as there are units for a rank, other meshes two if they can.
# usage: run_settings MESH ZERO ORDER RECOMPUTE OVERLAP THREADS [PARTITION]
run_settings() {
  local mesh=$1 axes shape dp=1 units microbatches
  if [ "$mesh" != 1 ]; then
    axes=${mesh//=[0-9]/} shape=${mesh//[a-z]/}
    shape=${shape//=/}
    printf '%s\n' "mesh.axes=[$axes]" "mesh.shape=[$shape]"
  fi
  [[ $mesh =~ dp=([0-9]+) ]] && dp=${BASH_REMATCH[1]}
  units=$((4 / dp)) microbatches=$((4 / dp))
  case $mesh in
    *pp=*) printf '%s\n' "pipeline.schedule=$3" "pipeline.microbatches=$microbatches" ;;
    *)
      [[ $mesh = *cp=* || $units = 1 ]] || microbatches=2
      printf '%s\n' "training_config.gradient_accumulation_steps=$microbatches" \
        "training_config.batch_size=$((8 / microbatches))"
      ;;
  esac
  local overlap=false
  [ "$5" = on ] && overlap=true
  printf '%s\n' "zero.stage=$2" "schedule.recompute=$4" "schedule.overlap=$overlap" "numerics.threads=$6"
  [ "${7:--}" = - ] || echo "zero.partition=$7"
}

# One run. Prints the hash of its weights; what the program said stays in SCRATCH/said.
# usage: run_hash PROGRAM CONFIG SCRATCH SETTING...
run_hash() {
  local program=$1 config=$2 scratch=$3 args=() set
  shift 3
  for set in "$@"; do args+=(--set "$set"); done
  "$program" --config "$config" --quiet --metrics "$scratch/metrics" "${args[@]}" >"$scratch/said" 2>&1 &&
    tail -n 1 "$scratch/metrics" | sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p'
}

# The losses of the run before, one a line.
# usage: run_losses SCRATCH
run_losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics"; }

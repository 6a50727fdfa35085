#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One process of a job that was started in another way than the others: the job ends at once, with the user's mistake and
# exit code 2, and nothing is left of it.
# usage: test_odd_process.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
patience=40
host=$(hostname)
train=("$program" --config "$recipe" --set training_config.eval_every=0 --set training_config.sample_tokens=0
  --set 'mesh={axes: [dp], shape: [2]}')

# What the program says is the same with either library. mpirun takes a second or two each time, so Open MPI has less.
few=
[ "$library" = mpich ] || few=2

# refused NAME LINE COMMAND...: exit code 2, soon, with this line once
refused() {
  local code=0 begin=$SECONDS
  bounded "${@:3}" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ $code = 2 ] || wrong "$library, $1: exit code $code, not 2" "$scratch/out"
  [ "$(grep -cF -- "$2" "$scratch/out")" = 1 ] || wrong "$library, $1: does not say once: $2" "$scratch/out"
  [ $((SECONDS - begin)) -lt 25 ] || wrong "$library, $1: takes $((SECONDS - begin)) s"
}

refused "a level that is none, of one" "error: TESSERA_ISA: this machine does not run the level 'bogus'" \
  "${launcher[@]}" -n 1 "${train[@]}" : -n 1 env TESSERA_ISA=bogus "${train[@]}"
refused "a level that is none" "error: TESSERA_ISA: this machine does not run the level 'bogus'" \
  env TESSERA_ISA=bogus "${launcher[@]}" -n 2 "${train[@]}"
refused "a transport that is none, of one" "error: TESSERA_TRANSPORT is 'bogus', which is no transport" \
  "${launcher[@]}" -n 1 "${train[@]}" : -n 1 env TESSERA_TRANSPORT=bogus "${train[@]}"
refused "a transport that is none" "error: TESSERA_TRANSPORT is 'bogus', which is no transport" \
  env TESSERA_TRANSPORT=bogus "${launcher[@]}" -n 2 "${train[@]}"
other=mpich
[ "$library" = openmpi ] || other=openmpi
for transport in none $other; do
  refused "TESSERA_TRANSPORT=$transport of one" "error: this process has TESSERA_TRANSPORT=$transport, and another one that was started beside it" \
    "${launcher[@]}" -n 1 "${train[@]}" : -n 1 env TESSERA_TRANSPORT=$transport "${train[@]}"
  grep -qF "has none of that name" "$scratch/out" || wrong "$library: does not say what the other has" "$scratch/out"
  refused "TESSERA_TRANSPORT=$transport of the first" "error: this process has TESSERA_TRANSPORT=$transport, and another one that was started beside it" \
    "${launcher[@]}" -n 1 env TESSERA_TRANSPORT=$transport "${train[@]}" : -n 1 "${train[@]}"
done
# each alone, as all of them ask for
TESSERA_TRANSPORT=none bounded "${launcher[@]}" -n 2 "$program" --config "$recipe" --set training_config.max_steps=1 \
  > "$scratch/out" 2>&1 || wrong "$library: TESSERA_TRANSPORT=none of all" "$scratch/out"
[ "$(grep -c "note: TESSERA_TRANSPORT=none: this process is alone, one of 2 that were started" "$scratch/out")" = 2 ] ||
  wrong "$library: TESSERA_TRANSPORT=none of all: no note" "$scratch/out"
checks=$((checks + 1))

# a command that each process runs for itself, beside others that wait for it
kinds=("check --config $recipe" "plan --config $recipe" --help --version --print-schema "inspect --config $recipe")
for odd in "${kinds[@]: -${few:-${#kinds[@]}}}"; do
  # shellcheck disable=SC2086 # words
  refused "$odd" "= all processes of a job run the same command" "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" $odd
  # shellcheck disable=SC2086 # words
  refused "$odd, first" "= all processes of a job run the same command" "${launcher[@]}" -n 1 "$program" $odd : -n 1 "${train[@]}"
done
grep -qE "error: this process was started beside another one \(pid [0-9]+\) that runs 'train', and runs 'inspect' alone" "$scratch/out" ||
  wrong "$library: does not say which" "$scratch/out"

# another command that is for all processes
refused "profile beside train" "error: process 1 on $host runs 'profile', and process 0 on $host runs 'train'" \
  "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" profile --config "$recipe"

# a command for one process beside others that wait for it: it does nothing. A mistake of its own is said, too.
alone="= all processes of a job run the same command"
words=("tokenize $recipe --out $scratch/made" "import none --out $scratch/made" "export none --out $scratch/made"
  "plan --calibrate $scratch/made" "checkpoint ls none" "checkpoint foo none" "doctor" "kernels")
for odd in "${words[@]:0:${few:-${#words[@]}}}"; do
  # shellcheck disable=SC2086 # words
  refused "$odd" "$alone" "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" $odd
  grep -qF "that runs 'train', and runs '${odd%% *}' alone" "$scratch/out" || wrong "$library, $odd: does not say which" "$scratch/out"
done
# shellcheck disable=SC2086 # words
for odd in "${words[0]}" "${words[3]}" "tokenize none --out $scratch/made"; do
  refused "$odd, first" "$alone" "${launcher[@]}" -n 1 "$program" $odd : -n 1 "${train[@]}"
done
while IFS='|' read -r odd mistake; do
  # shellcheck disable=SC2086 # words
  refused "$odd" "error: $mistake" "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" $odd
  grep -qF -- "$alone" "$scratch/out" || wrong "$library, $odd: does not say that it is alone" "$scratch/out"
done < <(head -n "${few:-99}" << END
kernels --foo|there is no option '--foo'
doctor --foo|there is no option '--foo'
tokenize --badopt|there is no option '--badopt'
doctor --config $recipe|--config belongs to the commands
plan|no configuration: --config FILE or --calibrate is needed
inspect|no configuration: --config FILE or --mesh FILE is needed
export|export needs a checkpoint
checkpoint|checkpoint needs what to do
check --help --foo|there is no option '--foo'
END
)
refused "checkpoint, first" "error: checkpoint needs what to do" "${launcher[@]}" -n 1 "$program" checkpoint : -n 1 "${train[@]}"
# options that print instead of training, with a mistake: the others of the job may train
refused "--version --foo" "error: there is no option '--foo'" "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" --version --foo
[ ! -e "$scratch/made" ] || wrong "$library: a refused process has made its file"

# commands of several processes that are not the same one
for odd in generate evaluate; do
  refused "$odd" "error: process 1 on $host runs '$odd', and process 0 on $host runs 'train'" \
    "${launcher[@]}" -n 1 "${train[@]}" : -n 1 "$program" $odd --checkpoint "$scratch/none"
done
refused "train beside generate" "error: process 1 on $host runs 'train', and process 0 on $host runs 'generate'" \
  "${launcher[@]}" -n 1 "$program" generate --checkpoint "$scratch/none" : -n 1 "${train[@]}"
# one command for a single process by each: one refuses, the other does its work
refused "tokenize beside check" "error: tokenize is for one process, and 2 processes were started" \
  "${launcher[@]}" -n 1 "$program" tokenize "$recipe" --out "$scratch/made" : -n 1 "$program" check --config "$recipe"
# alone under a launcher it is as without one
bounded "${launcher[@]}" -n 1 "$program" tokenize "$recipe" --out "$scratch/made" --quiet > "$scratch/out" 2>&1 &&
  [ -s "$scratch/made" ] || wrong "$library: tokenize by one process under the launcher" "$scratch/out"
checks=$((checks + 1))

# of all of them it is fine
for same in "check --config $recipe" --version; do
  # shellcheck disable=SC2086 # words
  bounded "${launcher[@]}" -n 2 "$program" $same > "$scratch/out" 2>&1 || wrong "$library: $same by all" "$scratch/out"
  [ "$(grep -cE "^(tessera-train |mesh_shape)" "$scratch/out")" = 2 ] || wrong "$library: $same is not done by all" "$scratch/out"
  checks=$((checks + 1))
done

# options come before what follows from them
"${train[@]}" --out "$scratch/kept" --quiet --set training_config.max_steps=2
refused "--resume of one" "is '--resume' here and 'no --resume' there" \
  "${launcher[@]}" -n 1 "${train[@]}" --out "$scratch/kept" : -n 1 "${train[@]}" --out "$scratch/kept" --resume
refused "--overwrite of one" "is 'no --overwrite' here and '--overwrite' there" \
  "${launcher[@]}" -n 1 "${train[@]}" --out "$scratch/kept" --overwrite : -n 1 "${train[@]}" --out "$scratch/kept"
while IFS='|' read -r first second line; do
  # shellcheck disable=SC2086 # words
  refused "'$first' beside '$second'" "$line there" \
    "${launcher[@]}" -n 1 "${train[@]}" $first : -n 1 "${train[@]}" $second
done < <(head -n "${few:-99}" << END
--check-determinism 3||is 'no --check-determinism' here and '--check-determinism 3'
|--check-determinism 3|is '--check-determinism 3' here and 'no --check-determinism'
--check-determinism 2|--check-determinism 3|is '--check-determinism 3' here and '--check-determinism 2'
--dump-grads $scratch/one||is 'no --dump-grads' here and '--dump-grads $scratch/one'
|--dump-grads $scratch/one|is '--dump-grads $scratch/one' here and 'no --dump-grads'
--dump-grads $scratch/one|--dump-grads $scratch/two|is '--dump-grads $scratch/two' here and '--dump-grads $scratch/one'
|--strict|is '--strict' here and 'no --strict'
END
)
[ ! -e "$scratch/one" ] && [ ! -e "$scratch/two" ] || wrong "$library: a refused job has made a folder of gradients"
profile=("$program" profile "${train[@]:1}" --out "$scratch/one")
refused "profile --steps 1 beside 2" "is '--steps 2' here and '--steps 1' there" \
  "${launcher[@]}" -n 1 "${profile[@]}" --steps 1 : -n 1 "${profile[@]}" --steps 2
[ ! -e "$scratch/one" ] || wrong "$library: a refused profile has made its folder"
# what is shown may differ
bounded "${launcher[@]}" -n 1 "${train[@]}" --set training_config.max_steps=1 : \
  -n 1 "${train[@]}" --set training_config.max_steps=1 --quiet --dump mesh > "$scratch/out" 2>&1 ||
  wrong "$library: --quiet of one" "$scratch/out"
checks=$((checks + 1))
[ -d "$scratch/kept/checkpoints/step-00000002" ] || wrong "$library: a refused job has removed checkpoints"

# folders that are seen by one process alone are removed again
mkdir "$scratch/a" "$scratch/b"
seq 3000 | tr '\n' ' ' | tee "$scratch/a/text.txt" > "$scratch/b/text.txt"
local=("${train[@]}" --set training_config.data_path=text.txt)
refused "a relative folder, seen from two" "process 1 does not see the folder 'results/checkpoints' that process 0 has made" \
  "${launcher[@]}" -n 1 -wdir "$scratch/a" "${local[@]}" --out results : -n 1 -wdir "$scratch/b" "${local[@]}" --out results
deep=(--set training_config.checkpoint_dir=one/two/three)
refused "relative checkpoints, seen from two" "process 1 does not see the folder 'one/two/three' that process 0 has made" \
  "${launcher[@]}" -n 1 -wdir "$scratch/a" "${local[@]}" "${deep[@]}" : -n 1 -wdir "$scratch/b" "${local[@]}" "${deep[@]}"
left=$(find "$scratch/a" "$scratch/b" -mindepth 1 ! -name text.txt)
[ -z "$left" ] || wrong "$library: a refused job has left: $left"
report

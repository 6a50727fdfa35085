#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts, each a network and a name of its own, with two processes each; the link of one is cut. For five
# seconds, within the deadline: the run goes on, to the same bits. For good: every process says that those of
# the other host are stopped or cut off, all end within ten seconds of the deadline, and the run goes on on
# the host that is left, to the same bits.
# usage: test_links.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
. tests/processes/hosts.sh
own_namespaces "$0" "$@"
library=$1 build=$2
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
command -v unshare >/dev/null || skip "there is no 'unshare'"

make_hosts east west
install_shared "$build"
export TESSERA_SHARE=$PWD
program=$PWD/build/tessera-train recipe=$PWD/tests/processes/run.yaml

# What ssh is elsewhere.
agent=$shared/agent
cat > "$agent" << END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec nsenter --net=/run/netns/\$host unshare --uts --mount bash -c 'hostname "\$0" && cd $PWD && eval "\$*"' "\$host" "\$@"
END
chmod +x "$agent"
export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
# Processes of one machine that find each other by other means than their network would not notice.
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 OMPI_MCA_btl=tcp,self
if [ "$library" = openmpi ]; then
  printf 'east slots=2\nwest slots=2\n' > "$shared/hosts"
  launcher+=(-n 4 --hostfile "$shared/hosts" --mca plm_rsh_agent "$agent")
else
  printf 'east:2\nwest:2\n' > "$shared/hosts"
  launcher+=(-n 4 -f "$shared/hosts" -launcher ssh -launcher-exec "$agent")
fi

options=(--config "$recipe" --set training_config.eval_every=0
  --set training_config.sample_tokens=0 --set training_config.model_save_interval=10)
mesh=(--set 'mesh={axes: [dp, tp, pp], shape: [2, 2, 2]}')

workers_of() { local pid; for pid in $(ip netns pids "$1"); do
  [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" != "$program" ] || echo "$pid"; done; }
both() { workers_of east; workers_of west; }

# The last step that NAME has a checkpoint of.
newest_of() { echo $((10#0$(find "$shared/$1" -maxdepth 1 -name 'step-????????' 2>/dev/null | sed 's/.*-//' | sort | tail -n 1))); }
wait_for_step() { # NAME STEP: while the job is there
  local i
  for ((i = 0; i < patience * 20; i++)); do
    [ "$(newest_of "$1")" -lt "$2" ] || return 0
    kill -0 "$job" 2>/dev/null || break
    sleep 0.05
  done
  return 1
}
# What a process says does not go through mpirun, which may end before the cut link is up and brings it.
around=(sh -c 'exec "$@" > "$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" 2>&1')
wrong_of() { # NAME TEXT
  cat "$shared/$1".out* > "$scratch/out"
  wrong "$library, $2" "$scratch/out"
}
# cut TIMEOUT NAME: starts a job, which does not end by itself however fast the machine, and cuts west's link at a
# step of chance.
cut() {
  local kept=$shared/$2
  timeout -k 60 "$patience" "${launcher[@]}" "${around[@]}" "$kept.out" "$program" "${options[@]}" "${mesh[@]}" "${endless[@]}" --metrics "$kept.metrics" \
    --set training_config.checkpoint_dir="$kept" --set collectives.timeout_s="$1" < /dev/null > "$kept.out" 2>&1 &
  job=$!
  wait_for_step "$2" $((10 + RANDOM % 4 * 10)) || wrong_of "$2" "$2: no steps before the cut"
  ip link set to_west down
  began=$SECONDS
}
# goes_on NAME WHAT: from what is kept to a step that the job has not reached, to the bits of a run that never stopped.
goes_on() {
  local steps=(--set training_config.max_steps=$(($(newest_of "$1") + 20)) --set training_config.num_epochs=1000000)
  "$program" "${options[@]}" "${steps[@]}" --quiet --metrics "$scratch/alone" --set training_config.checkpoint_dir="$scratch/$1.kept"
  want=$(hash_of "$scratch/alone")
  [ ${#want} = 64 ] || fail "one process gives no hash"
  checks=$((checks + 1))
  "$program" checkpoint verify "$shared/$1" > "$scratch/verify" 2>&1 || wrong "$library, $2: checkpoint" "$scratch/verify"
  code=0
  bounded "$program" "${options[@]}" "${steps[@]}" "${mesh[@]}" --resume --metrics "$shared/$1.metrics" \
    --set training_config.checkpoint_dir="$shared/$1" > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ $code = 0 ] && [ "$(hash_of "$shared/$1.metrics")" = "$want" ] ||
    wrong "$library, $2: does not go on: exit code $code, weights $(hash_of "$shared/$1.metrics"), not $want" "$scratch/out"
}

RANDOM=7
# ---- for five seconds ----
cut 60 short
sleep 5
at=$(newest_of short)
ip link set to_west up
checks=$((checks + 1))
wait_for_step short $((at + 30)) || wrong_of short "a link down for 5 s: does not go on"
kill -TERM "$job"
wait "$job" || true
# mpirun may end before its processes, which hold the run's files until they have saved.
for ((i = 0; i < patience * 10; i++)); do
  [ -n "$(both)" ] || break
  sleep 0.1
done
checks=$((checks + 1))
[ -z "$(both)" ] || wrong_of short "a link down for 5 s: processes are left after SIGTERM: $(both | tr '\n' ' ')"
goes_on short "a link down for 5 s"

# ---- for good ----
timeout_s=3
cut $timeout_s ever
for ((; SECONDS - began <= timeout_s + 10; )); do
  [ -n "$(both)" ] || break
  sleep 0.1
done
echo "$library: all processes ended $((SECONDS - began)) s after the link was cut; the deadline was $timeout_s s"
checks=$((checks + 1))
[ -z "$(both)" ] || wrong_of ever "a cut link: processes are left after $((SECONDS - began)) s: $(both | tr '\n' ' ')"
ip link set to_west up
code=0
wait "$job" || code=$?
echo "$library: mpirun ended $((SECONDS - began)) s after it, with code $code"
checks=$((checks + 1))
[ $code != 0 ] || wrong_of ever "a cut link: ended as if nothing had been"
for other in 'process [01] on east' 'process [23] on west'; do
  checks=$((checks + 1))
  cat "$shared"/ever.out.? | grep -E "$other.*: does not answer: stopped, or its link is cut" > "$scratch/said" ||
    wrong_of ever "a cut link: nobody says so of $other"
done
goes_on ever "a cut link"
report

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm of two nodes, each a host of its own network, name and /tmp: srun, mpirun in an allocation, and
# scripts/slurm/train.sbatch, whose job is queued again when a process dies and when its time is over. One hash.
# usage: test_slurm.sh BUILD_FOLDER
set -euo pipefail
. tests/processes/hosts.sh
own_namespaces "$0" "$@"
library=openmpi build=$1
. tests/processes/common.sh
choose_launcher "$library" || skip "$why"
for tool in slurmctld slurmd srun sbatch salloc scontrol munged; do
  command -v "$tool" >/dev/null || skip "there is no '$tool' (Debian: slurm-wlm and munge; scripts/setup --cluster)"
done

make_hosts east west
install_shared "$build"
export TESSERA_SHARE=$PWD
program=$PWD/build/tessera-train recipe=$PWD/tests/processes/run.yaml

# ---- Slurm, without systemd ----
mkdir -p /run/slurm/state /run/munge
chmod 755 /run/munge
dd if=/dev/urandom of=/run/munge/key bs=1024 count=1 2>/dev/null
chmod 400 /run/munge/key
cat > /run/slurm/slurm.conf << END
ClusterName=tessera
SlurmctldHost=$(hostname)(10.77.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool.%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.%n.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1
KillWait=5
JobCompType=jobcomp/none
NodeName=east NodeAddr=10.77.0.1 CPUs=2
NodeName=west NodeAddr=10.77.0.2 CPUs=2
PartitionName=all Nodes=east,west Default=YES State=UP MaxTime=60
END
export SLURM_CONF=/run/slurm/slurm.conf
munged --force --socket /run/munge/socket --key-file /run/munge/key --pid-file /run/munge/pid \
  --log-file /run/munge/log --seed-file /run/munge/seed 2> "$scratch/out" || { cat "$scratch/out"; fail "munged"; }
slurmctld -D > "$scratch/slurmctld" 2>&1 &
for node in east west; do
  mkdir "/run/slurm/spool.$node"
  # Not `ip netns exec`, which hides /sys/fs/cgroup. /tmp and /dev/shm are each node's own.
  nsenter --net="/run/netns/$node" unshare --uts --mount bash -c '
    hostname "$0" && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && exec slurmd -D -N "$0"' \
    "$node" > "$scratch/slurmd.$node" 2>&1 &
done
for ((i = 0; i < 300; i++)); do
  [ "$(sinfo -h -N -t idle 2>/dev/null | wc -l)" != 2 ] || break
  sleep 0.1
done
if [ "$(sinfo -h -N -t idle 2>/dev/null | wc -l)" != 2 ]; then
  sinfo -N || true
  tail -n 20 /run/slurm/*.log "$scratch"/slurm*
  fail "the nodes are not idle after 30 s"
fi

srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no pmix"

mesh=(--set 'mesh={axes: [dp, tp, pp], shape: [2, 2, 2]}')
"$program" --config "$recipe" --quiet --metrics "$scratch/alone"
want=$(hash_of "$scratch/alone")
[ ${#want} = 64 ] || fail "one process gives no hash"
expect() { # NAME METRICS
  checks=$((checks + 1))
  if [ "$code" != 0 ] || [ "$(hash_of "$2")" != "$want" ]; then
    wrong "$1: exit code $code, weights $(hash_of "$2"), but in one process $want" "$scratch/out"
  fi
}

# ---- srun, and mpirun in an allocation ----
unset TMPDIR
code=0
bounded srun --mpi=pmix -N2 -n4 "$program" --config "$recipe" --metrics "$shared/srun" "${mesh[@]}" > "$scratch/out" 2>&1 || code=$?
expect "srun -N2 -n4" "$shared/srun"
checks=$((checks + 1))
grep -Eq '^processes: 4, .*PMIX_RANK.* on east, .* on west$' "$scratch/out" || wrong "srun: not processes on both nodes" "$scratch/out"

export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
code=0
bounded salloc -N2 -n4 "${launcher[0]}" "$program" --config "$recipe" --metrics "$shared/salloc" "${mesh[@]}" > "$scratch/out" 2>&1 || code=$?
expect "salloc -N2 -n4 mpirun" "$shared/salloc"

code=0
bounded srun --mpi=none -N2 -n2 "$program" --config "$recipe" "${mesh[@]}" > "$scratch/out" 2>&1 || code=$?
checks=$((checks + 1))
[ $code != 0 ] && grep -q 'error: srun started 2 processes (SLURM_STEP_NUM_TASKS=2) that cannot find each other' "$scratch/out" ||
  wrong "srun --mpi=none: exit code $code" "$scratch/out"

# ---- a batch job that is queued again ----
# Its first start has no end of its own, however fast the machine. Before the second one its recipe's last step
# becomes one that the first has not reached.
few=(--set training_config.eval_every=0 --set training_config.sample_tokens=0 --set training_config.num_epochs=1000000)
ends_after() { # NAME STEPS
  sed "s/max_steps: .*/max_steps: $2/" "$recipe" > "$shared/$1.new"
  mv "$shared/$1.new" "$shared/$1.yaml"
}
submit() { # NAME OPTION… : the job's number in `number`, its output in $shared/NAME.log
  ends_after "$1" 1000000
  number=$(sbatch --parsable --output="$shared/$1.log" "${@:2}" scripts/slurm/train.sbatch --config "$shared/$1.yaml" \
    --metrics "$shared/$1" "${mesh[@]}" "${few[@]}" --set training_config.checkpoint_dir="$shared/$1.kept" \
    --set training_config.model_save_interval=20)
}
# Waits until the first start has ended, and lets the second one end; what is wanted then, in `want`.
let_end() { # NAME
  local i newest
  for ((i = 0; i < patience * 10; i++)); do
    ! grep -q 'queued again$' "$shared/$1.log" 2>/dev/null || break
    sleep 0.1
  done
  newest=$(find "$shared/$1.kept" -maxdepth 1 -name 'step-????????' 2>/dev/null | sort | tail -n 1)
  ends_after "$1" $((10#0${newest##*-} + 20))
  "$program" --config "$shared/$1.yaml" --quiet --metrics "$scratch/alone" "${few[@]}"
  want=$(hash_of "$scratch/alone")
}
# A job is between two states for moments when it is queued again. Its next start comes sooner than Slurm would
# have it, but in another second than its end: a credential of the same second would be refused.
wait_for_end() { # NAME MINUTES: of a job that was queued again
  local i ended=0 about state hurried=0
  for ((i = 0; i < 3000 && ended < 100; i++)); do
    about=$(scontrol show job -o "$number")
    state=$(sed 's/.* JobState=\([A-Z]*\).*/\1/' <<< "$about")
    case $state in
    COMPLETED) break ;;
    FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ended=$((ended + 1)) ;;
    *) ended=0 ;;
    esac
    if [ "$state" = PENDING ] && [[ $about =~ \ Restarts=([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -gt $hurried ]; then
      if scontrol update JobId="$number" StartTime=now+3 TimeLimit="$2" 2>/dev/null; then hurried=${BASH_REMATCH[1]}; fi
    fi
    sleep 0.2
  done
  code=0
  cp "$shared/$1.log" "$scratch/out" 2>/dev/null || true
  [ "$state" != COMPLETED ] || return 0
  code="1 ($state)"
  grep "JobId=$number" /run/slurm/slurmctld.log | tail -n 20 >> "$scratch/out" || true
}

submit killed -N2 --ntasks-per-node=2 --time=10
for ((i = 0; i < patience * 10; i++)); do
  [ ! -d "$shared/killed.kept/step-00000020" ] || break
  sleep 0.1
done
for pid in $(ip netns pids west); do
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != tessera-train ] || { kill -KILL "$pid"; break; }
done
let_end killed
wait_for_end killed 10
expect "sbatch, a process killed" "$shared/killed"
checks=$((checks + 1))
grep -q 'train.sbatch: ended with [0-9]*: queued again' "$scratch/out" && grep -q ', start 2: 4 processes' "$scratch/out" &&
  grep -q '^resumes from ' "$scratch/out" || wrong "sbatch, a process killed: not queued again" "$scratch/out"

# The run ends 8 s after its first start.
export TESSERA_MARGIN_S=52
submit late -N1-2 --ntasks-per-node=1 --time=1
let_end late
wait_for_end late 10
expect "sbatch, the time is over" "$shared/late"
checks=$((checks + 1))
grep -q 'train.sbatch: the time is over: queued again' "$scratch/out" && grep -q '^time limit: stops after step ' "$scratch/out" ||
  wrong "sbatch, the time is over: not queued again" "$scratch/out"
report

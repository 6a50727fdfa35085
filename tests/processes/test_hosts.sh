#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts, each a network and a name of its own, by scripts/mpirun_hosts: the bits of one process; and when a
# host is lost, the run goes on with the other one, to the same bits.
# usage: test_hosts.sh openmpi|mpich BUILD_FOLDER
set -euo pipefail
. tests/processes/hosts.sh
own_namespaces "$0" "$@"
library=$1 build=$2
. tests/processes/common.sh
patience=100
choose_launcher "$library" || skip "$why"
command -v unshare >/dev/null || skip "there is no 'unshare'"

make_hosts east west
install_shared "$build"
export TESSERA_SHARE=$PWD
program=$PWD/build/tessera-train recipe=$PWD/tests/processes/run.yaml

# What ssh is elsewhere. A host with a file of its name in `down` does not answer; none does so before `hold` is gone.
mkdir "$shared/down"
agent=$shared/agent
cat > "$agent" << END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
while [ -e $shared/hold ]; do sleep 0.05; done
[ ! -e $shared/down/\$host ] || exit 255
exec nsenter --net=/run/netns/\$host unshare --uts --mount bash -c 'hostname "\$0" && cd $PWD && eval "\$*"' "\$host" "\$@"
END
chmod +x "$agent"
export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
# Here both hosts have the same cores.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1

mesh=(--set 'mesh={axes: [dp, tp, pp], shape: [2, 2, 2]}')
"$program" --config "$recipe" --quiet --metrics "$scratch/alone"
want=$(hash_of "$scratch/alone")
[ ${#want} = 64 ] || fail "one process gives no hash"

printf '# two hosts\neast slots=2\n\nwest slots=2\n' > "$shared/hosts"
start=(scripts/mpirun_hosts --agent "$agent" --mpi "$library" --wait 1)

# ---- the same bits ----
code=0
bounded "${start[@]}" "$shared/hosts" --config "$recipe" --metrics "$shared/metrics" \
  --set training_config.checkpoint_dir="$shared/kept" "${mesh[@]}" > "$scratch/out" 2>&1 || code=$?
checks=$((checks + 1))
[ $code = 0 ] && [ "$(hash_of "$shared/metrics")" = "$want" ] ||
  wrong "$library, two hosts: exit code $code, weights $(hash_of "$shared/metrics"), but in one process $want" "$scratch/out"
checks=$((checks + 1))
grep -Eq '^processes: 4, .*on east, .*on east, .*on west, .*on west$' "$scratch/out" ||
  wrong "$library, two hosts: not two processes on each" "$scratch/out"
checks=$((checks + 1))
"$program" checkpoint verify "$shared/kept" > "$scratch/verify" 2>&1 || wrong "$library, two hosts: checkpoint" "$scratch/verify"

# ---- sums by host, directly, or round a ring: the same bits, and the trace says which ----
for algo in auto hier tree ring; do
  code=0 name=${algo/auto/hier}
  TESSERA_COMM_TRACE=1 bounded "${start[@]}" "$shared/hosts" --config "$recipe" --metrics "$shared/metrics" \
    --set training_config.checkpoint_dir="$shared/sums-$algo" --set 'mesh={axes: [tp], shape: [4]}' \
    --set collectives.all_reduce=$algo > "$scratch/out" 2>&1 || code=$?
  checks=$((checks + 1))
  [ $code = 0 ] && [ "$(hash_of "$shared/metrics")" = "$want" ] ||
    wrong "$library, $algo: exit code $code, weights $(hash_of "$shared/metrics")"
  sums='op=all_reduce axis=tp bytes=[0-9]* algo='
  checks=$((checks + 1))
  # Open MPI forwards the processes' output in pieces, so lines of several processes may run into each other.
  taken=$(grep -o "${sums}[a-z]* tree=binary " "$scratch/out" | sed 's/.* algo=\([a-z]*\) .*/\1/' | sort -u)
  [ "$taken" = "$name" ] || wrong "$library, $algo: not all sums are by $name, but by ${taken//$'\n'/, }"
  checks=$((checks + 1))
  grep -q "transport=$library path=ib " "$scratch/out" && ! grep -q 'path=shm ' "$scratch/out" ||
    wrong "$library, $algo: not all sums cross the network between hosts"
done

# ---- a host is lost, and does not come back ----
# The first start has no end of its own, however fast the machine. Before the second one the recipe's last step
# becomes one that the first has not reached.
few=(--set training_config.eval_every=0 --set training_config.sample_tokens=0 --set training_config.num_epochs=1000000)
ends_after() {
  sed "s/max_steps: .*/max_steps: $1/" "$recipe" > "$shared/lost.yaml"
}
ends_after 1000000
bounded "${start[@]}" "$shared/hosts" --config "$shared/lost.yaml" --metrics "$shared/lost.metrics" "${mesh[@]}" "${few[@]}" \
  --set training_config.checkpoint_dir="$shared/lost" --set training_config.model_save_interval=20 \
  --set collectives.timeout_s=10 > "$scratch/out" 2>&1 &
job=$!
for ((i = 0; i < patience * 10; i++)); do
  [ ! -d "$shared/lost/step-00000020" ] || break
  kill -0 "$job" 2>/dev/null || break
  sleep 0.1
done
touch "$shared/down/west" "$shared/hold"
# All that runs in the network of west.
for pid in $(ip netns pids west); do kill -KILL "$pid" 2>/dev/null || true; done
newest=$(find "$shared/lost" -maxdepth 1 -name 'step-????????' | sort | tail -n 1)
ends_after $((10#0${newest##*-} + 100))
rm "$shared/hold"
code=0
wait "$job" || code=$?
"$program" --config "$shared/lost.yaml" --quiet --metrics "$scratch/alone" "${few[@]}"
want=$(hash_of "$scratch/alone")
checks=$((checks + 1))
[ $code = 0 ] && [ "$(hash_of "$shared/lost.metrics")" = "$want" ] ||
  wrong "$library, a lost host: exit code $code, weights $(hash_of "$shared/lost.metrics"), but in one process $want" "$scratch/out"
checks=$((checks + 1))
grep -qx 'mpirun_hosts: west does not answer: continues without it' "$scratch/out" &&
  grep -qx 'mpirun_hosts: start 2: 2 processes on 1 hosts' "$scratch/out" &&
  grep -q "^resumes from '$shared/lost/step-" "$scratch/out" ||
  wrong "$library, a lost host: does not go on with the other one" "$scratch/out"

# ---- what is not tried again ----
code=0
bounded "${start[@]}" "$shared/hosts" --config "$recipe" --set training_config.nothing=1 > "$scratch/out" 2>&1 || code=$?
checks=$((checks + 1))
[ $code = 2 ] && [ "$(grep -c '^mpirun_hosts: start' "$scratch/out")" = 1 ] || wrong "$library, a mistake: exit code $code" "$scratch/out"
report

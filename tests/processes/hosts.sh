# SPDX-License-Identifier: Apache-2.0
# Hosts that are namespaces; sourced before common.sh. Everything happens inside namespaces of the test's own, of
# processes, mounts and network: when it ends, or is killed, all of it is gone.

# own_namespaces SCRIPT ARGUMENT…: starts the script once more, inside.
own_namespaces() {
  [ -z "${TESSERA_TEST_INSIDE-}" ] || return 0
  local inside=(unshare --mount --net --pid --fork --kill-child --mount-proc)
  [ "$(id -u)" = 0 ] || { echo "skipped: namespaces of the network need root"; exit 77; }
  command -v ip >/dev/null || { echo "skipped: there is no 'ip' (Debian: iproute2)"; exit 77; }
  command -v nsenter >/dev/null || { echo "skipped: there is no 'nsenter' (Debian: util-linux)"; exit 77; }
  "${inside[@]}" true 2>/dev/null || { echo "skipped: namespaces may not be made here"; exit 77; }
  TESSERA_TEST_INSIDE=1 exec "${inside[@]}" bash "$@"
}

# make_hosts NAME…: each has a network of its own, 10.77.0.1, 10.77.0.2, …, all on one bridge, and this one is
# 10.77.0.254. `shared` is a folder that all see.
make_hosts() {
  local i=0 name
  mount -t tmpfs tmpfs /run
  mkdir /run/shared /run/netns
  shared=/run/shared
  ip link set lo up
  ip link add bridge0 type bridge
  ip addr add 10.77.0.254/24 dev bridge0
  ip link set bridge0 up
  printf '127.0.0.1 localhost\n10.77.0.254 %s\n' "$(hostname)" > /run/hosts
  for name in "$@"; do
    i=$((i + 1))
    ip netns add "$name"
    ip link add "to_$name" type veth peer name eth0 netns "$name"
    ip link set "to_$name" master bridge0 up
    ip -n "$name" addr add 10.77.0.$i/24 dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" link set lo up
    echo "10.77.0.$i $name" >> /run/hosts
  done
  mount --bind /run/hosts /etc/hosts
}

# install_shared BUILD: the program, its plugins and what it reads, in a folder that all hosts see, whatever they
# have of their own in /tmp.
install_shared() {
  local root=$PWD
  mkdir -p "$shared/tree/build" "$shared/tree/src" "$shared/tree/tests"
  cp -r "$root/configs" "$root/mesh_descriptors" "$root/scripts" "$shared/tree"
  cp -r "$root/src/base" "$shared/tree/src"
  cp -r "$root/tests/processes" "$shared/tree/tests"
  cp "$1/tessera-train" "$1"/libtessera-*.so "$shared/tree/build"
  cd "$shared/tree"
  build=$shared/tree/build
}

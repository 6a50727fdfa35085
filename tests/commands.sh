# SPDX-License-Identifier: Apache-2.0
# Commands of a user and what they say: what tests of the program's command line share.
# usage, in bash: . tests/commands.sh PROGRAM [PROGRAM_WITH_FAULTS]; it changes into an empty folder, `scratch`
program=$(realpath "$1")
faulty=${2:+$(realpath "$2")} # the same program, which TESSERA_FAULT makes fail (src/base/fault.h)
scratch=$(mktemp -d)
said=$scratch.said # what the last command wrote to both streams
# Not in a child that a signal ends before it is another program.
trap '[ "$BASHPID" != $$ ] || rm -rf "$scratch" "$said"' EXIT
cd "$scratch" || exit 1
unset TT_MESH_GRAPH_DESC_PATH TT_METAL_HOME TESSERA_DETERMINISTIC TESSERA_TIME_LIMIT_STATUS
checks=0 failed=0

complain() {
  failed=$((failed + 1))
  echo "FAILED: $*"
  [ ! -f "$said" ] || sed 's/^/  | /' "$said"
}
# ends CODE WORDS...
ends() {
  local want=$1 code=0
  shift
  checks=$((checks + 1))
  timeout 120 "$program" "$@" > "$said" 2>&1 </dev/null || code=$?
  [ "$code" = "$want" ] || complain "$*: exit code $code, not $want"
}
# with_fault FAULT COMMAND...: ends, or another function that runs $program
with_fault() {
  local program=$faulty
  TESSERA_FAULT=$1 "${@:2}"
}
says() { grep -qF -- "$1" "$said" || complain "does not say: $1"; }

# A file of about 6 KB.
write_text() {
  local i
  for i in $(seq 300); do printf 'word %d of a text. ' $((i * 7919 % 1000)); done > "$1"
}
# end_of NAME CHECKS: the last line of a test, which must have made so many checks
end_of() {
  echo "$1: $checks checks, $failed failed"
  [ "$checks" -ge "$2" ] && [ "$failed" = 0 ]
}

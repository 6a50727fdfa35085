#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The golden harness must see a wrong word, a missing newline, a wrong exit code, a crash and a missing
# program; must compare a stream without a file with nothing; must mask speeds and nothing else; must accept;
# and must hide the developer's environment.
# usage: test_harness.sh RUN_GOLDEN
set -eu
harness=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cases=$scratch/cases

cat > "$scratch/program" <<'END'
#!/bin/sh
case $1 in
echo) shift; for word; do echo "[$word]"; done ;;
env) echo "TT=${TT_METAL_HOME-unset} HERE=${HERE-unset} NO_COLOR=$NO_COLOR TERM=$TERM" ;;
touch) : > "$2/file" && echo "wrote $2/file" ;;
both) echo "[$2]"; echo "warning: two" >&2 ;;
nothing) ;;
speed) printf '%s tokens/s, %s tokens/s of 2 tokens, loss 1.25\n tokens/s\n' "$2" "$3" ;;
fail) echo "error: bad" >&2; exit 2 ;;
crash) kill -SEGV $$ ;;
esac
END
chmod +x "$scratch/program"

# case NAME ARGS: makes a case; its other files are written by the caller
make_case() {
  mkdir -p "$cases/$1"
  printf '%s\n' "$2" > "$cases/$1/args"
}
# expect CODE TEXT: runs the harness on all cases
expect() {
  code=0
  TT_METAL_HOME=/home "$harness" "$scratch/program" "$cases" > "$scratch/log" 2>&1 || code=$?
  if [ "$code" -ne "$1" ] || ! grep -qF -e "$2" "$scratch/log"; then
    echo "expected exit code $1 and '$2', got $code and:"
    cat "$scratch/log"
    exit 1
  fi
  rm -rf "$cases"
}

make_case words "echo one 'two words' \"a \\\" b\" c\\ d ''"
printf '[one]\n[two words]\n[a " b]\n[c d]\n[]\n' > "$cases/words/stdout"
: > "$cases/words/stderr"
make_case env env
echo 'HERE=yes' > "$cases/env/env"
echo 'TT=unset HERE=yes NO_COLOR=1 TERM=dumb' > "$cases/env/stdout"
make_case files 'touch @TMP@'
echo 'wrote @TMP@/file' > "$cases/files/stdout"
make_case fails fail
echo 'error: bad' > "$cases/fails/stderr"
echo 2 > "$cases/fails/exit"
mkdir "$cases/_shared"
make_case speed "speed 12,345 678"
printf '# tokens/s, # tokens/s of 2 tokens, loss 1.25\n tokens/s\n' > "$cases/speed/stdout"
expect 0 'golden: 5 cases, 0 failed'

make_case word 'echo one two three'
printf '[one]\n[too]\n[three]\n' > "$cases/word/stdout"
expect 1 '  - [too]'
make_case newline 'echo one'
printf '[one]' > "$cases/newline/stdout"
expect 1 'lacks the newline'
make_case unmasked "speed 12,345 678"
printf '# tokens/s, # tokens/s of 2 tokens, loss #\n tokens/s\n' > "$cases/unmasked/stdout"
expect 1 '  + # tokens/s, # tokens/s of 2 tokens, loss 1.25'
make_case code fail
expect 1 'exit code 2, expected 0'
make_case crash crash
expect 1 'exit code 139, expected 0'
make_case empty 'echo one'
: > "$cases/empty/stdout"
expect 1 '  + [one]'
make_case unexpected_stdout 'both one'
echo 'warning: two' > "$cases/unexpected_stdout/stderr"
expect 1 '  + [one]'
make_case unexpected_stderr 'both one'
echo '[one]' > "$cases/unexpected_stderr/stdout"
expect 1 '  + warning: two'
make_case bare nothing
expect 1 'neither stdout nor stderr'
make_case quiet nothing
: > "$cases/quiet/stdout"
expect 0 'golden: 1 cases, 0 failed'
make_case said_nothing nothing
echo '[one]' > "$cases/said_nothing/stdout"
expect 1 '  - [one]'
mkdir -p "$cases/noargs"
expect 1 "no file 'args'"
mkdir -p "$cases"
expect 1 'golden: 0 cases'

make_case new fail
make_case old 'echo new'
echo '[old]' > "$cases/old/stdout"
echo 'error: old' > "$cases/old/stderr"
echo 2 > "$cases/old/exit"
make_case silent nothing
"$harness" "$scratch/program" "$cases" --accept > /dev/null
grep -qx 'error: bad' "$cases/new/stderr" && grep -qx 2 "$cases/new/exit" && [ ! -e "$cases/new/stdout" ]
grep -qx '\[new\]' "$cases/old/stdout" && [ ! -e "$cases/old/stderr" ] && [ ! -e "$cases/old/exit" ]
[ -e "$cases/silent/stdout" ] && [ ! -e "$cases/silent/stderr" ]
expect 0 'golden: 3 cases, 0 failed'
echo "harness: all as expected"

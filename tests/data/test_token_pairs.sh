#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokens that mean nothing without a file beside them (Megatron's .idx, the list of characters): both are of one command
# and one text. A command that fails changes neither, one that is killed leaves no file of it beside an old one, and of
# two at once one is refused.
# usage: test_token_pairs.sh PROGRAM PROGRAM_WITH_FAULTS
set -uo pipefail
. tests/commands.sh "$1" "$2"

seq 1 400 > old.txt
seq 1000 1300 | tr '0123456789' 'abcdefghij' > new.txt
picture() { (cd "$1" && find . -printf '%p %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort -k2); }

kind() {
  side=q.idx words=(--format megatron)
  [ "$1" = megatron ] || side=q.bin.chars.txt words=(--tokenizer char)
}
for name in megatron chars; do
  kind $name
  for text in old new; do
    mkdir "$name.$text"
    ends 0 tokenize $text.txt --out "$name.$text/q.bin" "${words[@]}" --quiet
    [ -s "$name.$text/$side" ] || complain "$name: no $side"
  done
done

# of WHICH FILE: whether it is that text's, of the kind
of() { cmp -s "q/$2" "$name.$1/$2"; }
is_pair() { of "$1" q.bin && of "$1" $side; }

# Each operation fails, over a pair that is there and over nothing.
for name in megatron chars; do
  kind $name
  failures=0
  for before in "$name.old" nothing; do
    for n in $(seq 60); do
      rm -rf q && mkdir q
      [ $before = nothing ] || cp $before/* q
      was=$(picture q) code=0
      TESSERA_FAULT=EIO@$n "$faulty" tokenize new.txt --out q/q.bin "${words[@]}" --overwrite > "$said" 2>&1 < /dev/null || code=$?
      checks=$((checks + 1))
      if [ $code = 0 ]; then
        is_pair new || complain "$name, EIO@$n: exit code 0, and it is not the new pair"
        continue
      fi
      failures=$((failures + 1))
      says "Input/output error"
      [ "$(picture q)" = "$was" ] || complain "$name over $before, EIO@$n: a command that failed has changed something: $(ls q)"
    done
  done
  [ $failures -ge 15 ] || complain "$name: only $failures operations failed"
done

# Killed before and behind each operation: the old pair, the new one, or one of the files is missing.
for name in megatron chars; do
  kind $name
  olds=0 news=0
  for n in $(seq 40); do
    for how in kill killed; do
      rm -rf q && cp -r "$name.old" q
      { TESSERA_FAULT=$how@$n "$faulty" tokenize new.txt --out q/q.bin "${words[@]}" --overwrite > "$said" 2>&1; } 2> /dev/null < /dev/null
      checks=$((checks + 1))
      if is_pair old; then olds=$((olds + 1)) && continue; fi
      if is_pair new; then news=$((news + 1)) && continue; fi
      [ ! -e q/q.bin ] || [ ! -e q/$side ] || complain "$name, $how@$n: a mixed pair"
      ends 0 tokenize new.txt --out q/q.bin "${words[@]}" --overwrite --quiet
      is_pair new || complain "$name, $how@$n: no pair behind a killed command"
      [ -z "$(find q -name "*.tmp")" ] || complain "$name, $how@$n: a file of a killed command is left"
    done
  done
  [ $olds -ge 5 ] && [ $news -ge 5 ] || complain "$name: $olds old and $news new pairs"
done

# A file that cannot be replaced, on a file system that knows such files
for name in megatron chars; do
  kind $name
  for file in q.bin $side; do
    rm -rf q && cp -r "$name.old" q
    chattr +i "q/$file" 2> /dev/null || continue
    was=$(picture q)
    ends 2 tokenize new.txt --out q/q.bin "${words[@]}" --overwrite
    [ "$(picture q)" = "$was" ] || complain "$name: '$file' cannot be replaced, and something has changed"
    chattr -i "q/$file"
  done
done

# Two at once: the second is refused, with the number of the first; or one comes behind the other.
for name in megatron chars; do
  kind $name
  rm -rf q && cp -r "$name.old" q
  TESSERA_FAULT=slow@5-14 "$faulty" tokenize new.txt --out q/q.bin "${words[@]}" --overwrite > slow.said 2>&1 < /dev/null &
  pid=$!
  for _ in $(seq 100); do ls q/q.bin.*.tmp > /dev/null 2>&1 && break; sleep 0.02; done
  for out in q/q.bin q/q; do
    [ $name = megatron ] || [ $out = q/q.bin ] || continue
    ends 2 tokenize old.txt --out $out "${words[@]}" --overwrite
    says "error: '$out' is in use by process $pid on $(hostname)"
  done
  wait $pid
  code=$?
  checks=$((checks + 1))
  [ $code = 0 ] && is_pair new || complain "$name: exit code $code beside another one"
  for _ in $(seq 10); do
    rm -rf q && mkdir q
    "$program" tokenize new.txt --out q/q.bin "${words[@]}" --overwrite > one.said 2>&1 < /dev/null &
    one=$!
    "$program" tokenize old.txt --out q/q.bin "${words[@]}" --overwrite > two.said 2>&1 < /dev/null &
    two=$!
    wait $one; a=$?
    wait $two; b=$?
    checks=$((checks + 1))
    is_pair old || is_pair new || complain "$name: two at once ended with $a and $b and have left a mixed pair"
  done
done
[ -z "$(find . -name '*.lock')" ] || complain "a lock is left"
end_of data.token_pairs 300

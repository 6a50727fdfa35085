#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files are opened, made, changed and removed through src/base/file_ops.h, where tests make each operation fail. Outside
# src/base the functions of the C library that do so are called only where this table says so, with the reason.
# usage: check_files.sh ROOT
set -eu
cd "$1"
# shellcheck disable=SC2016 # $0 is awk's
find src kernels -name '*.[ch]' ! -path 'src/base/*' | sort | xargs awk '
  BEGIN {
    # file, function: how many calls, and why
    allow("src/cli/kernel_bench/bench.c", "mmap", 1, "memory without a file")
    allow("src/cli/kernel_bench/cache_sizes.c", "fopen", 1, "/sys: the sizes of caches")
    allow("src/checkpoint/folder_writer.c", "sync_file_range", 1, "a hint to the kernel, of which nothing depends")
    allow("src/comm/peers.c", "fopen", 1, "/proc: who a process is")
    allow("src/cli/doctor/subprocess.c", "freopen", 2, "/dev/null for a child that may print")
    allow("src/main.c", "open", 1, "/dev/null for a closed standard stream")
    allow("src/runtime/process.c", "fopen", 1, "/proc: memory of this process")
    allow("src/train/calibrate.c", "fopen", 1, "/sys: the memory limit")
    words = "(fopen|fdopen|freopen|tmpfile|creat|open|openat|mkstemp|mkdtemp|opendir|fdopendir|scandir|nftw|" \
            "unlink|unlinkat|remove|rename|renameat|link|symlink|mkdir|mkdirat|rmdir|mknod|mkfifo|truncate|ftruncate|" \
            "fallocate|posix_fallocate|mmap|msync|flock|lockf|fsync|fdatasync|sync_file_range|sendfile|pwrite|pread)"
  }
  function allow(file, word, count, why) { allowed[file, word] = count }
  { lines++; text = $0; gsub(/"([^"\\]|\\.)*"/, "\"\"", text); sub(/\/\/.*/, "", text); sub(/\/\*.*/, "", text) }
  /^ \*|^\/\*/ { next }
  {
    # a call: not a member, nor a part of a longer name
    while (match(text, "(^|[^A-Za-z0-9_.>])" words "\\(")) {
      word = substr(text, RSTART, RLENGTH - 1)
      sub(/^[^a-z]/, "", word)
      text = substr(text, RSTART + RLENGTH)
      calls++
      if (++found[FILENAME, word] > allowed[FILENAME, word]) {
        printf "%s:%d: %s: a file operation outside src/base/file_ops.h, where no test can make it fail\n", FILENAME, FNR, word
        bad = 1
      }
    }
  }
  END {
    for (each in allowed) {
      split(each, part, SUBSEP)
      if (found[each] != allowed[each]) {
        printf "%s: %d calls of %s, not the %d that this test lists\n", part[1], found[each], part[2], allowed[each]
        bad = 1
      }
    }
    if (lines < 1000 || calls < 5) { printf "only %d lines and %d calls were looked at\n", lines, calls; bad = 1 }
    exit bad
  }'

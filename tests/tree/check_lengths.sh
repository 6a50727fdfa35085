#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No function of more than 70 lines, no file of more than 500, in src/ and kernels/. A function begins at
# the last line that starts in column 1 before its body, and ends at a brace in column 1, as clang-format
# writes them. In src/ no function has more than ten parameters: it takes a struct (kernels are plain math on
# pointers, and have as many as they have operands and sizes; so have their stand-ins in launch_recorder*.c).
# usage: check_lengths.sh ROOT
set -eu
cd "$1"
# shellcheck disable=SC2016 # $0 is awk's
find src kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' | sort | xargs awk '
  FNR == 1 { report_file(); file = FILENAME; start = 0; continued = 0 }
  { lines = FNR }
  !continued && /^[A-Za-z_]/ && (!start || body == "") { start = FNR; head = $0; body = signature = "" }
  start && body == "" { signature = signature $0 }
  start && /\{[^}]*$/ && body == "" { body = "open"; if (FNR != start) head = head $0; check_parameters() }
  /^}/ {
    is_function = head ~ /\(/ && head !~ /=/ && head !~ /^(typedef|enum)/
    if (start && is_function && FNR - start + 1 > 70) {
      printf "%s:%d: a function of %d lines; 70 at most\n", FILENAME, start, FNR - start + 1
      bad = 1
    }
    start = 0
    body = ""
  }
  { continued = /\\$/ }
  END {
    report_file()
    if (functions < 1000) { printf "only %d functions were looked at\n", functions; bad = 1 }
    exit bad
  }
  function check_parameters() {
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", signature)
    if (FILENAME !~ /^src/ || FILENAME ~ /launch_recorder/) return
    if (signature !~ /\(/ || signature ~ /=/ || signature ~ /^(typedef|enum)/) return
    functions++
    if (gsub(/,/, "", signature) < 10) return
    printf "%s:%d: a function of more than ten parameters\n", FILENAME, start
    bad = 1
  }
  function report_file() {
    if (lines > 500) { printf "%s: a file of %d lines; 500 at most\n", file, lines; bad = 1 }
    lines = 0
  }'

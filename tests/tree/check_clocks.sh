#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A wait with a timeout must not depend on the clock of the day, which is set: every condition variable that is waited
# on with a timeout is made with CLOCK_MONOTONIC, and its deadlines are of that clock.
# usage: check_clocks.sh ROOT
set -eu
cd "$1"
# shellcheck disable=SC2016 # $0 is awk's
find src -name '*.c' | sort | xargs awk '
  # the last name of an expression such as &s->changed
  function name_of(text) { sub(/^[^(]*\([ ]*&?/, "", text); sub(/[,)].*/, "", text); sub(/.*(->|\.)/, "", text); return text }
  # its names are of the folder: a member of a struct is waited on in other files than the one that makes it
  function scope(file) { sub(/[^\/]*$/, "", file); return file }
  FNR == 1 { attribute = "" }
  /CLOCK_REALTIME|sem_timedwait|pthread_mutex_timedlock|mtx_timedlock|cnd_timedwait/ {
    printf "%s:%d: waits by the clock of the day\n", FILENAME, FNR
    bad = 1
  }
  match($0, /pthread_condattr_setclock\(&[a-z_]+, CLOCK_MONOTONIC\)/) {
    attribute = substr($0, RSTART, RLENGTH)
    sub(/.*&/, "", attribute)
    sub(/,.*/, "", attribute)
  }
  match($0, /pthread_cond_init\(.*\)/) {
    text = substr($0, RSTART, RLENGTH)
    if (attribute != "" && text ~ (", &" attribute "\\)")) monotonic[scope(FILENAME), name_of(text)] = 1
  }
  match($0, /pthread_cond_(timed|clock)wait\(.*/) {
    text = substr($0, RSTART, RLENGTH)
    waits++
    if (text ~ /^pthread_cond_clockwait/ && text ~ /CLOCK_MONOTONIC/) next
    waited[scope(FILENAME), name_of(text)] = FILENAME ":" FNR
  }
  END {
    for (each in waited)
      if (!(each in monotonic)) {
        printf "%s: waits with a timeout on a condition variable that was not made with CLOCK_MONOTONIC\n", waited[each]
        bad = 1
      }
    if (waits < 2) { print "only " waits + 0 " waits were found"; bad = 1 }
    exit bad
  }'

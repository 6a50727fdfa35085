#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The arithmetic of scripts/bench, and that PROGRAM means the models that it counts.
# usage: test_bench.sh PROGRAM
set -eu
command -v python3 >/dev/null || {
  echo "skipped: there is no 'python3'"
  exit 77
}
exec python3 -B tests/kernels/test_bench.py "$1"

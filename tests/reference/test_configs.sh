#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `check` accepts every configuration that is shipped. Runs in the source root.
# usage: test_configs.sh PROGRAM
set -euo pipefail

program=$1
failed=0
count=0
for config in configs/runs/*.yaml configs/examples/*.yaml configs/calibration/*.yaml; do
  count=$((count + 1))
  if ! said=$("$program" check --config "$config" 2>&1 >/dev/null); then
    echo "check --config $config failed:"
    failed=$((failed + 1))
  fi
  [ -z "$said" ] || echo "$said"
done
echo "$count configurations, $failed refused"
[ "$failed" = 0 ] && [ "$count" -ge 12 ]

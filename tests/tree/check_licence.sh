#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every source and script names its licence in one of its first two lines.
# usage: check_licence.sh ROOT
set -euo pipefail
cd "$1"
mapfile -t files < <(find src kernels tests scripts -name __pycache__ -prune -o -type f \
  \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' -o -name '*.inc' \
  -o -name '*.py' -o -name '*.sh' -o -path 'scripts/*' \) -print)
[ ${#files[@]} -gt 500 ] || { echo "only ${#files[@]} files were looked at"; exit 1; }
missing=0
for file in "${files[@]}"; do
  { read -r first; read -r second; } <"$file" || true
  case "$first$second" in
  *"SPDX-License-Identifier: Apache-2.0"*) ;;
  *) echo "$file: no line 'SPDX-License-Identifier: Apache-2.0'"; missing=1 ;;
  esac
done
exit $missing

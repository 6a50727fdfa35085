# SPDX-License-Identifier: Apache-2.0
"""Makes the C source of a page: an array of its bytes, and their number.
usage: page_source.py PAGE.html HEADER SYMBOL OUTPUT.c"""

import sys
from pathlib import Path

page, header, symbol, output = Path(sys.argv[1]).read_bytes(), *sys.argv[2:]
rows = ["    " + ", ".join(f"(char){byte}" for byte in page[at:at + 20]) + ",\n" for at in range(0, len(page), 20)]
Path(output).write_text(f'#include "{header}"\n\nconst char {symbol}[] = {{\n{"".join(rows)}}};\n'
                        f"const size_t {symbol}_bytes = {len(page)};\n")

# SPDX-License-Identifier: Apache-2.0
"""Makes the C source of the chat page.
usage: chat_page.py PAGE.html OUTPUT.c"""

import sys
from pathlib import Path

page = Path(sys.argv[1]).read_bytes()
rows = [", ".join(f"{byte}" for byte in page[at:at + 20]) for at in range(0, len(page), 20)]
Path(sys.argv[2]).write_text(
    '#include "serve/chat_page.h"\n\nconst char tsr_chat_page[] = {\n' + "".join(f"    (char){row.replace(', ', ', (char)')},\n" for row in rows)
    + f"}};\nconst size_t tsr_chat_page_bytes = {len(page)};\n")

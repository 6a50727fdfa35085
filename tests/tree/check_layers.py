# SPDX-License-Identifier: Apache-2.0
"""The layers of src/ and kernels/: which folder may include which, which folder may name a third-party header, and that
inside a folder no two object files use each other's symbols.

usage: check_layers.py ROOT BUILD"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# What a folder may include besides itself and base. docs/architecture.md has the reasons.
FOUNDATION = "config mesh graph kernels"
ALLOWED = {
    "base": "",
    "jinja": "",
    "tokenizer": "",
    "config": "",
    "mesh": "",
    "graph": "",
    "kernels": "",
    "parallel": "config mesh",
    "interpreter": "graph",
    "model": "config graph",
    "passes": "graph",
    "schedule": "graph",
    "plan": "schedule graph parallel mesh config",
    "pictures": "plan schedule graph parallel mesh config",
    "device": "kernels schedule graph",
    "comm": "schedule graph device kernels",
    "runtime": "comm device schedule graph kernels parallel",
    "job": "runtime comm device parallel config mesh",
    "data": "config jinja tokenizer kernels",  # kernels: the generator of random numbers
    "checkpoint": "runtime data tokenizer model config graph kernels",
    "tensorboard": "",
    "tui": "",
    "report": "runtime plan schedule comm parallel config",
    "html_report": "config graph parallel schedule plan checkpoint report",
    "train": f"{FOUNDATION} parallel model passes schedule plan pictures device comm runtime job data tokenizer checkpoint report "
             "tensorboard tui",
    "compare": f"{FOUNDATION} parallel passes runtime device data checkpoint report train",
    "prove": f"{FOUNDATION} parallel model runtime device train report interpreter",
    "http": "",
    "serve": "http jinja config graph runtime data tokenizer checkpoint train",
    "watch": "html_report http",
    "sweep": "config kernels html_report train",
    "cli": f"{FOUNDATION} parallel model passes schedule plan device comm runtime job data tokenizer checkpoint report tensorboard "
           "html_report train compare prove http serve watch tui sweep",
    "main": "cli config job",
}
# A third-party header, by how its name begins: the only folders that may name it.
THIRD_PARTY = {
    "yaml.h": "config data model",
    "sanitizer/": "base",
    "protobuf-c/": "mesh tensorboard",
    "cjson/": "base report",
    "xxhash.h": "base data tokenizer",
    "oniguruma.h": "tokenizer",
    "utf8proc.h": "jinja tokenizer",
    "nettle/": "base",
    "microhttpd.h": "http serve watch",
    "mpi.h": "comm",
    "nccl.h": "comm device",
    "cuda": "device kernels",
    "cublas": "device kernels",
    "mma.h": "kernels",
}
STANDARD = set("""assert ctype dirent dlfcn errno fcntl fenv float getopt glob inttypes langinfo libgen limits locale
 malloc math netdb poll pthread regex sched setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib
 stdnoreturn string strings termios time unistd wchar arpa/inet netinet/in netinet/tcp sys/auxv sys/file sys/ioctl
 sys/mman sys/prctl sys/random sys/resource sys/socket sys/stat sys/statvfs sys/syscall sys/sysinfo sys/time sys/types
 sys/uio sys/un sys/utsname sys/wait linux/futex cpuid immintrin arm_neon""".split())
# Pairs of object files that may use each other's symbols, with the reason.
CIRCLES: dict[frozenset[str], str] = {}


def folder_of(path: Path) -> str:
    parts = path.parts
    if parts[0] == "src":
        return "main" if len(parts) == 2 else parts[1]
    return parts[0]


def check_quoted(path: Path, header: str, root: Path) -> str:
    """What is wrong with an include of ours; "": nothing."""
    folder = folder_of(path)
    if header.endswith("pb-c.h"):
        return "" if folder in ("mesh", "tensorboard") else f'"{header}" belongs to mesh and tensorboard only'
    target = folder_of(Path("src") / header) if (root / "src" / header).exists() else folder_of(Path(header))
    if "/" not in header or target not in ALLOWED:
        return f'"{header}" is named by no path from src/'
    if target not in [folder, "base", *ALLOWED[folder].split()]:
        return f'"{header}": {folder} may not include {target}'
    return ""


def check_system(path: Path, header: str) -> str:
    folder = folder_of(path)
    if header.removesuffix(".h") in STANDARD:
        return ""
    for prefix, places in THIRD_PARTY.items():
        if header.startswith(prefix):
            return "" if folder in places.split() else f"<{header}> belongs to {places} only"
    return f"<{header}> has no folder in this test"


def check_includes(root: Path) -> tuple[list[str], int]:
    wrong, seen = [], 0
    for top in ("src", "kernels"):
        for suffix in ("c", "h", "def", "inc", "cu", "cuh"):
            for file in sorted((root / top).rglob(f"*.{suffix}")):
                path = file.relative_to(root)
                for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                    found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
                    if not found:
                        continue
                    seen += 1
                    quoted, header = found.group(1) == '"', found.group(2)
                    problem = check_quoted(path, header, root) if quoted else check_system(path, header)
                    if problem:
                        wrong.append(f"{path}:{number}: {problem}")
    return wrong, seen


def symbols(archive: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Global symbols that the object files of an archive define, and those that they use."""
    text = subprocess.run(["nm", "-A", "-g", archive], capture_output=True, text=True, check=True).stdout
    defines, uses = defaultdict(set), defaultdict(set)
    for line in text.splitlines():
        found = re.match(r".*?:?([^:/]+\.o):\s*[0-9a-f]*\s+(\w)\s+(\S+)$", line)
        if found:
            kind = uses if found.group(2) == "U" else defines
            kind[found.group(1)].add(found.group(3))
    return defines, uses


def check_circles(archives: list[Path]) -> tuple[list[str], int, set[frozenset[str]]]:
    wrong, pairs, used = [], 0, set()
    for archive in archives:
        defines, uses = symbols(archive)
        names = sorted(defines)
        for i, first in enumerate(names):
            for second in names[i + 1:]:
                there, back = uses[first] & defines[second], uses[second] & defines[first]
                pairs += 1
                pair = frozenset({first.removesuffix(".c.o"), second.removesuffix(".c.o")})
                if there and back and pair in CIRCLES:
                    used.add(pair)
                elif there and back:
                    wrong.append(f"{archive.name}: {first} uses {sorted(there)[0]} of {second}, which uses "
                                 f"{sorted(back)[0]} of {first}")
    return wrong, pairs, used


def main() -> int:
    root, build = Path(sys.argv[1]), Path(sys.argv[2])
    wrong, includes = check_includes(root)
    archives = sorted([*(build / "src").rglob("libtsr_*.a"), *(build / "kernels").glob("libtsr_*.a")])
    circles, pairs, used = check_circles(archives)
    wrong += circles + [f"a listed pair is no circle any more: {sorted(pair)}" for pair in CIRCLES.keys() - used]
    print("\n".join(wrong))
    print(f"{includes} includes, {len(archives)} archives, {pairs} pairs of object files, {len(wrong)} wrong")
    return 1 if wrong or includes < 1000 or pairs < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/bin/sh
# A folder of src/ includes itself and what stands before it in the way of the data, never upwards; and a
# third-party header stays in its place (docs/architecture.md).
# usage: check_includes.sh ROOT
set -eu
cd "$1"
# shellcheck disable=SC2016 # $0 is awk's
find src kernels -name '*.[ch]' -o -name '*.def' -o -name '*.inc' | sort | xargs awk '
  BEGIN {
    n = split("base config mesh parallel graph interpreter model passes schedule plan kernels device comm run bench " \
              "doctor data checkpoint report train prove main", order, " ")
    for (i = 1; i <= n; i++) rank[order[i]] = i
    # what a folder must not know, although it stands before it
    forbidden["graph"] = " config mesh parallel "
    forbidden["interpreter"] = " config mesh parallel "
    forbidden["comm"] = " mesh parallel "
    # header (as a prefix) -> the only folders that may name it
    place["yaml.h"] = " config data model "
    place["protobuf-c/"] = " mesh report "
    place["cjson/"] = " base report "
    place["xxhash.h"] = " checkpoint data "
    place["pcre2.h"] = " data "
    place["mpi.h"] = " comm "
    place["nccl.h"] = " comm device "
    place["cuda"] = " device kernels "
    split("assert ctype dirent dlfcn errno fcntl fenv float getopt glob inttypes langinfo libgen limits " \
          "locale malloc math netdb poll pthread sched setjmp signal spawn stdalign stdarg stdatomic " \
          "stdbool stddef stdint stdio stdlib stdnoreturn string strings termios time unistd wchar " \
          "arpa/inet netinet/in netinet/tcp sys/auxv sys/file sys/ioctl sys/mman sys/prctl sys/random " \
          "sys/resource sys/socket sys/stat sys/statvfs sys/syscall sys/sysinfo sys/time sys/types " \
          "sys/uio sys/un sys/utsname sys/wait linux/futex cpuid immintrin arm_neon", names, " ")
    for (i in names) standard[names[i] ".h"] = 1
  }
  function complain(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }
  function folder_of(path,   part, count) {
    count = split(path, part, "/")
    if (part[1] == "src") return count == 2 ? "main" : part[2]
    return part[1]
  }
  # Whether a header of somebody else is known, and in its place.
  function check_foreign(header, folder,   prefix, known) {
    if (header in standard) return
    for (prefix in place) {
      if (index(header, prefix) != 1) continue
      known = 1
      if (!index(place[prefix], " " folder " ")) complain("<" header "> belongs to" place[prefix] "only")
    }
    if (known) return
    # any other library lives in one folder
    prefix = header
    sub(/\/.*/, "", prefix)
    if (!(prefix in home)) home[prefix] = folder
    else if (home[prefix] != folder) complain("<" header "> stands in " home[prefix] " and in " folder)
  }
  FNR == 1 { folder = folder_of(FILENAME) }
  /^[ \t]*#[ \t]*include[ \t]*</ {
    header = $0
    sub(/^[^<]*</, "", header)
    sub(/>.*/, "", header)
    check_foreign(header, folder)
  }
  /^[ \t]*#[ \t]*include[ \t]*"/ {
    header = $0
    sub(/^[^"]*"/, "", header)
    sub(/".*/, "", header)
    target = index(header, "/") ? header : folder "/" header
    sub(/\/.*/, "", target)
    if (!(folder in rank)) complain("folder " folder " is not in the order that this test knows")
    else if (header ~ /pb-c\.h$/) check_foreign("protobuf-c/", folder)
    else if (!(target in rank)) complain("\"" header "\" is in no folder of src")
    else if (rank[target] > rank[folder]) complain("\"" header "\": " folder " includes upwards")
    else if (folder == "kernels" && target != "kernels" && target != "base")
      complain("\"" header "\": kernels knows nothing of src but base")
    else if (index(forbidden[folder], " " target " "))
      complain("\"" header "\": " folder " must not know " target)
  }
  END { exit bad }'

// SPDX-License-Identifier: Apache-2.0
/* What started this process, which plugin that needs, and what is said when it is not to be had.
 * usage: test_probe FOLDER (of the bad plugins) */
#include "../check.h"
#include "base/file_read.h"
#include "comm/transport.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char *scratch;  /* where plugins are put under the name that is looked for */
static char own[4096]; /* the folder of this program */
static tsr_arena *texts;

static void clear_environment(void) {
  static const char *const names[] = {
      "TESSERA_TRANSPORT", "TESSERA_PLUGIN_PATH", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
      "PMI_SIZE",          "PMIX_RANK",           "SLURM_STEP_NUM_TASKS"};
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) unsetenv(names[i]);
}

/* Opens with these variables ("NAME=value NAME=value"); the text of what it says, or "". */
static const char *open_with(const char *variables, tsr_transport *ret_transport, int *ret_code) {
  static char text[8192];
  char copy[1024], *rest = copy;
  clear_environment();
  snprintf(copy, sizeof copy, "%s", variables);
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    char *equals = strchr(word, '=');
    *equals = 0;
    setenv(word, equals + 1, 1);
  }
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  bool ok = tsr_transport_open(arena, ret_transport, diags);
  memset(text, 0, sizeof text);
  FILE *stream = fmemopen(text, sizeof text - 1, "w");
  tsr_diags_print(diags, stream);
  fclose(stream);
  *ret_code = tsr_diags_exit_code(diags);
  CHECK(ok == (*ret_code == 0));
  CHECK(!ret_transport->table);
  CHECK_INT(ret_transport->processes, 1);
  if (ok) snprintf(text, sizeof text, "%s", ret_transport->why);
  tsr_arena_free(arena);
  return text;
}

static void check_says(const char *variables, int code, const char *want) {
  tsr_transport t;
  int got_code;
  const char *got = open_with(variables, &t, &got_code);
  CHECK_STR(got, want);
  CHECK_AT(got_code == code, "with %s the code is %d, not %d", variables, got_code, code);
}

/* Processes that are alone, and why. */
static void test_alone(void) {
  check_says("", 0, "no launcher");
  check_says("TESSERA_TRANSPORT=", 0, "no launcher");
  check_says("TESSERA_TRANSPORT=none", 0, "TESSERA_TRANSPORT=none");
  check_says("TESSERA_TRANSPORT=none OMPI_COMM_WORLD_SIZE=4", 0, "TESSERA_TRANSPORT=none");
  check_says("OMPI_COMM_WORLD_SIZE=1", 0, "OMPI_COMM_WORLD_SIZE=1");
  check_says("PMI_RANK=0 PMI_SIZE=1", 0, "PMI_SIZE=1");
  check_says("PMI_RANK=0", 0, "no launcher");
  check_says("TESSERA_TRANSPORT=mpich PMI_RANK=0 PMI_SIZE=1", 0, "PMI_SIZE=1");
  check_says("SLURM_STEP_NUM_TASKS=1", 0, "SLURM_STEP_NUM_TASKS=1");
  check_says("PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1", 0, "PMIX_RANK=0 and SLURM_STEP_NUM_TASKS=1");
}

/* The user's mistakes: exit code 2. */
static void test_mistakes(void) {
  check_says(
      "TESSERA_TRANSPORT=opnmpi", 2,
      "error: TESSERA_TRANSPORT is 'opnmpi', which is no transport\n"
      "      = did you mean 'openmpi'?\n");
  check_says(
      "TESSERA_TRANSPORT=infiniband", 2,
      "error: TESSERA_TRANSPORT is 'infiniband', which is no transport\n"
      "      = valid: openmpi, mpich, none\n");
  static const char *const counts[] = {"four", "0", "-1", "4x", "", "99999999999"};
  for (int i = 0; i < (int)(sizeof counts / sizeof *counts); i++) {
    const char *variables = tsr_arena_printf(texts, "OMPI_COMM_WORLD_SIZE=%s", counts[i]);
    const char *want = tsr_arena_printf(
        texts, "error: OMPI_COMM_WORLD_SIZE is '%s', which is no number of processes\n", counts[i]);
    check_says(variables, 2, want);
  }
  check_says(
      "PMI_RANK=0 PMI_SIZE=two", 2, "error: PMI_SIZE is 'two', which is no number of processes\n");
  check_says(
      "SLURM_STEP_NUM_TASKS=4", 2,
      "error: srun started 4 processes (SLURM_STEP_NUM_TASKS=4) that cannot find each other\n"
      "      = srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)\n"
      "      = TESSERA_TRANSPORT=none: each is meant to be alone\n");
}

/* The lines after "tried:" for the folders that are always searched. */
static const char *own_folders(const char *name) {
  const char *above = tsr_path_folder(texts, own);
  return tsr_arena_printf(
      texts,
      "        %s/libtessera-%s.so: no such file\n"
      "        %s/lib/tessera-train/libtessera-%s.so: no such file\n",
      own, name, above, name);
}

static void check_missing(const char *variables, const char *by, bool openmpi, const char *first) {
  const char *name = openmpi ? "openmpi" : "mpich";
  const char *want = tsr_arena_printf(
      texts,
      "error: %s asks for %s, but no libtessera-%s.so can be loaded\n"
      "      = tried:\n%s%s"
      "      = install Debian's %s and lib%s-dev (scripts/setup --cluster does), then build the "
      "plugin: scripts/build -D%s=enabled\n"
      "      = TESSERA_TRANSPORT=none: this process is meant to be alone\n",
      by, openmpi ? "Open MPI" : "MPICH", name, first, own_folders(name),
      openmpi ? "openmpi-bin" : "mpich", name, name);
  check_says(variables, 1, want);
}

static void test_missing(void) {
  check_missing("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=4", true, "");
  check_missing("PMI_RANK=3 PMI_SIZE=4", "PMI_SIZE=4", false, "");
  check_missing("PMI_RANK=3 PMI_SIZE=4 PMIX_RANK=0", "PMI_SIZE=4", false, "");
  check_missing("PMIX_RANK=2", "PMIX_RANK=2", true, "");
  check_missing(
      "PMIX_RANK=2 SLURM_STEP_NUM_TASKS=8", "PMIX_RANK=2 and SLURM_STEP_NUM_TASKS=8", true, "");
  check_missing("TESSERA_TRANSPORT=mpich", "TESSERA_TRANSPORT=mpich", false, "");
  check_missing(
      "TESSERA_TRANSPORT=mpich OMPI_COMM_WORLD_SIZE=2", "TESSERA_TRANSPORT=mpich", false, "");
  check_missing(
      "OMPI_COMM_WORLD_SIZE=2 TESSERA_PLUGIN_PATH=/nowhere::/else/where:", "OMPI_COMM_WORLD_SIZE=2",
      true,
      "        /nowhere/libtessera-openmpi.so: no such file\n"
      "        /else/where/libtessera-openmpi.so: no such file\n");
}

/* A plugin is there under its name, but is no good. Each has a folder of its own: what was once
 * loaded from a path stays what that path is. */
static void check_bad(int number, const char *plugin, const char *reason, const char *whole) {
  const char *folder = tsr_arena_printf(texts, "%s/%d", scratch, number);
  const char *link = tsr_arena_printf(texts, "%s/libtessera-openmpi.so", folder);
  const char *variables =
      tsr_arena_printf(texts, "OMPI_COMM_WORLD_SIZE=4 TESSERA_PLUGIN_PATH=%s", folder);
  CHECK(!mkdir(folder, 0700) && !symlink(plugin, link));
  if (whole) check_says(variables, 1, whole);
  else
    check_missing(
        variables, "OMPI_COMM_WORLD_SIZE=4", true,
        tsr_arena_printf(texts, "        %s: %s\n", link, reason));
  unlink(link);
  rmdir(folder);
}

static void test_bad(const char *folder) {
  static const char *const names[] = {"abi", "size", "name", "none", "fails"};
  const char *const reasons[] = {
      "of another build: its interface is number 99, this program's is number 2",
      tsr_arena_printf(
          texts, "of another build: its table has 8 bytes, this program's has %zu",
          sizeof(tsr_transport_table)),
      "it is the plugin of 'pigeons'", "it has no tsr_transport_entry", NULL};
  for (int i = 0; i < 5; i++)
    check_bad(
        i, tsr_arena_printf(texts, "%s/libbad_%s.so", folder, names[i]), reasons[i],
        reasons[i] ? NULL
                   : "error: cannot join the job by Open MPI (OMPI_COMM_WORLD_SIZE=4): there is no "
                     "network today\n");
  check_bad(5, "/dev/null", "file too short", NULL);
  check_bad(6, scratch, "cannot read file data: Is a directory", NULL);
}

int main(int argc, char **argv) {
  char folder[] = "/tmp/tessera-probe-XXXXXX";
  scratch = mkdtemp(folder);
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  if (argc != 2 || !scratch || length <= 0) return 1;
  *strrchr(own, '/') = 0;
  texts = tsr_arena_new();
  test_alone();
  test_mistakes();
  test_missing();
  test_bad(argv[1]);
  rmdir(scratch);
  tsr_arena_free(texts);
  return check_done("probe");
}

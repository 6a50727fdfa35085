// SPDX-License-Identifier: Apache-2.0
#include "cli/siblings.h"
#include "base/disk.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 4096, BYTES_MAX = 1 << 22, TRIES = 10, REST_NS = 50000000 };

bool siblings_run_together(const tsr_options *o) {
  return o->command == TSR_COMMAND_TRAIN || o->command == TSR_COMMAND_EVALUATE ||
         o->command == TSR_COMMAND_GENERATE;
}

/* A file of the kernel's, which may be gone. */
static bool read_file(tsr_arena *arena, const char *path, char **ret_text, size_t *ret_length) {
  return tsr_file_read(
      arena, path, BYTES_MAX, TSR_NOWHERE, ret_text, ret_length, tsr_diags_new(arena));
}

/* What the process's command line asks for; false: it is no process of this program. */
static bool read_options(tsr_arena *arena, long pid, tsr_options *ret) {
  struct stat mine, theirs;
  const char *exe = tsr_arena_printf(arena, "/proc/%ld/exe", pid);
  if (stat("/proc/self/exe", &mine) || stat(exe, &theirs) || mine.st_ino != theirs.st_ino ||
      mine.st_dev != theirs.st_dev)
    return false;
  char *text, **words = tsr_arena_array(arena, char *, ARGUMENTS_MAX + 1);
  size_t length;
  int count = 0;
  if (!read_file(arena, tsr_arena_printf(arena, "/proc/%ld/cmdline", pid), &text, &length))
    return false;
  for (size_t at = 0; at < length && count < ARGUMENTS_MAX; at += strlen(text + at) + 1)
    words[count++] = text + at;
  tsr_options_parse(arena, count, words, ret, tsr_diags_new(arena));
  return count > 0;
}

/* Whether the launcher has given the process another number than this one: a script may start
 * several of the same. */
static bool is_another(tsr_arena *arena, long pid) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  char *text;
  size_t length;
  if (!read_file(arena, tsr_arena_printf(arena, "/proc/%ld/environ", pid), &text, &length))
    return false;
  for (int i = 0; i < 3; i++) {
    const char *mine = getenv(names[i]);
    const char *same = mine ? tsr_arena_printf(arena, "%s=%s", names[i], mine) : NULL;
    for (size_t at = 0; same && at < length; at += strlen(text + at) + 1)
      if (!strcmp(text + at, same)) return false;
  }
  return true;
}

static bool prints_instead(const tsr_options *o) {
  return o->help || o->version || o->print_config || o->print_schema || o->print_manual;
}

/* The process among a thread's children that trains, say; 0: none. */
static long find_child(tsr_arena *arena, const char *thread, tsr_options *ret_options) {
  char *list, *end;
  size_t length;
  if (!read_file(arena, tsr_arena_printf(arena, "%s/children", thread), &list, &length)) return 0;
  for (long pid; (pid = strtol(list, &end, 10)) > 0 && end > list; list = end)
    if (pid != (long)getpid() && read_options(arena, pid, ret_options) && is_another(arena, pid) &&
        siblings_run_together(ret_options) && !prints_instead(ret_options))
      return pid;
  return 0;
}

static long find_sibling(tsr_arena *arena, tsr_options *ret_options) {
  const char *folder = tsr_arena_printf(arena, "/proc/%ld/task", (long)getppid());
  DIR *threads = tsr_disk_open_folder(folder);
  long found = 0;
  for (struct dirent *e; threads && !found && (e = readdir(threads));)
    if (e->d_name[0] != '.')
      found = find_child(arena, tsr_path_join(arena, folder, e->d_name), ret_options);
  if (threads) closedir(threads);
  return found;
}

bool siblings_check(app *a) {
  long pid = 0;
  tsr_options theirs;
  if (tsr_transport_launched(a->arena) == 1) return true;
  for (int i = 0; i < TRIES && !pid; i++) {
    if (i) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    tsr_arena *scratch = tsr_arena_new();
    pid = find_sibling(scratch, &theirs);
    tsr_arena_free(scratch);
  }
  if (!pid) return true;
  tsr_diag_error(
      a->diags, TSR_NOWHERE,
      "this process was started beside another one (pid %ld) that runs '%s', and runs '%s' alone",
      pid, tsr_command_name(theirs.command),
      a->options.help      ? "--help"
      : a->options.version ? "--version"
                           : tsr_command_name(a->options.command));
  tsr_diag_hint(a->diags, "all processes of a job run the same command");
  return false;
}

// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher_check.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/process_info.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 4096, BYTES_MAX = 1 << 22, TRIES = 10, REST_NS = 50000000 };

static bool prints_instead(const tsr_options *o) {
  return o->help || o->version || o->print_config || o->print_schema || o->print_manual;
}

bool launcher_joins(const tsr_options *o, bool valid) {
  bool together = o->command == TSR_COMMAND_TRAIN || o->command == TSR_COMMAND_PROFILE ||
                  o->command == TSR_COMMAND_EVALUATE || o->command == TSR_COMMAND_GENERATE ||
                  o->command == TSR_COMMAND_VERIFY;
  return together && !(valid && prints_instead(o));
}

/* A file of the kernel's, which may be gone. */
static bool read_file(tsr_arena *arena, const char *path, char **ret_text, size_t *ret_length) {
  return tsr_file_read(
      arena, path, BYTES_MAX, TSR_NOWHERE, ret_text, ret_length, tsr_diags_new(arena));
}

/* What the process's command line asks for; false: it is no process of this program, or does not
 * join. */
static bool reads_and_joins(tsr_arena *arena, long pid, tsr_options *ret) {
  if (!tsr_process_runs_this_program(arena, pid)) return false;
  char *text, **words = tsr_arena_array(arena, char *, ARGUMENTS_MAX + 1);
  size_t length;
  int count = 0;
  if (!tsr_process_read(arena, pid, "cmdline", &text, &length)) return false;
  for (size_t at = 0; at < length && count < ARGUMENTS_MAX; at += strlen(text + at) + 1)
    words[count++] = text + at;
  return count > 0 &&
         launcher_joins(ret, tsr_options_parse(arena, count, words, ret, tsr_diags_new(arena)));
}

/* Whether the launcher has given the process another number than this one: a script may start
 * several of the same. */
static bool is_another(tsr_arena *arena, long pid) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  for (int i = 0; i < 3; i++) {
    const char *mine = getenv(names[i]), *theirs = tsr_process_variable(arena, pid, names[i]);
    if (mine && theirs && !strcmp(mine, theirs)) return false;
  }
  return true;
}

/* A process of the same launcher that trains, say. */
typedef struct {
  long pid; /* 0: there is none */
  tsr_options options;
  const char *transport; /* its TESSERA_TRANSPORT, or "" */
} sibling;

static bool look_at(tsr_arena *arena, long pid, sibling *ret) {
  char *environ;
  size_t length;
  *ret = (sibling){.pid = pid};
  if (pid == (long)getpid() || !reads_and_joins(arena, pid, &ret->options) ||
      !tsr_process_read(arena, pid, "environ", &environ, &length)) /* it has ended meanwhile */
    return false;
  const char *transport = tsr_process_variable(arena, pid, "TESSERA_TRANSPORT");
  ret->transport = transport ? transport : "";
  return is_another(arena, pid);
}

static bool is_any(const sibling *s) { return s->pid > 0; }

static bool has_other_transport(const sibling *s) {
  return strcmp(s->transport, getenv("TESSERA_TRANSPORT")) != 0;
}

/* The first of a thread's children that is `wanted`. */
static bool
find_child(tsr_arena *arena, const char *thread, bool (*wanted)(const sibling *), sibling *ret) {
  char *list, *end;
  size_t length;
  if (!read_file(arena, tsr_arena_printf(arena, "%s/children", thread), &list, &length))
    return false;
  for (long pid; (pid = strtol(list, &end, 10)) > 0 && end > list; list = end)
    if (look_at(arena, pid, ret) && wanted(ret)) return true;
  return false;
}

/* Looks more than once for those that have not begun yet. */
static bool
find_sibling(tsr_arena *arena, int tries, bool (*wanted)(const sibling *), sibling *ret) {
  const char *folder = tsr_arena_printf(arena, "/proc/%ld/task", (long)getppid());
  bool found = false;
  for (int i = 0; i < tries && !found; i++) {
    if (i) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    DIR *threads = tsr_disk_open_folder(folder);
    for (struct dirent *e; threads && !found && (e = readdir(threads));)
      if (e->d_name[0] != '.')
        found = find_child(arena, tsr_path_join(arena, folder, e->d_name), wanted, ret);
    if (threads) closedir(threads);
  }
  return found;
}

bool launcher_check_siblings(app *a, bool waits) {
  sibling other;
  if (tsr_transport_launched(a->arena) == 1 ||
      !find_sibling(a->arena, waits ? TRIES : 1, is_any, &other))
    return true;
  tsr_diag_error(
      a->diags, TSR_NOWHERE,
      "this process was started beside another one (pid %ld) that runs '%s', and runs '%s' alone",
      other.pid, tsr_command_name(other.options.command),
      a->options.help      ? "--help"
      : a->options.version ? "--version"
                           : tsr_command_name(a->options.command));
  tsr_diag_hint(a->diags, "all processes of a job run the same command");
  return false;
}

bool launcher_check_transport(app *a) {
  sibling other;
  const char *mine = getenv("TESSERA_TRANSPORT");
  int started = mine && tsr_transport_is_name(mine) ? tsr_transport_started(a->arena) : 1;
  if (started == 1) return true;
  if (find_sibling(a->arena, TRIES, has_other_transport, &other)) {
    tsr_diag_error(
        a->diags, TSR_NOWHERE,
        "this process has TESSERA_TRANSPORT=%s, and another one that was started beside it (pid "
        "%ld) has %s%s",
        mine, other.pid, *other.transport ? "TESSERA_TRANSPORT=" : "none of that name",
        other.transport);
    tsr_diag_hint(a->diags, "all processes of a job have the same transport");
    unsetenv("TESSERA_TRANSPORT"); /* the others wait for this process at the launcher's address */
    return false;
  }
  if (!strcmp(mine, "none"))
    tsr_diag_note(
        a->diags, TSR_NOWHERE,
        "TESSERA_TRANSPORT=none: this process is alone, one of %d that were started", started);
  return true;
}

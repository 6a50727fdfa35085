// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "checkpoint/owned_files.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEP_DIGITS = 8 }; /* at least */
static const char prefix[] = "step-";
static const char unfinished[] = ".partial", aside[] = ".old";

const char *tsr_checkpoint_path(tsr_arena *arena, const char *folder, int64_t step) {
  return tsr_arena_printf(arena, "%s/%s%0*lld", folder, prefix, STEP_DIGITS, (long long)step);
}

const char *tsr_checkpoint_aside(tsr_arena *arena, const char *path) {
  return tsr_arena_printf(arena, "%s%s%s", path, aside, unfinished);
}

static bool cannot(const char *what, const char *path, tsr_diags *diags) {
  return tsr_file_cannot(what, path, errno, TSR_NOWHERE, diags);
}

/* The step of a committed checkpoint's name, or -1. */
static int64_t step_of(const char *name) {
  const char *digits = name + sizeof prefix - 1;
  char *end;
  if (strncmp(name, prefix, sizeof prefix - 1) || *digits < '0' || *digits > '9') return -1;
  long long step = strtoll(digits, &end, 10);
  return *end || end - digits < STEP_DIGITS ? -1 : step;
}

/* Removes `ending` from a name. */
static bool strip(char *name, const char *ending) {
  size_t length = strlen(name), more = strlen(ending);
  if (length <= more || strcmp(name + length - more, ending)) return false;
  name[length - more] = 0;
  return true;
}

static bool is_unfinished(const char *name) {
  char step[NAME_MAX + 1];
  snprintf(step, sizeof step, "%s", name);
  if (!strip(step, unfinished)) return false;
  strip(step, aside);
  return step_of(step) >= 0;
}

static int by_step(const void *a, const void *b) {
  int64_t x = ((const tsr_checkpoint_entry *)a)->step, y = ((const tsr_checkpoint_entry *)b)->step;
  return (x > y) - (x < y);
}

bool tsr_checkpoints_list(
    tsr_arena *arena, const char *folder, tsr_checkpoint_entry **ret, int *ret_count,
    tsr_diags *diags) {
  int capacity = 0;
  *ret = NULL;
  *ret_count = 0;
  DIR *d = tsr_disk_open_folder(folder);
  if (!d) return errno == ENOENT || errno == ENOTDIR || cannot("read the folder", folder, diags);
  for (struct dirent *e; (e = readdir(d));) {
    int64_t step = step_of(e->d_name);
    if (step < 0) continue;
    tsr_arena_grow(arena, (void **)ret, sizeof **ret, *ret_count, &capacity);
    (*ret)[(*ret_count)++] =
        (tsr_checkpoint_entry){step, tsr_arena_printf(arena, "%s/%s", folder, e->d_name)};
  }
  closedir(d);
  if (*ret_count) qsort(*ret, (size_t)*ret_count, sizeof **ret, by_step);
  return true;
}

void tsr_checkpoint_pass_over(const char *path, tsr_diags *errors, tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  if (!stream) return;
  tsr_diags_print(errors, stream);
  fclose(stream);
  char *end = strchr(text, '\n');
  if (end) *end = 0;
  tsr_diag_warning(diags, TSR_NOWHERE, "'%s' is skipped: %s", path, text);
  free(text);
}

enum { TRIES = 100 }; /* while another process removes what was found */

/* *ret_gone: one of them has lost its name meanwhile. */
static bool find_newest(
    tsr_arena *arena, const char *folder, int64_t before, tsr_manifest *ret, bool *ret_gone,
    tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  *ret_gone = false;
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return false;
  for (int i = count; i-- > 0;) {
    if (entries[i].step >= before) continue;
    tsr_diags *errors = tsr_diags_new(arena);
    if (tsr_manifest_read(arena, entries[i].path, TSR_NOWHERE, ret, errors)) return true;
    if (!tsr_file_exists(entries[i].path)) *ret_gone = true;
    else tsr_checkpoint_pass_over(entries[i].path, errors, diags);
  }
  return false;
}

bool tsr_checkpoints_newest(
    tsr_arena *arena, const char *folder, int64_t before, tsr_manifest *ret, tsr_diags *diags) {
  bool gone = true, found = false;
  for (int i = 0; i < TRIES && gone && !found; i++)
    found = find_newest(arena, folder, before, ret, &gone, diags);
  return found;
}

/* Whether a folder has checkpoints, none of which can be read; then a failure. */
static bool is_damaged(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return true;
  if (!count) return false;
  tsr_diag_failure(diags, TSR_NOWHERE, "'%s' has checkpoints, and none can be read", folder);
  tsr_diag_hint(diags, "`tessera-train checkpoint ls %s` reports what is damaged", folder);
  return true;
}

/* ---- the best one ---- */

/* The step of the checkpoint that a file `best` names; -1: none. It is no input of the process: a
 * run that begins with the best one may name another. False where it cannot be read. */
static bool read_best(const char *best, char ret_name[64], int64_t *ret_step) {
  struct stat info;
  if (stat(best, &info) || !S_ISREG(info.st_mode)) return false;
  int fd = tsr_disk_open(best, O_RDONLY | O_NONBLOCK);
  ptrdiff_t length = fd < 0 ? -1 : tsr_disk_read(fd, ret_name, 63);
  if (fd >= 0) close(fd);
  if (length < 0) return false;
  ret_name[length] = 0;
  ret_name[strcspn(ret_name, "\n")] = 0;
  *ret_step = step_of(ret_name);
  return true;
}

/* Not by base/new_file.h, which compares the file with the process's inputs: it may have the inode
 * of one that was removed. The folder is this run's. */
static bool write_best(tsr_arena *arena, const char *folder, const char *line, tsr_diags *diags) {
  const char *best = tsr_path_join(arena, folder, TSR_BEST_NAME);
  const char *new = tsr_arena_printf(arena, "%s%s", best, unfinished);
  int fd = tsr_disk_create(new);
  if (fd < 0) return cannot("write", best, diags);
  bool ok = tsr_disk_write(fd, line, strlen(line)) && tsr_disk_sync(fd);
  ok = tsr_disk_close(fd) && ok && tsr_disk_rename(new, best);
  ok = ok && (tsr_disk_sync_folder(folder) || errno == EINVAL);
  return ok || cannot("write", best, diags);
}

bool tsr_checkpoints_name_best(
    tsr_arena *arena, const char *folder, const tsr_validation_state *state, tsr_diags *diags) {
  const char *best = tsr_path_join(arena, folder, TSR_BEST_NAME);
  char name[64];
  int64_t step;
  if (state->best_count && read_best(best, name, &step) && step < 0)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "'%s' was not written by this program: it is not replaced", best);
  for (int i = 0; i < state->best_count; i++) {
    const char *path = tsr_checkpoint_path(arena, folder, state->best[i].step);
    if (!tsr_file_exists(tsr_path_join(arena, path, TSR_MANIFEST_NAME))) continue;
    const char *line = tsr_arena_printf(arena, "%s\n", path + strlen(folder) + 1);
    return write_best(arena, folder, line, diags);
  }
  return true;
}

/* One that this program has written. */
static bool remove_best(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  const char *best = tsr_path_join(arena, folder, TSR_BEST_NAME);
  char name[64];
  int64_t step;
  tsr_disk_remove(tsr_arena_printf(arena, "%s%s", best, unfinished));
  if (!read_best(best, name, &step) || step < 0) return true;
  return tsr_disk_remove(best) || cannot("remove", best, diags);
}

/* The file that `path` means: DIR/best, or DIR/checkpoints/best; NULL: none. */
static const char *find_best(tsr_arena *arena, const char *path) {
  struct stat info;
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (strcmp(name, TSR_BEST_NAME)) return NULL;
  const char *folder = tsr_path_folder(arena, path);
  const char *below = tsr_path_join(arena, folder, "checkpoints/" TSR_BEST_NAME);
  if (!stat(path, &info)) return S_ISREG(info.st_mode) ? path : NULL;
  return !stat(below, &info) && S_ISREG(info.st_mode) ? below : NULL;
}

/* The checkpoint that it names is beside it. */
static bool find_named(
    tsr_arena *arena, const char *best, tsr_location location, tsr_manifest *ret,
    tsr_diags *diags) {
  char name[64];
  int64_t step;
  if (!read_best(best, name, &step)) return tsr_file_cannot("read", best, errno, location, diags);
  if (step < 0)
    return tsr_diag_error(
        diags, location, "'%s' does not name a checkpoint: '%s' is no %s…", best, name, prefix);
  const char *path = tsr_path_join(arena, tsr_path_folder(arena, best), name);
  if (tsr_file_exists(path)) return tsr_manifest_read(arena, path, location, ret, diags);
  return tsr_diag_error(diags, location, "'%s' names '%s', which does not exist", best, path);
}

bool tsr_checkpoint_find(
    tsr_arena *arena, const char *path, tsr_location location, tsr_manifest *ret,
    tsr_diags *diags) {
  const char *best = find_best(arena, path);
  if (best) return find_named(arena, best, location, ret, diags);
  const char *manifest = tsr_path_join(arena, path, TSR_MANIFEST_NAME);
  if (tsr_file_exists(manifest)) return tsr_manifest_read(arena, path, location, ret, diags);
  const char *below = tsr_path_join(arena, path, "checkpoints");
  int before = tsr_diags_errors(diags);
  if (tsr_checkpoints_newest(arena, path, INT64_MAX, ret, diags)) return true;
  if (tsr_checkpoints_newest(arena, below, INT64_MAX, ret, diags)) return true;
  if (tsr_diags_errors(diags) > before) return false;
  if (is_damaged(arena, path, diags) || is_damaged(arena, below, diags)) return false;
  if (!tsr_file_exists(path))
    return tsr_diag_error(diags, location, "there is no checkpoint '%s'", path);
  tsr_diag_error(
      diags, location, "'%s' is no checkpoint and has none: it has no %s and no folder %s…", path,
      TSR_MANIFEST_NAME, prefix);
  return false;
}

/* ---- readers beside a run ---- */

/* A lock of its manifest: shared by readers, and had alone by the run that removes it. */
static int open_manifest(tsr_arena *arena, const char *checkpoint) {
  return tsr_disk_open(tsr_path_join(arena, checkpoint, TSR_MANIFEST_NAME), O_RDONLY | O_NONBLOCK);
}

static bool has_name(tsr_arena *arena, int fd, const char *checkpoint) {
  struct stat mine, there;
  return !fstat(fd, &mine) && !stat(tsr_path_join(arena, checkpoint, TSR_MANIFEST_NAME), &there) &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* False: it is removed, or is being removed. */
static bool hold(tsr_arena *arena, const char *checkpoint, tsr_checkpoint_hold *ret) {
  ret->fd = open_manifest(arena, checkpoint);
  if (ret->fd < 0) return errno != ENOENT;
  bool removed = !tsr_disk_lock_shared(ret->fd) && errno == EWOULDBLOCK;
  if (!removed && has_name(arena, ret->fd, checkpoint)) return true;
  tsr_checkpoint_release(ret);
  return false;
}

bool tsr_checkpoint_find_held(
    tsr_arena *arena, const char *path, tsr_location location, tsr_manifest *ret,
    tsr_checkpoint_hold *ret_hold, tsr_diags *diags) {
  *ret_hold = TSR_CHECKPOINT_HOLD_NONE;
  for (int i = 0; i < TRIES; i++) {
    if (!tsr_checkpoint_find(arena, path, location, ret, diags)) return false;
    if (hold(arena, ret->folder, ret_hold)) return true;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "'%s': every checkpoint is removed before it can be read", path);
}

void tsr_checkpoint_release(tsr_checkpoint_hold *h) {
  if (h->fd >= 0) close(h->fd);
  h->fd = -1;
}

static bool make_folder(
    tsr_arena *arena, const char *path, tsr_location location, const char **made,
    tsr_diags *diags) {
  bool there = tsr_file_exists(path);
  if (!tsr_new_folder(path))
    return tsr_file_cannot("make the folder", path, errno, location, diags);
  if (!there && !*made) *made = tsr_arena_strdup(arena, path);
  return true;
}

/* With the folders that it is in; *made is the first of them that was missing. */
static bool make_folders(
    tsr_arena *arena, const char *folder, tsr_location location, const char **made,
    tsr_diags *diags) {
  if (!*folder) return tsr_diag_error(diags, location, "the name of a folder is empty");
  char *path = tsr_arena_strdup(arena, folder);
  for (char *at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    if (!tsr_file_exists(path) && !make_folder(arena, path, location, made, diags)) return false;
    *at = '/';
  }
  return make_folder(arena, folder, location, made, diags);
}

/* From the innermost on, up to one with something in it. */
static void remove_made(tsr_arena *arena, const char *folder, const char *made) {
  char *path = tsr_arena_strdup(arena, folder);
  while (made && strlen(path) >= strlen(made) && tsr_disk_remove_empty(path)) {
    char *slash = strrchr(path, '/');
    if (!slash) break;
    *slash = 0;
  }
}

bool tsr_checkpoints_take_folder(
    tsr_arena *arena, const char *folder, tsr_location location, tsr_folder_lock *ret,
    tsr_diags *diags) {
  const char *made = NULL;
  *ret = TSR_FOLDER_LOCK_NONE;
  bool ok = make_folders(arena, folder, location, &made, diags) &&
            tsr_folder_lock_take(arena, folder, ret, diags);
  if (!ok) remove_made(arena, folder, made);
  ret->made = made;
  return ok;
}

void tsr_checkpoints_give_back(tsr_arena *arena, tsr_folder_lock *lock) {
  if (lock->fd < 0) return;
  tsr_folder_lock_release(lock);
  remove_made(arena, tsr_path_folder(arena, lock->path), lock->made);
}

/* What has lost its name. False: some of it stays, which a diagnostic of `severity` reports, or
 * cannot be removed, which is a failure about `path`. */
static bool remove_hidden(
    tsr_arena *arena, const char *hidden, const char *path, tsr_severity severity,
    tsr_diags *diags) {
  const char *left;
  if (tsr_own_files_remove(arena, hidden, false, &left)) return true;
  if (!left) return cannot("remove", path, diags);
  return tsr_diag(
      diags, severity, TSR_NOWHERE, "'%s' %s", hidden, tsr_own_files_reason(arena, left));
}

/* Whether no file of a folder is an input of this process; else an error. The manifest of an
 * unfinished checkpoint is none: another run has begun to remove what this one looked at while it
 * chose the newest. */
static bool check_unread(tsr_arena *arena, const char *path, bool is_finished, tsr_diags *diags) {
  bool ok = true;
  DIR *d = tsr_disk_open_folder(path);
  for (struct dirent *e; d && ok && (e = readdir(d));) {
    const char *file = tsr_path_join(arena, path, e->d_name);
    if (!tsr_file_is_read(file) || (!is_finished && !strcmp(e->d_name, "manifest.json"))) continue;
    ok = tsr_diag_error(
        diags, TSR_NOWHERE, "'%s' would be removed, and this run reads '%s'", path, file);
    tsr_diag_hint(diags, "checkpoints elsewhere (--out, checkpoint_dir) keep it");
  }
  if (d) closedir(d);
  return ok;
}

/* A name of an unfinished checkpoint: another one where the first has something in it. */
static bool hide(tsr_arena *arena, const char *path, const char **ret_hidden) {
  *ret_hidden = tsr_arena_printf(arena, "%s%s", path, unfinished);
  if (tsr_disk_rename(path, *ret_hidden)) return true;
  *ret_hidden = tsr_checkpoint_aside(arena, path);
  return (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) &&
         tsr_disk_rename(path, *ret_hidden);
}

/* Its name has gone from the disk before its files do: what has the name is whole after a power
 * cut, too. A link is removed, not what it points to. */
static bool
remove_one(tsr_arena *arena, const char *path, tsr_severity severity, tsr_diags *diags) {
  const char *hidden;
  struct stat info;
  if (!lstat(path, &info) && S_ISLNK(info.st_mode))
    return tsr_disk_remove(path) || cannot("remove", path, diags);
  if (!hide(arena, path, &hidden) ||
      !(tsr_disk_sync_folder(tsr_path_folder(arena, path)) || errno == EINVAL))
    return cannot("remove", path, diags);
  return remove_hidden(arena, hidden, path, severity, diags);
}

/* One that a reader holds, or may hold, keeps its name. The lock lasts until the name has gone. */
static bool remove_unheld(tsr_arena *arena, const char *path, tsr_diags *diags) {
  int fd = open_manifest(arena, path);
  bool is_free = fd < 0 || tsr_disk_lock(fd) || tsr_disk_has_no_locks(errno);
  bool ok = is_free ? remove_one(arena, path, TSR_FAILURE, diags)
                    : errno == EWOULDBLOCK || cannot("lock", path, diags);
  if (fd >= 0) close(fd);
  return ok;
}

/* What cannot be removed because something else is in it costs a warning. */
static bool remove_unfinished(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  DIR *d = tsr_disk_open_folder(folder);
  if (!d) return cannot("read the folder", folder, diags);
  int before = tsr_diags_errors(diags);
  for (struct dirent *e; (e = readdir(d));) {
    if (!is_unfinished(e->d_name)) continue;
    const char *path = tsr_arena_printf(arena, "%s/%s", folder, e->d_name);
    remove_hidden(arena, path, path, TSR_WARNING, diags);
  }
  closedir(d);
  return tsr_diags_errors(diags) == before;
}

bool tsr_checkpoint_remove_aside(tsr_arena *arena, const char *path, tsr_diags *diags) {
  const char *hidden = tsr_checkpoint_aside(arena, path);
  return remove_hidden(arena, hidden, path, TSR_FAILURE, diags);
}

/* That no input is in what is removed: unfinished ones, with `all` every checkpoint. */
static bool check_inputs(tsr_arena *arena, const char *folder, bool all, tsr_diags *diags) {
  DIR *d = tsr_disk_open_folder(folder);
  bool ok = true;
  for (struct dirent *e; d && ok && (e = readdir(d));)
    if (is_unfinished(e->d_name) || (all && step_of(e->d_name) >= 0))
      ok = check_unread(
          arena, tsr_path_join(arena, folder, e->d_name), !is_unfinished(e->d_name), diags);
  if (d) closedir(d);
  return ok;
}

/* Nothing is removed beside what no run has written. */
static bool check_removed(const tsr_checkpoint_entry *entries, int count, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; i < count; i++)
    if (!tsr_own_folder(entries[i].path))
      ok = tsr_diag_error(
          diags, TSR_NOWHERE, "'%s' is named as a checkpoint and is none: it would be replaced",
          entries[i].path);
  return ok;
}

bool tsr_checkpoints_clean(tsr_arena *arena, const char *folder, bool all, tsr_diags *diags) {
  tsr_checkpoint_entry *entries = NULL;
  int count = 0;
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return false;
  if (!check_removed(entries, count, diags) || !check_inputs(arena, folder, all, diags) ||
      !remove_unfinished(arena, folder, diags))
    return false;
  int before = tsr_diags_errors(diags);
  for (int i = 0; all && i < count; i++) remove_one(arena, entries[i].path, TSR_WARNING, diags);
  if (all) remove_best(arena, folder, diags);
  return tsr_diags_errors(diags) == before;
}

bool tsr_checkpoint_steps_have(const tsr_checkpoint_steps *steps, int64_t step) {
  for (int i = steps->count; i-- > 0;)
    if (steps->items[i] == step) return true;
  return false;
}

static bool is_best(const tsr_validation_state *state, int64_t step) {
  for (int i = 0; state && i < state->best_count; i++)
    if (state->best[i].step == step) return true;
  return false;
}

bool tsr_checkpoints_prune(
    tsr_arena *arena, const char *folder, const tsr_checkpoint_steps *known, int64_t newest,
    const tsr_checkpoint_retention *keep, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int all, count = 0;
  if (!keep->last) return true;
  if (!tsr_checkpoints_list(arena, folder, &entries, &all, diags)) return false;
  for (int i = 0; i < all; i++)
    if (!known || tsr_checkpoint_steps_have(known, entries[i].step)) entries[count++] = entries[i];
  while (count && entries[count - 1].step > newest) count--;
  bool ok = true;
  for (int i = 0; i < count - keep->last; i++) {
    bool kept = (keep->every && entries[i].step % keep->every == 0) ||
                is_best(keep->best, entries[i].step) || !tsr_own_folder(entries[i].path);
    if (!kept) ok &= remove_unheld(arena, entries[i].path, diags);
  }
  return ok;
}

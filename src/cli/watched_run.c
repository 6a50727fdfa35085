// SPDX-License-Identifier: Apache-2.0
#include "cli/watched_run.h"
#include "base/clock.h"
#include "base/file_read.h"
#include <string.h>

void watched_run_open(tsr_arena *arena, const char *path, watched_run *ret) {
  *ret = (watched_run){.path = path, .is_folder = tsr_file_is_folder(path)};
  const char *metrics = ret->is_folder ? tsr_path_join(arena, path, "metrics.jsonl") : path;
  tsr_metrics_follow_open(metrics, &ret->metrics);
  ret->config.path = tsr_path_join(arena, path, "config.yaml");
  ret->lock.path = tsr_path_join(arena, path, TSR_RUN_LOCK_NAME);
  ret->checkpoints.path = tsr_path_join(arena, path, "checkpoints");
  ret->page = (tsr_page_run){.name = path, .metrics = &ret->metrics.metrics, .live = &ret->live};
}

/* ---- files ---- */

/* Whether the file is another one than it was; one that is missing has size -1. */
static bool has_changed(watched_file *f) {
  struct stat info;
  if (stat(f->path, &info)) info = (struct stat){.st_size = -1};
  bool same = f->arena && info.st_size == f->size && info.st_ino == f->inode &&
              info.st_mtim.tv_sec == f->modified.tv_sec &&
              info.st_mtim.tv_nsec == f->modified.tv_nsec;
  if (same || tsr_seconds_now() < f->rests_until) return false;
  f->size = info.st_size;
  f->inode = info.st_ino;
  f->modified = info.st_mtim;
  return true;
}

typedef enum { CONFIG, LOCK, CHECKPOINTS, FILES } which_file;

/* Of what was read anew; the feed still has the old. */
typedef struct {
  tsr_page_run page;
  page_config texts;
  tsr_arena *arenas[FILES]; /* NULL: the file has not changed */
} fresh_files;

/* Reads one file into an arena of its own. Its old notes are taken off. */
static void
read_file(app *a, const watched_run *r, watched_file *f, which_file which, fresh_files *to) {
  const double share = 20; /* run.lock grows with each step, and is read as a whole */
  double begin = tsr_seconds_now();
  tsr_arena *own = a->arena;
  a->arena = to->arenas[which] = tsr_arena_new();
  tsr_text_free(&f->notes);
  if (which == LOCK) page_run_read_lock(a, r->path, &to->page, &f->notes);
  else if (which == CHECKPOINTS) page_run_read_checkpoints(a, r->path, &to->page, &f->notes);
  else if (f->size >= 0) page_run_read_config(a, r->path, &to->page, &to->texts, &f->notes);
  else to->page.config = to->page.plan = NULL, to->texts = (page_config){0};
  a->arena = own;
  if (which == LOCK) f->rests_until = tsr_seconds_now() + share * (tsr_seconds_now() - begin);
}

static bool read_files(app *a, watched_run *r, fresh_files *to) {
  watched_file *const files[FILES] = {&r->config, &r->lock, &r->checkpoints};
  bool changed = false;
  *to = (fresh_files){.page = r->page, .texts = r->texts};
  for (which_file which = 0; which < FILES && r->is_folder; which++) {
    if (!has_changed(files[which])) continue;
    read_file(a, r, files[which], which, to);
    changed = true;
  }
  return changed;
}

/* The old arenas are in `fresh` then. */
static void take_files(watched_run *r, fresh_files *fresh) {
  watched_file *const files[FILES] = {&r->config, &r->lock, &r->checkpoints};
  for (int i = 0; i < FILES; i++) {
    if (!fresh->arenas[i]) continue;
    tsr_arena *old = files[i]->arena;
    files[i]->arena = fresh->arenas[i];
    fresh->arenas[i] = old;
  }
  r->page = fresh->page;
  r->texts = fresh->texts;
}

/* While a process writes them, config.yaml and run.lock may be of two starts. */
static void make_warnings(watched_run *r) {
  const watched_file *files[FILES] = {&r->config, &r->lock, &r->checkpoints};
  tsr_text_free(&r->warnings);
  for (int i = 0; i < FILES; i++)
    if (files[i]->notes.data) tsr_text_add(&r->warnings, "%s", files[i]->notes.data);
  if (r->live.process != TSR_FOLDER_IN_USE)
    page_run_note_edits(r->path, &r->texts, r->page.lock, &r->warnings);
  r->page.warnings = r->warnings.data;
}

/* ---- the process ---- */

/* The folder's lock tells whether its process lives; of a file of metrics nothing does. */
static bool look_for_process(watched_run *r) {
  tsr_run_live before = r->live;
  char owner[TSR_FOLDER_OWNER_BYTES] = "";
  r->live.process = TSR_FOLDER_USE_UNKNOWN;
  if (r->is_folder) r->live.process = tsr_folder_lock_look(r->path, owner);
  bool same = !strcmp(owner, r->owner) && before.process == r->live.process;
  strcpy(r->owner, owner);
  r->live.owner = *owner ? r->owner : NULL;
  r->live.has_metrics = r->metrics.arena != NULL;
  r->live.changed = r->metrics.changed;
  return !same || before.has_metrics != r->live.has_metrics;
}

void watched_run_look(watched_run *r, tsr_feed *feed, int index) {
  bool is_new = !r->is_fed;
  tsr_feed_lock(feed);
  bool changed = tsr_metrics_follow_look(&r->metrics);
  if (look_for_process(r)) {
    r->lock.rests_until = 0;
    changed = true;
  }
  if (changed || is_new) make_warnings(r);
  if (changed || is_new) tsr_feed_update(feed, index, &r->page, r->metrics.begins);
  r->is_fed = true;
  tsr_feed_unlock(feed);
}

void watched_run_read(app *a, watched_run *r, tsr_feed *feed, int index) {
  fresh_files fresh;
  bool changed = read_files(a, r, &fresh);
  r->is_read = true;
  if (!changed) return;
  tsr_feed_lock(feed);
  take_files(r, &fresh);
  make_warnings(r);
  tsr_feed_update(feed, index, &r->page, r->metrics.begins);
  tsr_feed_unlock(feed);
  for (int i = 0; i < FILES; i++) tsr_arena_free(fresh.arenas[i]);
}

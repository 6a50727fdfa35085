// SPDX-License-Identifier: Apache-2.0
/* Writing a run's checkpoint, in the thread or before the run continues. */
#include "base/file_ops.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/owned_files.h"
#include "checkpoint/saver_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double clock_of(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct timespec tsr_saver_until(double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  return until;
}

/* Rests so long that the thread works for `share` of its time; a hurry ends it. */
static void pace(void *context) {
  tsr_saver *s = context;
  if (!s->has_thread) return;
  double cpu = clock_of(CLOCK_THREAD_CPUTIME_ID), begin = clock_of(CLOCK_MONOTONIC);
  pthread_mutex_lock(&s->mutex);
  double rest = (cpu - s->worked) * (1 / s->share - 1), end = begin + rest;
  pthread_mutex_unlock(&s->mutex);
  struct timespec until = tsr_saver_until(rest);
  pthread_mutex_lock(&s->mutex);
  while (!atomic_load(&s->hurry) && clock_of(CLOCK_MONOTONIC) < end)
    if (pthread_cond_timedwait(&s->changed, &s->mutex, &until)) break;
  s->rested += clock_of(CLOCK_MONOTONIC) - begin;
  pthread_mutex_unlock(&s->mutex);
  s->worked = clock_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Nobody waited for the end, and the ranks went on. */
static bool is_stale(tsr_saver *s, tsr_diags *diags) {
  return atomic_load(&s->stale) &&
         !tsr_diag_failure(diags, TSR_NOWHERE, "the disk took too long, and the run went on");
}

/* Bytes of a rank's memory. */
static bool write_bytes(
    const tsr_device *device, const char *from, int64_t bytes, tsr_checkpoint_writer *o,
    tsr_diags *diags) {
  tsr_device_pieces pieces;
  const void *piece;
  bool ok = true;
  tsr_device_pieces_begin(&pieces, device, from, bytes);
  for (int64_t n; ok && (piece = tsr_device_pieces_next(&pieces, &n));)
    ok = tsr_checkpoint_writer_data(o, piece, (size_t)n, diags);
  tsr_device_pieces_end(&pieces);
  return ok;
}

static bool
write_file(tsr_saver *s, const tsr_saver_file *f, tsr_checkpoint_writer *o, tsr_diags *diags) {
  if (!f->count) return true;
  if (!tsr_checkpoint_writer_tensors(o, f->name, f->pieces, f->count, diags)) return false;
  for (int k = 0; k < f->count; k++) {
    const tsr_saver_source *from = &f->sources[k];
    int64_t run = s->copy || from->run == from->stride ? from->bytes : from->run;
    const char *bytes = s->copy ? s->copy + from->at : from->memory;
    if (is_stale(s, diags)) return false;
    if (s->copy) {
      if (!tsr_checkpoint_writer_data(o, bytes, (size_t)run, diags)) return false;
      continue;
    }
    for (int64_t at = 0; at < from->bytes; at += run, bytes += from->stride)
      if (!write_bytes(from->device, bytes, run, o, diags)) return false;
  }
  return tsr_checkpoint_writer_end_tensors(o, diags);
}

static bool write_history(tsr_saver *s, tsr_checkpoint_writer *o, tsr_diags *diags) {
  int64_t n = s->state.step;
  tsr_checkpoint_writer_piece pieces[2] = {
      {"history.grad_norm", TSR_F32, 1, {n}, {0}, {n}},
      {"history.loss", TSR_F32, 1, {n}, {0}, {n}}};
  return tsr_checkpoint_writer_tensors(o, "history.safetensors", pieces, 2, diags) &&
         tsr_checkpoint_writer_data(o, s->history + n, sizeof(float) * (size_t)n, diags) &&
         tsr_checkpoint_writer_data(o, s->history, sizeof(float) * (size_t)n, diags) &&
         tsr_checkpoint_writer_end_tensors(o, diags);
}

static bool write_others(tsr_saver *s, tsr_checkpoint_writer *o, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  if (!tsr_checkpoint_writer_bytes(o, "config.yaml", w->config, strlen(w->config), diags))
    return false;
  for (int i = 0; i < w->sides_count; i++)
    if (!tsr_checkpoint_writer_bytes(
            o, w->sides[i].name, w->sides[i].bytes, w->sides[i].length, diags))
      return false;
  if (!w->tokenizer) return true;
  if (w->tokenizer_from)
    return tsr_checkpoint_writer_copy(o, w->tokenizer, w->tokenizer_from, 0, diags);
  return tsr_checkpoint_writer_bytes(
      o, w->tokenizer, w->tokenizer_bytes, w->tokenizer_length, diags);
}

static tsr_manifest about(const tsr_saver *s) {
  const tsr_saver_options *o = &s->options;
  return (tsr_manifest){
      .state = s->state,
      .has_state = o->optimizer,
      .tag = o->tag,
      .mesh = o->mesh,
      .isa = o->isa,
      .version = o->version,
      .time = (int64_t)time(NULL),
      .config = "config.yaml",
      .tokenizer = o->tokenizer,
      .recipe = (tsr_recipe_entry *)o->recipe,
      .recipe_count = o->recipe_count};
}

static bool add_known(tsr_saver *s, int64_t step, tsr_diags *diags) {
  if (tsr_checkpoint_steps_have(&s->known, step)) return true;
  if (s->known.count == s->known_capacity) {
    int capacity = 2 * s->known_capacity + 64;
    int64_t *grown = tsr_memory_try_grow(s->known.items, sizeof *grown * (size_t)capacity);
    if (!grown) return tsr_diag_failure(diags, TSR_NOWHERE, "out of memory");
    s->known.items = grown;
    s->known_capacity = capacity;
  }
  s->known.items[s->known.count++] = step;
  return true;
}

bool tsr_saver_find(tsr_saver *s, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  bool ok = tsr_checkpoints_list(s->arena, s->options.folder, &entries, &count, diags);
  for (int i = 0; ok && i < count; i++) ok = add_known(s, entries[i].step, diags);
  return ok;
}

/* One of the same step is what a run left that resumed from before it. It loses its name, and gets
 * it back if the new one cannot be written. Makes the folder that all processes write into. */
bool tsr_saver_prepare(tsr_saver *s, tsr_arena *arena, tsr_diags *diags) {
  const char *path = tsr_checkpoint_path(arena, s->options.folder, s->state.step);
  struct stat info;
  s->again = !lstat(path, &info);
  if (s->again && !(tsr_checkpoint_steps_have(&s->known, s->state.step) && tsr_own_folder(path))) {
    s->again = false;
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "'%s' appeared while the run was going on: it is not replaced", path);
  }
  if (s->again && !tsr_disk_rename(path, tsr_checkpoint_aside(arena, path)))
    return tsr_diag_failure(diags, TSR_NOWHERE, "cannot replace '%s': %s", path, strerror(errno));
  return add_known(s, s->state.step, diags) &&
         tsr_checkpoint_writer_prepare_beside(arena, path, diags);
}

void tsr_saver_clear_aside(tsr_saver *s, tsr_arena *arena, tsr_diags *diags) {
  const char *path = tsr_checkpoint_path(arena, s->options.folder, s->state.step);
  if (!s->again) return;
  if (!access(path, F_OK)) {
    tsr_checkpoint_remove_aside(arena, path, diags);
    return;
  }
  const char *aside = tsr_checkpoint_aside(arena, path);
  /* a disk that was full at first may have room now */
  if (!tsr_disk_rename(aside, path)) tsr_disk_rename(aside, path);
}

/* What this process holds; of the first one also the rest, and the end. */
static bool write_all(tsr_saver *s, tsr_checkpoint_writer *o, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  tsr_manifest m = about(s);
  bool ok = true;
  for (int i = 0; ok && i < s->files_count; i++) ok = write_file(s, &s->files[i], o, diags);
  ok = ok && !is_stale(s, diags);
  if (!ok || w->process) return ok && tsr_checkpoint_writer_leave_part(o, w->process, diags);
  ok = write_history(s, o, diags) && write_others(s, o, diags);
  for (int i = 1; ok && i < w->processes; i++)
    ok = tsr_checkpoint_writer_wait_part(o, i, w->timeout_s, diags);
  return ok && !is_stale(s, diags) && tsr_checkpoint_writer_commit(o, &m, diags);
}

static bool write_checkpoint(tsr_saver *s, tsr_arena *arena, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  tsr_checkpoint_writer *o;
  tsr_checkpoint_writer_join(
      arena, tsr_checkpoint_path(arena, w->folder, s->state.step), pace, s, &o);
  bool ok = (w->processes > 1 || tsr_saver_prepare(s, arena, diags)) && write_all(s, o, diags);
  if (!ok && w->process) tsr_checkpoint_writer_leave_failure(o, w->process);
  else if (!ok) tsr_checkpoint_writer_abandon(o);
  if (!w->process) tsr_saver_clear_aside(s, arena, diags);
  return ok;
}

char *tsr_saver_text(tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  if (!stream) return NULL;
  tsr_diags_print(diags, stream);
  fclose(stream);
  return text;
}

/* Writes, prunes, and reports the outcome. */
void tsr_saver_write(tsr_saver *s) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  double begin = clock_of(CLOCK_MONOTONIC);
  s->worked = clock_of(CLOCK_THREAD_CPUTIME_ID);
  s->rested = 0;
  bool ok = write_checkpoint(s, arena, diags);
  const tsr_saver_options *o = &s->options;
  tsr_checkpoint_retention keep = {o->keep_last, o->keep_every, &s->state.validation};
  if (ok && !o->process && tsr_checkpoints_name_best(arena, o->folder, keep.best, diags))
    tsr_checkpoints_prune(arena, o->folder, &s->known, s->state.step, &keep, diags);
  double seconds = clock_of(CLOCK_MONOTONIC) - begin;
  pthread_mutex_lock(&s->mutex);
  if (tsr_diags_errors(diags)) {
    free(s->trouble);
    s->trouble = tsr_saver_text(diags);
  }
  s->failed = !ok;
  s->seconds = seconds - s->rested;
  pthread_mutex_unlock(&s->mutex);
  tsr_arena_free(arena);
}

void *tsr_saver_run_thread(void *context) {
  tsr_saver *s = context;
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    while (!s->busy && !s->ends) pthread_cond_wait(&s->changed, &s->mutex);
    if (!s->busy) break;
    pthread_mutex_unlock(&s->mutex);
    tsr_saver_write(s);
    pthread_mutex_lock(&s->mutex);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

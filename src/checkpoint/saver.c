// SPDX-License-Identifier: Apache-2.0
#include "base/file_ops.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/saver_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- the plan ---- */

static tsr_saver_file *file_of(tsr_saver *s, int rank) {
  tsr_saver_file *f = &s->files[rank];
  if (!f->name[0]) snprintf(f->name, sizeof f->name, "rank-%05d.safetensors", rank);
  return f;
}

static void plan_part(tsr_saver *s, const tsr_value *v, const tsr_part_of_value *part) {
  tsr_saver_file *f = file_of(s, part->rank);
  tsr_checkpoint_writer_piece p = {.name = v->name, .dtype = v->dtype, .ndim = v->ndim};
  for (int d = 0; d < v->ndim; d++) {
    p.shape[d] = part->slice.global[d];
    p.begin[d] = part->slice.offset[d];
    p.piece[d] = part->slice.shape[d];
  }
  tsr_arena_grow(s->arena, (void **)&f->pieces, sizeof p, f->count, &f->capacity);
  tsr_arena_grow(
      s->arena, (void **)&f->sources, sizeof(tsr_saver_source), f->count, &f->sources_capacity);
  int64_t each = tsr_dtype_bytes(v->dtype), bytes = tsr_stored_elements(v->ndim, p.piece) * each;
  f->pieces[f->count] = p;
  f->sources[f->count++] = (tsr_saver_source){part->device,        part->address, part->run * each,
                                              part->stride * each, bytes,         0};
  s->bytes += bytes;
}

/* Where each part is in the copy: in the order in which they are written. */
static void place_sources(tsr_saver *s) {
  int64_t at = 0;
  for (int i = 0; i < s->files_count; i++)
    for (int k = 0; k < s->files[i].count; k++) {
      s->files[i].sources[k].at = at;
      at += s->files[i].sources[k].bytes;
    }
}

static void plan(tsr_saver *s, const tsr_executable *executable) {
  const tsr_graph *g = tsr_executable_graph(executable);
  s->files_count = tsr_executable_ranks(executable);
  s->files = tsr_arena_array(s->arena, tsr_saver_file, s->files_count);
  tsr_part_of_value *parts =
      tsr_arena_array(s->arena, tsr_part_of_value, tsr_executable_parts_most(executable));
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    bool is_state = value->kind == TSR_VALUE_STATE;
    if (value->kind != TSR_VALUE_PARAM && !(is_state && s->options.optimizer)) continue;
    if (value->param < 0 || g->params[value->param].is_frozen) continue;
    int count = tsr_executable_parts(executable, v, true, parts);
    for (int i = 0; i < count; i++) plan_part(s, value, &parts[i]);
  }
  place_sources(s);
}

/* ---- the step loop's side ---- */

static bool take_copy(tsr_saver *s, tsr_diags *diags) {
  if (!s->bytes) return true;
  void *memory = tsr_memory_map((size_t)s->bytes);
  if (!memory)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot allocate %s for the copy that checkpoints are written from: %s",
        tsr_text_bytes(s->bytes).text, strerror(errno));
  madvise(memory, (size_t)s->bytes, MADV_HUGEPAGE);
  s->copy = memory;
  return true;
}

static bool start_thread(tsr_saver *s, tsr_diags *diags) {
  int error = pthread_create(&s->thread, NULL, tsr_saver_run_thread, s);
  s->has_thread = !error;
  return !error || tsr_diag_failure(
                       diags, TSR_NOWHERE, "cannot start the thread that writes checkpoints: %s",
                       strerror(error));
}

/* All processes write beside the steps, or none. One that waits for its disk does so while a thread
 * writes, so that it can tell the others. */
static bool take_memory(tsr_saver *s, int64_t left, tsr_diags *diags) {
  bool background = s->options.background, fits = s->bytes <= left;
  bool none = tsr_executable_agree(s->executable, background && !fits);
  s->waits = !background || none;
  if (none)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "training waits while a checkpoint is written: the copy of %s does not fit the memory left",
        fits ? "another process" : tsr_text_bytes(s->bytes).text);
  if (s->waits && s->options.processes <= 1) return true;
  return (s->waits || take_copy(s, diags)) && start_thread(s, diags);
}

enum { FIRST_SHARE_PERCENT = 3 };

bool tsr_saver_open(
    tsr_arena *arena, tsr_executable *executable, const tsr_saver_options *options, tsr_saver **ret,
    tsr_diags *diags) {
  tsr_saver *s = *ret = tsr_arena_alloc(arena, sizeof *s);
  *s = (tsr_saver){.arena = arena, .options = *options};
  s->executable = executable;
  s->pool = tsr_executable_pool(executable);
  s->share = FIRST_SHARE_PERCENT / 100.0;
  pthread_condattr_t clock; /* that cannot be set */
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, &clock);
  pthread_condattr_destroy(&clock);
  plan(s, executable);
  bool first = !options->process; /* of the processes, it makes the folders */
  if (take_memory(s, tsr_executable_memory_left(executable), diags) &&
      (!first || tsr_saver_find(s, diags)))
    return true;
  tsr_saver_close(s);
  return false;
}

int64_t tsr_saver_bytes(const tsr_saver *s) { return s->bytes; }

static void report(tsr_saver *s, tsr_diags *diags) {
  if (!s->trouble) return;
  s->trouble[strcspn(s->trouble, "\n")] = 0;
  const char *word = "error: ";
  const char *reason = s->trouble + (strncmp(s->trouble, word, strlen(word)) ? 0 : strlen(word));
  snprintf(s->reason, sizeof s->reason, "%s", reason);
  tsr_diag_warning(
      diags, TSR_NOWHERE, "%s after step %lld: %s",
      s->failed ? "no checkpoint" : "old checkpoints stay", (long long)s->state.step, s->trouble);
  free(s->trouble);
  s->trouble = NULL;
}

void tsr_saver_report(tsr_saver *s, tsr_diags *diags) {
  pthread_mutex_lock(&s->mutex);
  if (!s->busy) report(s, diags);
  pthread_mutex_unlock(&s->mutex);
}

/* ---- waiting for the thread ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void hurry(tsr_saver *s, bool wanted) {
  pthread_mutex_lock(&s->mutex);
  atomic_store(&s->hurry, wanted);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

/* For `seconds` at most, 0: as long as it takes; whether it is done. */
static bool wait_here(tsr_saver *s, double seconds) {
  struct timespec until = tsr_saver_until(seconds);
  pthread_mutex_lock(&s->mutex);
  for (int late = 0; s->busy && !late;)
    late = seconds > 0 ? pthread_cond_timedwait(&s->changed, &s->mutex, &until)
                       : pthread_cond_wait(&s->changed, &s->mutex);
  bool done = !s->busy;
  pthread_mutex_unlock(&s->mutex);
  return done;
}

/* A process whose disk is slow is not lost, so all tell each other in rounds whether they still
 * write and whether their disks do anything. False, for all of them: no disk did for timeout_s. */
static bool wait_for_all(tsr_saver *s) {
  enum { BUSY = 1, MOVED = 2, LATE = 4 };
  double limit = s->options.timeout_s, since = now();
  double round = limit > 0 && limit < 4 ? limit / 4 : 1;
  for (long before = -1;;) {
    uint64_t mine = wait_here(s, round) ? 0 : BUSY;
    long operations = tsr_disk_operations();
    if (mine && operations != before) mine |= MOVED;
    if (limit > 0 && now() - since > limit) mine |= LATE;
    before = operations;
    uint64_t all = tsr_executable_agree(s->executable, mine);
    if (!(all & BUSY)) return true;
    if (all & MOVED) since = now();
    else if (all & LATE) return false;
  }
}

/* False: it still writes, and the caller stops waiting. */
static bool settle(tsr_saver *s, tsr_diags *diags) {
  hurry(s, true);
  bool done = s->options.processes > 1 ? wait_for_all(s) : wait_here(s, 0);
  if (!done) {
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "no checkpoint after step %lld so far: for %g s nothing of it has come to the disk",
        (long long)s->state.step, s->options.timeout_s);
    return false;
  }
  hurry(s, false);
  tsr_saver_report(s, diags);
  return true;
}

const char *tsr_saver_reason(const tsr_saver *s) { return s->reason; }

bool tsr_saver_wait(tsr_saver *s, tsr_diags *diags) {
  if (!settle(s, diags)) return false;
  pthread_mutex_lock(&s->mutex);
  bool ok = !s->failed;
  pthread_mutex_unlock(&s->mutex);
  return ok;
}

/* ---- a new one ---- */

enum { COPIED_AT_ONCE = 4 << 20, PIECE_JOB = 512 << 10 };

/* Bytes [begin, end) of a source, of which its runs follow each other. */
static void copy_source(const tsr_saver_source *from, int64_t begin, int64_t end, char *to) {
  for (int64_t at = begin, n; at < end; at += n, to += n) {
    int64_t in_run = at % from->run;
    n = from->run - in_run < end - at ? from->run - in_run : end - at;
    memcpy(to, from->memory + at / from->run * from->stride + in_run, (size_t)n);
  }
}

/* Jobs are pieces of the copy, which parts follow each other in; of sources that the host has. */
static void copy_job(void *context, int job) {
  tsr_saver *s = context;
  int64_t begin = (int64_t)job * COPIED_AT_ONCE, end = begin + COPIED_AT_ONCE;
  for (int i = 0; i < s->files_count; i++)
    for (int k = 0; k < s->files[i].count; k++) {
      const tsr_saver_source *from = &s->files[i].sources[k];
      int64_t a = from->at > begin ? from->at : begin;
      int64_t b = from->at + from->bytes < end ? from->at + from->bytes : end;
      if (a < b && tsr_device_is_host(from->device))
        copy_source(from, a - from->at, b - from->at, s->copy + a);
    }
}

/* A piece of a source on another device, in memory of the host: bytes from `first` on, counted with
 * what lies between the runs. */
typedef struct {
  const tsr_saver_source *source;
  const char *bytes;
  int64_t first, count;
  char *to; /* of the source */
} device_piece;

static void copy_piece_job(void *context, int job) {
  const device_piece *p = context;
  const tsr_saver_source *from = p->source;
  int64_t begin = p->first + (int64_t)job * PIECE_JOB, end = p->first + p->count;
  if (end > begin + PIECE_JOB) end = begin + PIECE_JOB;
  for (int64_t at = begin, n; at < end; at += n) {
    int64_t run = at / from->stride, in_run = at % from->stride;
    n = (in_run < from->run ? from->run : from->stride) - in_run;
    if (n > end - at) n = end - at;
    if (in_run < from->run)
      memcpy(p->to + run * from->run + in_run, p->bytes + (at - p->first), (size_t)n);
  }
}

/* The host's threads take a piece while the device copies the next one. */
static void copy_from_device(tsr_saver *s, const tsr_saver_source *from) {
  int64_t runs = from->bytes / from->run, span = (runs - 1) * from->stride + from->run;
  device_piece p = {.source = from, .to = s->copy + from->at};
  tsr_device_pieces pieces;
  tsr_device_pieces_begin(&pieces, from->device, from->memory, span);
  for (; (p.bytes = tsr_device_pieces_next(&pieces, &p.count)); p.first += p.count)
    tsr_pool_run(s->pool, copy_piece_job, &p, (int)((p.count + PIECE_JOB - 1) / PIECE_JOB));
  tsr_device_pieces_end(&pieces);
}

static bool copy_history(tsr_saver *s, tsr_saver_history h) {
  size_t n = (size_t)s->state.step;
  float *grown = tsr_memory_try_grow(s->history, sizeof(float) * (2 * n + 1));
  if (!grown) return false;
  s->history = grown;
  memcpy(grown, h.loss, sizeof(float) * n);
  memcpy(grown + n, h.norm, sizeof(float) * n);
  return true;
}

/* A loop that had to wait for the disk lets the thread work more from now on. */
static void adapt(tsr_saver *s) {
  pthread_mutex_lock(&s->mutex);
  if (s->busy) s->share = s->share * 2 < 1 ? s->share * 2 : 1;
  pthread_mutex_unlock(&s->mutex);
}

/* Of several processes the first makes the folder before any of them writes. */
static bool prepare_together(tsr_saver *s, tsr_diags *diags) {
  if (s->options.processes <= 1) return true;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *errors = tsr_diags_new(arena);
  bool ok = s->options.process || tsr_saver_prepare(s, arena, errors);
  if (!ok) {
    tsr_saver_clear_aside(s, arena, errors);
    free(s->trouble);
    s->trouble = tsr_saver_text(errors);
    s->failed = true;
    report(s, diags);
  }
  tsr_arena_free(arena);
  return !tsr_executable_agree(s->executable, !ok);
}

static void copy(tsr_saver *s) {
  int64_t jobs = (s->bytes + COPIED_AT_ONCE - 1) / COPIED_AT_ONCE;
  if (!s->copy) return;
  tsr_pool_run(s->pool, copy_job, s, (int)jobs);
  for (int i = 0; i < s->files_count; i++)
    for (int k = 0; k < s->files[i].count; k++)
      if (!tsr_device_is_host(s->files[i].sources[k].device))
        copy_from_device(s, &s->files[i].sources[k]);
}

bool tsr_saver_take(
    tsr_saver *s, const tsr_run_state *state, tsr_saver_history history, tsr_diags *diags) {
  adapt(s);
  if (!settle(s, diags)) return false;
  s->state = *state;
  if (!copy_history(s, history)) {
    tsr_diag_warning(
        diags, TSR_NOWHERE, "no checkpoint after step %lld: no memory for the losses so far",
        (long long)state->step);
    return false;
  }
  if (!prepare_together(s, diags)) return false;
  if (!s->has_thread) {
    tsr_saver_write(s);
    report(s, diags);
    return true;
  }
  copy(s);
  atomic_store(&s->stale, false);
  pthread_mutex_lock(&s->mutex);
  s->busy = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  if (!s->waits) return true;
  bool done = settle(s, diags);
  atomic_store(&s->stale, !done);
  return done;
}

bool tsr_saver_is_busy(tsr_saver *s) {
  pthread_mutex_lock(&s->mutex);
  bool busy = s->busy;
  pthread_mutex_unlock(&s->mutex);
  return busy;
}

double tsr_saver_seconds(tsr_saver *s) {
  pthread_mutex_lock(&s->mutex);
  double seconds = s->seconds;
  pthread_mutex_unlock(&s->mutex);
  return seconds;
}

void tsr_saver_close(tsr_saver *s) {
  if (!s) return;
  if (s->has_thread) {
    pthread_mutex_lock(&s->mutex);
    s->ends = true;
    atomic_store(&s->hurry, true);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
  }
  s->has_thread = false;
  if (s->copy) munmap(s->copy, (size_t)s->bytes);
  free(s->history);
  free(s->known.items);
  free(s->trouble);
  s->copy = NULL;
  s->history = NULL;
  s->known = (tsr_checkpoint_steps){0};
  s->trouble = NULL;
}

#include "checkpoint/save.h"
#include "base/disk.h"
#include "checkpoint/folder.h"
#include "checkpoint/output.h"
#include "run/pool.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A part of a value on its way from a rank to a file. */
typedef struct {
  const char *memory; /* the rank's */
  int64_t bytes, at;  /* at: in the copy */
} source;

/* The pieces of one file. */
typedef struct {
  char name[32];
  tsr_output_piece *pieces;
  source *sources;
  int count, capacity, sources_capacity;
} file;

struct tsr_saver {
  tsr_arena *arena;
  tsr_saver_options options;
  tsr_bound *bound;
  tsr_pool *pool; /* the worker's */
  int lock;
  file *files;
  int files_count;
  int64_t bytes;
  char *copy; /* NULL: there is none, and nothing is written in the background */
  /* what is to be written */
  tsr_run_state state;
  float *history; /* losses, then norms */
  /* the thread; all below under `mutex` but `hurry` */
  pthread_t thread;
  bool has_thread;
  bool again; /* there was one of the same step */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool busy, ends;
  atomic_bool hurry;
  char *trouble; /* what went wrong and was not reported yet, or NULL */
  bool failed;   /* the last one */
  double seconds, rested; /* of the last write; of them idle */
  double share;           /* of its time that the thread works, unless it must hurry */
  double worked;          /* CPU seconds at the last pause */
};

/* ---- the plan ---- */

static file *file_of(tsr_saver *s, int rank) {
  file *f = &s->files[rank];
  if (!f->name[0]) snprintf(f->name, sizeof f->name, "rank-%05d.safetensors", rank);
  return f;
}

/* Rows of padding are not kept. */
static int64_t real_rows(const tsr_box *box, int64_t valid0) {
  int64_t rows = valid0 - box->offset[0];
  return rows < 0 ? 0 : rows < box->shape[0] ? rows : box->shape[0];
}

static void plan_part(
    tsr_saver *s, const tsr_value *v, int64_t valid0, const tsr_part_of_value *part) {
  file *f = file_of(s, part->rank);
  tsr_output_piece p = {.name = v->name, .dtype = v->dtype, .ndim = v->ndim};
  for (int d = 0; d < v->ndim; d++) {
    p.shape[d] = part->box.global[d];
    p.begin[d] = part->box.offset[d];
    p.piece[d] = part->box.shape[d];
  }
  p.shape[0] = valid0;
  p.piece[0] = real_rows(&part->box, valid0);
  if (!p.piece[0]) return;
  tsr_arena_grow(s->arena, (void **)&f->pieces, sizeof p, f->count, &f->capacity);
  tsr_arena_grow(
      s->arena, (void **)&f->sources, sizeof(source), f->count, &f->sources_capacity);
  int64_t bytes = tsr_stored_elements(v->ndim, p.piece) * tsr_dtype_bytes(v->dtype);
  f->pieces[f->count] = p;
  f->sources[f->count++] = (source){part->address, bytes, 0};
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

static void plan(tsr_saver *s, const tsr_bound *bound) {
  const tsr_graph *g = tsr_bound_graph(bound);
  s->files_count = tsr_bound_ranks(bound);
  s->files = tsr_arena_array(s->arena, file, s->files_count);
  tsr_part_of_value *parts = tsr_arena_array(s->arena, tsr_part_of_value, s->files_count);
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (value->kind != TSR_VALUE_PARAM && value->kind != TSR_VALUE_STATE) continue;
    if (value->param < 0) continue;
    int count = tsr_bound_parts(bound, v, true, parts);
    for (int i = 0; i < count; i++) plan_part(s, value, g->params[value->param].valid0, &parts[i]);
  }
  place_sources(s);
}

/* ---- writing, in the thread or before it goes on ---- */

static double clock_of(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rests so long that the thread works for `share` of its time; a hurry ends it. */
static void pace(void *context) {
  tsr_saver *s = context;
  if (!s->has_thread) return;
  double cpu = clock_of(CLOCK_THREAD_CPUTIME_ID), begin = clock_of(CLOCK_MONOTONIC);
  pthread_mutex_lock(&s->mutex);
  double rest = (cpu - s->worked) * (1 / s->share - 1), end = begin + rest;
  pthread_mutex_unlock(&s->mutex);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (long)(rest * 1e9) % 1000000000L;
  until.tv_sec += (time_t)rest + until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_mutex_lock(&s->mutex);
  while (!atomic_load(&s->hurry) && clock_of(CLOCK_MONOTONIC) < end)
    if (pthread_cond_timedwait(&s->changed, &s->mutex, &until)) break;
  s->rested += clock_of(CLOCK_MONOTONIC) - begin;
  pthread_mutex_unlock(&s->mutex);
  s->worked = clock_of(CLOCK_THREAD_CPUTIME_ID);
}

static bool write_file(tsr_saver *s, const file *f, tsr_output *o, tsr_diags *diags) {
  if (!f->count) return true;
  if (!tsr_output_tensors(o, f->name, f->pieces, f->count, diags)) return false;
  for (int k = 0; k < f->count; k++) {
    const source *from = &f->sources[k];
    const char *bytes = s->copy ? s->copy + from->at : from->memory;
    if (!tsr_output_data(o, bytes, (size_t)from->bytes, diags)) return false;
  }
  return tsr_output_end_tensors(o, diags);
}

static bool write_history(tsr_saver *s, tsr_output *o, tsr_diags *diags) {
  int64_t n = s->state.step;
  tsr_output_piece pieces[2] = {{"history.grad_norm", TSR_F32, 1, {n}, {0}, {n}},
                                {"history.loss", TSR_F32, 1, {n}, {0}, {n}}};
  return tsr_output_tensors(o, "history.safetensors", pieces, 2, diags) &&
         tsr_output_data(o, s->history + n, sizeof(float) * (size_t)n, diags) &&
         tsr_output_data(o, s->history, sizeof(float) * (size_t)n, diags) &&
         tsr_output_end_tensors(o, diags);
}

static bool write_others(tsr_saver *s, tsr_output *o, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  if (!tsr_output_bytes(o, "config.yaml", w->config, strlen(w->config), diags)) return false;
  for (int i = 0; i < w->sides_count; i++)
    if (!tsr_output_bytes(o, w->sides[i].name, w->sides[i].bytes, w->sides[i].length, diags))
      return false;
  if (!w->tokenizer) return true;
  if (w->tokenizer_from) return tsr_output_copy(o, w->tokenizer, w->tokenizer_from, diags);
  return tsr_output_bytes(o, w->tokenizer, w->tokenizer_bytes, w->tokenizer_length, diags);
}

static tsr_manifest about(const tsr_saver *s) {
  const tsr_saver_options *o = &s->options;
  return (tsr_manifest){
      .state = s->state,
      .has_state = true,
      .mesh = o->mesh,
      .isa = o->isa,
      .version = o->version,
      .time = (int64_t)time(NULL),
      .config = "config.yaml",
      .tokenizer = o->tokenizer,
      .recipe = (tsr_recipe_entry *)o->recipe,
      .recipe_count = o->recipe_count};
}

/* One of the same step is what a run left that went on from before it. It loses its name, and gets it
 * back if the new one cannot be written. */
static const char *aside_of(const tsr_saver *s, tsr_arena *arena) {
  return tsr_arena_printf(
      arena, "%s.old.partial", tsr_checkpoint_path(arena, s->options.folder, s->state.step));
}

/* Makes the folder that all workers write into. */
static bool prepare(tsr_saver *s, tsr_arena *arena, tsr_diags *diags) {
  const char *path = tsr_checkpoint_path(arena, s->options.folder, s->state.step);
  s->again = !access(path, F_OK);
  if (s->again && !tsr_disk_rename(path, aside_of(s, arena)))
    return tsr_diag_failure(diags, TSR_NOWHERE, "cannot replace '%s': %s", path, strerror(errno));
  return tsr_output_prepare(arena, path, diags);
}

static void clear_aside(tsr_saver *s, tsr_arena *arena) {
  const char *path = tsr_checkpoint_path(arena, s->options.folder, s->state.step);
  if (s->again && access(path, F_OK)) tsr_disk_rename(aside_of(s, arena), path);
  else if (s->again) tsr_disk_remove(aside_of(s, arena));
}

/* What this worker holds; of the first one also the rest, and the end. */
static bool write_all(tsr_saver *s, tsr_output *o, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  tsr_manifest m = about(s);
  bool ok = true;
  for (int i = 0; ok && i < s->files_count; i++) ok = write_file(s, &s->files[i], o, diags);
  if (!ok || w->worker) return ok && tsr_output_leave_part(o, w->worker, diags);
  ok = write_history(s, o, diags) && write_others(s, o, diags);
  for (int i = 1; ok && i < w->workers; i++) ok = tsr_output_wait_part(o, i, w->timeout_s, diags);
  return ok && tsr_output_commit(o, &m, diags);
}

static bool write_checkpoint(tsr_saver *s, tsr_arena *arena, tsr_diags *diags) {
  const tsr_saver_options *w = &s->options;
  tsr_output *o;
  tsr_output_join(arena, tsr_checkpoint_path(arena, w->folder, s->state.step), pace, s, &o);
  bool ok = (w->workers > 1 || prepare(s, arena, diags)) && write_all(s, o, diags);
  if (!ok && w->worker) tsr_output_leave_failure(o, w->worker);
  else if (!ok) tsr_output_abandon(o);
  if (!w->worker) clear_aside(s, arena);
  return ok;
}

static char *text_of(tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  if (!stream) return NULL;
  tsr_diags_print(diags, stream);
  fclose(stream);
  return text;
}

/* Writes, prunes, and says how it went. */
static void write_and_tell(tsr_saver *s) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  double begin = clock_of(CLOCK_MONOTONIC);
  s->worked = clock_of(CLOCK_THREAD_CPUTIME_ID);
  s->rested = 0;
  bool ok = write_checkpoint(s, arena, diags);
  const tsr_saver_options *o = &s->options;
  if (ok && !o->worker)
    tsr_checkpoints_prune(
        arena, o->folder, s->state.step, o->keep_last, o->keep_every, diags);
  double seconds = clock_of(CLOCK_MONOTONIC) - begin;
  pthread_mutex_lock(&s->mutex);
  if (tsr_diags_errors(diags)) {
    free(s->trouble);
    s->trouble = text_of(diags);
  }
  s->failed = !ok;
  s->seconds = seconds - s->rested;
  pthread_mutex_unlock(&s->mutex);
  tsr_arena_free(arena);
}

static void *run_thread(void *context) {
  tsr_saver *s = context;
  setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    while (!s->busy && !s->ends) pthread_cond_wait(&s->changed, &s->mutex);
    if (!s->busy) break;
    pthread_mutex_unlock(&s->mutex);
    write_and_tell(s);
    pthread_mutex_lock(&s->mutex);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

/* ---- the step loop's side ---- */

static bool take_memory(tsr_saver *s, int64_t left, tsr_diags *diags) {
  if (!s->options.background || !s->bytes) return true;
  if (s->bytes > left) {
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "training waits while a checkpoint is written: the copy of %s does not fit the memory left",
        tsr_text_bytes(s->bytes));
    return true;
  }
  void *memory = mmap(
      NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot allocate %s for the copy that checkpoints are written from: %s",
        tsr_text_bytes(s->bytes), strerror(errno));
  madvise(memory, (size_t)s->bytes, MADV_HUGEPAGE);
  s->copy = memory;
  int error = pthread_create(&s->thread, NULL, run_thread, s);
  s->has_thread = !error;
  return !error || tsr_diag_failure(
                       diags, TSR_NOWHERE, "cannot start the thread that writes checkpoints: %s",
                       strerror(error));
}

enum { FIRST_SHARE_PERCENT = 3 };

bool tsr_saver_open(
    tsr_arena *arena, tsr_bound *bound, const tsr_saver_options *options, tsr_saver **ret,
    tsr_diags *diags) {
  tsr_saver *s = *ret = tsr_arena_alloc(arena, sizeof *s);
  *s = (tsr_saver){.arena = arena, .options = *options, .lock = -1};
  s->bound = bound;
  s->pool = tsr_bound_pool(bound);
  s->share = FIRST_SHARE_PERCENT / 100.0;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
  plan(s, bound);
  bool first = options->worker == 0;
  if ((!first || tsr_checkpoints_open_folder(arena, options->folder, &s->lock, diags)) &&
      take_memory(s, tsr_bound_memory_left(bound), diags))
    return true;
  tsr_saver_close(s);
  return false;
}

int64_t tsr_saver_bytes(const tsr_saver *s) { return s->bytes; }

static void report(tsr_saver *s, tsr_diags *diags) {
  if (!s->trouble) return;
  s->trouble[strcspn(s->trouble, "\n")] = 0;
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

bool tsr_saver_wait(tsr_saver *s, tsr_diags *diags) {
  pthread_mutex_lock(&s->mutex);
  atomic_store(&s->hurry, true);
  pthread_cond_broadcast(&s->changed);
  while (s->busy) pthread_cond_wait(&s->changed, &s->mutex);
  atomic_store(&s->hurry, false);
  report(s, diags);
  bool ok = !s->failed;
  pthread_mutex_unlock(&s->mutex);
  return ok;
}

enum { COPIED_AT_ONCE = 4 << 20 };

/* Jobs are pieces of the copy, which parts follow each other in. */
static void copy_job(void *context, int job) {
  tsr_saver *s = context;
  int64_t begin = (int64_t)job * COPIED_AT_ONCE, end = begin + COPIED_AT_ONCE;
  for (int i = 0; i < s->files_count; i++)
    for (int k = 0; k < s->files[i].count; k++) {
      const source *from = &s->files[i].sources[k];
      int64_t a = from->at > begin ? from->at : begin;
      int64_t b = from->at + from->bytes < end ? from->at + from->bytes : end;
      if (a < b) memcpy(s->copy + a, from->memory + a - from->at, (size_t)(b - a));
    }
}

static bool copy_history(tsr_saver *s, tsr_saver_history h) {
  size_t n = (size_t)s->state.step;
  float *grown = realloc(s->history, sizeof(float) * (2 * n + 1));
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

/* Of several workers the first makes the folder before any of them writes. */
static bool prepare_together(tsr_saver *s, tsr_diags *diags) {
  if (s->options.workers <= 1) return true;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *errors = tsr_diags_new(arena);
  bool ok = s->options.worker || prepare(s, arena, errors);
  if (!ok) {
    clear_aside(s, arena);
    free(s->trouble);
    s->trouble = text_of(errors);
    s->failed = true;
    report(s, diags);
  }
  tsr_arena_free(arena);
  return !tsr_bound_agree(s->bound, !ok);
}

bool tsr_saver_take(
    tsr_saver *s, const tsr_run_state *state, tsr_saver_history history, tsr_diags *diags) {
  adapt(s);
  tsr_saver_wait(s, diags);
  s->state = *state;
  if (!copy_history(s, history)) {
    tsr_diag_warning(
        diags, TSR_NOWHERE, "no checkpoint after step %lld: no memory for the losses so far",
        (long long)state->step);
    return false;
  }
  if (!prepare_together(s, diags)) return false;
  if (!s->copy) {
    write_and_tell(s);
    report(s, diags);
    return true;
  }
  int64_t jobs = (s->bytes + COPIED_AT_ONCE - 1) / COPIED_AT_ONCE;
  tsr_pool_run(s->pool, copy_job, s, (int)jobs);
  pthread_mutex_lock(&s->mutex);
  s->busy = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  return true;
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
  if (s->lock >= 0) close(s->lock);
  free(s->history);
  free(s->trouble);
  s->copy = NULL;
  s->history = NULL;
  s->trouble = NULL;
  s->lock = -1;
}

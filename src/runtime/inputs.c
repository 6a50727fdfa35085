// SPDX-License-Identifier: Apache-2.0
/* What comes into a step from the data. Where the device's memory is the host's, a microbatch's
 * inputs are filled where the tasks read them, when its forward pass begins. For other devices all
 * microbatches of a step are staged in memory of the host, which the device copies from; there are
 * two sets of that, so that the next step's are filled while the device computes. */
#include "runtime/executable_internal.h"
#include <assert.h>
#include <string.h>

/* ---- staged inputs ---- */

/* Of a rank: its inputs of microbatch 0, one after the other, then those of the next one. */
static int64_t input_bytes(const tsr_executable *b, int value, int rank) {
  const tsr_program *p = tsr_executable_program(b, rank);
  return (tsr_tensor_bytes(&p->tensors[value]) + 255) / 256 * 256;
}

static bool is_input(const tsr_executable *b, int value, int rank) {
  return b->programs->graph->values[value].kind == TSR_VALUE_INPUT &&
         tsr_executable_has(b, value, rank);
}

static int64_t microbatch_bytes(const tsr_executable *b, int rank) {
  int64_t bytes = 0;
  for (int v = 0; v < b->programs->graph->values_count; v++)
    if (is_input(b, v, rank)) bytes += input_bytes(b, v, rank);
  return bytes;
}

static char *staged_address(const tsr_executable *b, int value, int rank, int64_t microbatch) {
  const tsr_staged *s = b->staged;
  int64_t at = s->at[rank] + microbatch * s->each[rank];
  for (int v = 0; v < value; v++)
    if (is_input(b, v, rank)) at += input_bytes(b, v, rank);
  return s->memory[s->set] + at;
}

bool tsr_inputs_open(tsr_arena *arena, tsr_executable *b, char *why) {
  const tsr_device *d = b->process->device;
  int ranks = b->process->options.parallel->ranks;
  int64_t bytes = 0;
  if (!d->allocate_host) return true;
  tsr_staged *s = b->staged = tsr_arena_alloc(arena, sizeof *s);
  *s = (tsr_staged){.filled = -1};
  s->at = tsr_arena_array(arena, int64_t, ranks);
  s->each = tsr_arena_array(arena, int64_t, ranks);
  for (int r = 0; r < ranks; r++) {
    if (!tsr_executable_is_here(b, r)) continue;
    s->at[r] = bytes;
    s->each[r] = microbatch_bytes(b, r);
    bytes += s->each[r] * b->programs->pipeline->microbatches;
  }
  for (int i = 0; bytes && i < 2; i++)
    if (!d->allocate_host(d->state, bytes, (void **)&s->memory[i], why)) return false;
  return true;
}

void tsr_inputs_close(tsr_executable *b) {
  const tsr_device *d = b->process->device;
  for (int i = 0; b->staged && i < 2; i++)
    if (b->staged->memory[i]) d->release_host(d->state, b->staged->memory[i]);
  b->staged = NULL;
}

/* ---- filling ---- */

typedef struct {
  tsr_executable *executable;
  const int *ranks;
  int64_t microbatch;
  int part; /* of the program: the inputs that it begins with; -1: all */
  const tsr_input_source *source;
} filling;

/* Rows of dimension 0 come from the data; an input that no data is for is random by its name. */
static void fill_input(const filling *f, int value, int rank) {
  const tsr_program *p = tsr_executable_program(f->executable, rank);
  const tsr_value *v = &p->graph->values[value];
  tsr_tensor_slice slice = tsr_executable_slice(f->executable, value, rank);
  char *part = f->executable->staged
                   ? staged_address(f->executable, value, rank, f->microbatch)
                   : tsr_executable_address(f->executable, value, rank, f->microbatch);
  int64_t row = 4;
  for (int d = 1; d < slice.ndim; d++) row *= slice.shape[d];
  if (!f->source->fill) {
    int64_t rows = 1;
    for (int d = 0; d < slice.ndim - 1; d++) rows *= slice.shape[d];
    const tsr_process_options *o = &f->executable->process->options;
    uint64_t key = tsr_random_key(o->seed, v->name, (uint64_t)f->source->step);
    o->kernels->random_normal((float *)(void *)part, 0, 1, key, &slice, 0, rows);
    return;
  }
  int64_t first =
      tsr_sample_offset(&p->lowering, v, 0, slice.offset[0], slice.shape[0], f->microbatch);
  bool split = slice.ndim > 1 && slice.shape[1] != slice.global[1];
  char *whole = f->executable->rows[rank];
  int64_t each = split ? row / slice.shape[1] : 0; /* bytes of a position */
  for (int64_t i = 0; i < slice.shape[0]; i++) {
    f->source->fill(f->source->context, v->name, first + i, split ? whole : part + i * row);
    for (int64_t k = 0; split && k < slice.shape[1]; k++)
      memcpy(
          part + i * row + k * each,
          whole + tsr_executable_position(f->executable, &slice, value, rank, 1, k) * each,
          (size_t)each);
  }
}

static void fill_rank(void *context, int job) {
  const filling *f = context;
  int rank = f->ranks[job];
  for (int v = 0; v < f->executable->programs->graph->values_count; v++)
    if (is_input(f->executable, v, rank) &&
        (f->part < 0 || tsr_program_fills(tsr_executable_program(f->executable, rank), f->part, v)))
      fill_input(f, v, rank);
}

static void fill_stage(tsr_executable *b, int stage, tsr_run run, const tsr_input_source *source) {
  filling f = {b, b->ranks_of_stage[stage], run.microbatch, run.part, source};
  tsr_recorder *r = b->recording;
  int ranks = b->ranks_count[stage];
  if (!r) {
    tsr_pool_run(b->process->pool, fill_rank, &f, ranks);
    return;
  }
  tsr_event event = {.kind = TSR_EVENT_INPUT, .task = -1, .microbatch = run.microbatch};
  tsr_recorder_run(r, b->process->pool, fill_rank, &f, ranks, f.ranks, 1);
  tsr_recorder_end(r, stage, tsr_recorder_now(r), event);
}

/* ---- a step ---- */

int tsr_inputs_set(const tsr_executable *b) { return b->staged->set; }

static void fill_all(tsr_executable *b, const tsr_input_source *source) {
  for (int s = 0; s < b->programs->pipeline->stages; s++)
    for (int m = 0; b->ranks_count[s] && m < b->programs->pipeline->microbatches; m++)
      fill_stage(b, s, (tsr_run){-1, m}, source);
}

void tsr_inputs_begin(tsr_executable *b, const tsr_input_source *source) {
  if (!b->staged) return;
  b->staged->set ^= 1;
  if (b->staged->filled != source->step) fill_all(b, source);
  b->staged->filled = -1;
}

/* The inputs of each rank in turn. */
static void copy_staged(tsr_executable *b, int stage, const tsr_run *run) {
  const tsr_device *d = b->process->device;
  for (int v = 0; v < b->programs->graph->values_count; v++) {
    int count = 0;
    for (int i = 0; i < b->ranks_count[stage]; i++) {
      int rank = b->ranks_of_stage[stage][i];
      const tsr_program *p = tsr_executable_program(b, rank);
      if (is_input(b, v, rank) && tsr_program_fills(p, run->part, v))
        b->copies[count++] = (tsr_device_copy){
            tsr_executable_address(b, v, rank, run->microbatch),
            staged_address(b, v, rank, run->microbatch), tsr_tensor_bytes(&p->tensors[v])};
    }
    if (count) d->copy(d->state, b->copies, count);
  }
}

void tsr_inputs_supply(
    tsr_executable *b, int stage, const tsr_run *run, const tsr_input_source *source) {
  if (b->staged) copy_staged(b, stage, run);
  else fill_stage(b, stage, *run, source);
}

void tsr_executable_announce(tsr_executable *b, int64_t step, tsr_fill_row *fill, void *context) {
  if (b->staged) b->staged->next = (tsr_input_source){step, fill, context};
}

void tsr_inputs_ahead(tsr_executable *b) {
  tsr_staged *s = b->staged;
  if (!s || !s->next.fill || b->recording) return;
  s->set ^= 1;
  fill_all(b, &s->next);
  s->set ^= 1;
  s->filled = s->next.step;
  s->next = (tsr_input_source){0};
}

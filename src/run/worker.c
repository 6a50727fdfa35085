/* The worker's memory: allocated once, in a few big blocks per rank. */
#include "run/internal.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* MemAvailable, or less where a control group allows less; 0 when neither can be read. */
static int64_t available_bytes(void) {
  int64_t available = 0, limit = 0;
  char line[256];
  FILE *f = fopen("/proc/meminfo", "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %ld kB", &available) == 1) break;
  if (f) fclose(f);
  available *= 1024;
  f = fopen("/sys/fs/cgroup/memory.max", "r");
  if (f && fscanf(f, "%ld", &limit) == 1 && limit > 0 && limit < available) available = limit;
  if (f) fclose(f);
  return available;
}

static int64_t shared_bytes(const tsr_program *p) {
  return p->bytes[TSR_SEGMENT_PARAM] + p->bytes[TSR_SEGMENT_STATE];
}
static int64_t own_bytes(const tsr_program *p) {
  return p->bytes[TSR_SEGMENT_CONST] + p->bytes[TSR_SEGMENT_INPUT];
}

static int64_t planned_bytes(const tsr_program *const *programs, int count) {
  int64_t bytes = shared_bytes(programs[0]), work = 0;
  for (int i = 0; i < count; i++) {
    bytes += own_bytes(programs[i]);
    if (programs[i]->bytes[TSR_SEGMENT_WORK] > work) work = programs[i]->bytes[TSR_SEGMENT_WORK];
  }
  return bytes + work;
}

static bool check_fits(
    const tsr_worker_options *o, const tsr_program *const *programs, int count, tsr_diags *diags) {
  int64_t rank = planned_bytes(programs, count), need = rank * o->parallel->ranks;
  int64_t have = o->memory_limit ? o->memory_limit : available_bytes();
  if (!have || need <= have) return true;
  tsr_diag_failure(
      diags, TSR_NOWHERE, "the model does not fit: %s needed for %d rank%s, %s %s",
      tsr_text_bytes(need), o->parallel->ranks, o->parallel->ranks == 1 ? "" : "s",
      tsr_text_bytes(have),
      o->memory_limit ? "allowed by device_config.memory_limit" : "available");
  const tsr_program *p = programs[0];
  tsr_diag_hint(
      diags,
      "a rank needs %s of parameters, %s of optimizer state, %s of activations and gradients",
      tsr_text_bytes(p->bytes[TSR_SEGMENT_PARAM]), tsr_text_bytes(p->bytes[TSR_SEGMENT_STATE]),
      tsr_text_bytes(p->bytes[TSR_SEGMENT_WORK]));
  tsr_diag_hint(
      diags,
      "a smaller batch_size, sequence_length or model would fit; `check` shows what each costs");
  return false;
}

static bool
allocate(tsr_worker *w, int rank, const char *what, int64_t bytes, char **ret, tsr_diags *diags) {
  if (bytes == 0) return *ret = NULL, true;
  void *memory =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "rank %d: cannot allocate %s for %s: %s", rank, tsr_text_bytes(bytes),
        what, strerror(errno));
  madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
  w->blocks[w->blocks_count++] = (struct tsr_block){memory, (size_t)bytes};
  w->bytes += bytes;
  *ret = memory;
  return true;
}

static bool allocate_rank(
    tsr_worker *w, int rank, const tsr_program *const *programs, int count, tsr_diags *diags) {
  int64_t work = 0;
  for (int i = 0; i < count; i++)
    if (programs[i]->bytes[TSR_SEGMENT_WORK] > work) work = programs[i]->bytes[TSR_SEGMENT_WORK];
  char *base[TSR_SEGMENTS] = {0};
  if (!allocate(
          w, rank, "parameters", programs[0]->bytes[TSR_SEGMENT_PARAM], &base[TSR_SEGMENT_PARAM],
          diags) ||
      !allocate(
          w, rank, "optimizer state", programs[0]->bytes[TSR_SEGMENT_STATE],
          &base[TSR_SEGMENT_STATE], diags) ||
      !allocate(w, rank, "activations and gradients", work, &base[TSR_SEGMENT_WORK], diags))
    return false;
  for (int i = 0; i < count; i++) {
    tsr_rank_memory *m = &w->bound[i].ranks[rank];
    memcpy(m->base, base, sizeof base);
    if (!allocate(
            w, rank, "constants", programs[i]->bytes[TSR_SEGMENT_CONST],
            &m->base[TSR_SEGMENT_CONST], diags) ||
        !allocate(
            w, rank, "inputs", programs[i]->bytes[TSR_SEGMENT_INPUT], &m->base[TSR_SEGMENT_INPUT],
            diags))
      return false;
    for (int a = 0; a < TSR_AXES; a++)
      m->coord[a] = tsr_parallel_coord(w->options.parallel, rank, a);
  }
  return true;
}

static void bind_program(tsr_arena *arena, tsr_worker *w, int index, const tsr_program *program) {
  tsr_bound *b = &w->bound[index];
  *b = (tsr_bound){.worker = w, .program = program};
  b->ranks = tsr_arena_array(arena, tsr_rank_memory, w->options.parallel->ranks);
  b->param_values = tsr_arena_array(arena, int, program->graph->params_count);
  for (int v = 0; v < program->graph->values_count; v++)
    if (program->graph->values[v].kind == TSR_VALUE_PARAM)
      b->param_values[program->graph->values[v].param] = v;
}

bool tsr_worker_open(
    tsr_arena *arena, const tsr_worker_options *options, const tsr_program *const *programs,
    int programs_count, tsr_worker **ret_worker, tsr_bound **ret_bound, tsr_diags *diags) {
  if (!check_fits(options, programs, programs_count, diags)) return false;
  tsr_worker *w = tsr_arena_alloc(arena, sizeof *w);
  *w = (tsr_worker){.options = *options, .bound_count = programs_count};
  w->bound = tsr_arena_array(arena, tsr_bound, programs_count);
  w->in = tsr_arena_array(arena, float *, options->parallel->ranks);
  w->out = tsr_arena_array(arena, float *, options->parallel->ranks);
  w->blocks =
      tsr_arena_array(arena, struct tsr_block, options->parallel->ranks * (3 + 2 * programs_count));
  for (int i = 0; i < programs_count; i++) {
    assert(programs[i]->bytes[TSR_SEGMENT_PARAM] == programs[0]->bytes[TSR_SEGMENT_PARAM]);
    bind_program(arena, w, i, programs[i]);
  }
  bool ok = tsr_pool_open(arena, options->threads, &w->pool, diags);
  for (int r = 0; ok && r < options->parallel->ranks; r++)
    ok = allocate_rank(w, r, programs, programs_count, diags);
  if (!ok) {
    tsr_worker_close(w);
    return false;
  }
  assert(w->bytes == planned_bytes(programs, programs_count) * options->parallel->ranks);
  for (int i = 0; i < programs_count; i++) tsr_bound_initialise(&w->bound[i], i == 0);
  *ret_worker = w;
  for (int i = 0; i < programs_count; i++) ret_bound[i] = &w->bound[i];
  return true;
}

void tsr_worker_close(tsr_worker *w) {
  if (!w) return;
  tsr_pool_close(w->pool);
  for (int i = 0; i < w->blocks_count; i++) munmap(w->blocks[i].memory, w->blocks[i].size);
  w->blocks_count = 0;
}

int64_t tsr_worker_bytes(const tsr_worker *w) { return w->bytes; }

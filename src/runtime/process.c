// SPDX-License-Identifier: Apache-2.0
/* The process's memory: allocated once, in a few big blocks per rank. */
#include "runtime/executable_internal.h"
#include "base/file_ops.h"
#include "base/memory.h"
#include "device/memory_report.h"
#include "runtime/part_holders.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t shared_bytes(const tsr_program *p) {
  return p->bytes[TSR_SEGMENT_PARAM] + p->bytes[TSR_SEGMENT_STATE];
}
static int64_t own_bytes(const tsr_program *p) {
  return p->bytes[TSR_SEGMENT_CONST] + p->bytes[TSR_SEGMENT_INPUT];
}

static int64_t available_bytes(const tsr_process *w) {
  return w->device->available(w->device->state);
}

/* The work segment that is enough for all programs of a stage. */
static int64_t work_bytes(const tsr_programs *programs, int count, int stage) {
  int64_t work = 0;
  for (int i = 0; i < count; i++) {
    int64_t bytes = programs[i].of_stage[stage]->bytes[TSR_SEGMENT_WORK];
    if (bytes > work) work = bytes;
  }
  return work;
}

/* What programs keep is the same for all of them that keep anything. */
static int64_t cache_bytes(const tsr_programs *programs, int count, int stage) {
  int64_t cache = 0;
  for (int i = 0; i < count; i++) {
    int64_t bytes = programs[i].of_stage[stage]->bytes[TSR_SEGMENT_CACHE];
    assert(!bytes || !cache || bytes == cache);
    if (bytes) cache = bytes;
  }
  return cache;
}

/* Of activations in the host's memory: one program runs at a time. */
static int64_t offloaded_activations(const tsr_programs *programs, int count, int stage) {
  int64_t most = 0;
  for (int i = 0; i < count; i++) {
    int64_t bytes = programs[i].of_stage[stage]->bytes[TSR_SEGMENT_HOST];
    if (bytes > most) most = bytes;
  }
  return most;
}

/* Of one rank of a stage, on the device. */
static int64_t planned_bytes(const tsr_programs *programs, int count, int stage) {
  int64_t bytes = shared_bytes(programs[0].of_stage[stage]) + work_bytes(programs, count, stage);
  bytes += cache_bytes(programs, count, stage);
  for (int i = 0; i < count; i++) bytes += own_bytes(programs[i].of_stage[stage]);
  return bytes;
}

/* Ranks of a stage that this process hosts. */
static int ranks_here(const tsr_process_options *o, int stage) {
  int count = 0;
  for (int r = 0; r < o->parallel->ranks; r++)
    count += tsr_parallel_coord(o->parallel, r, TSR_PP) == stage &&
             tsr_rank_map_process(&o->rank_map, r) == o->rank_map.process;
  return count;
}

/* Of the ranks' state here, where it is in a file and not in memory. */
static int64_t offloaded_bytes(const tsr_process_options *o, const tsr_programs *programs) {
  int64_t sum = 0;
  for (int s = 0; s < programs->pipeline->stages && o->state_folder; s++)
    sum += programs->of_stage[s]->bytes[TSR_SEGMENT_STATE] * ranks_here(o, s);
  return sum;
}

/* What the ranks here have of activations in the host's memory beside a device's. */
static int64_t
offloaded_activations_here(const tsr_process *w, const tsr_programs *programs, int count) {
  int64_t sum = 0;
  for (int s = 0; s < programs->pipeline->stages && !tsr_device_is_host(w->device); s++)
    sum += offloaded_activations(programs, count, s) * ranks_here(&w->options, s);
  return sum;
}

/* Of all ranks here; and which stage's ranks need the most. */
static int64_t planned_bytes_here(
    const tsr_process_options *o, const tsr_programs *programs, int count, int *ret_stage) {
  int64_t sum = 0, most = -1;
  for (int s = 0; s < programs->pipeline->stages; s++) {
    int64_t bytes = planned_bytes(programs, count, s), ranks = ranks_here(o, s);
    if (!o->device || tsr_device_is_host(o->device))
      bytes += offloaded_activations(programs, count, s);
    sum += bytes * ranks;
    if (ranks && bytes > most) most = bytes, *ret_stage = s;
  }
  return sum;
}

/* For messages: where memory is, if it is not the host's. */
static tsr_short_text on_device(const tsr_device *d) {
  tsr_short_text text = {""};
  if (d->location) snprintf(text.text, sizeof text.text, " on %s", d->name);
  return text;
}

static bool
check_fits_host(const tsr_process *w, const tsr_programs *programs, int count, tsr_diags *diags) {
  int64_t need = offloaded_activations_here(w, programs, count), have = tsr_memory_available();
  if (!need || !have || need <= have) return true;
  tsr_diag_failure(
      diags, TSR_NOWHERE,
      "the activations do not fit into the host's memory: %s needed, %s available",
      tsr_text_bytes(need).text, tsr_text_bytes(have).text);
  tsr_diag_hint(diags, "schedule.activation_offload_blocks offloads fewer blocks");
  return false;
}

static bool
check_fits(const tsr_process *w, const tsr_programs *programs, int count, tsr_diags *diags) {
  const tsr_process_options *o = &w->options;
  int stage = 0;
  int64_t need = planned_bytes_here(o, programs, count, &stage);
  int64_t have = o->memory_limit ? o->memory_limit : available_bytes(w);
  need -= offloaded_bytes(o, programs);
  bool known = have || !tsr_device_is_host(w->device);
  if (!known || need <= have) return true;
  tsr_diag_failure(
      diags, TSR_NOWHERE, "the model does not fit: %s needed for %d rank%s, %s %s%s",
      tsr_text_bytes(need).text, o->parallel->ranks, o->parallel->ranks == 1 ? "" : "s",
      tsr_text_bytes(have).text,
      o->memory_limit ? "allowed by device_config.memory_limit" : "available",
      on_device(w->device).text);
  const tsr_program *p = programs[0].of_stage[stage];
  tsr_diag_hint(
      diags,
      "a rank%s needs %s of parameters, %s of optimizer state, %s of activations and gradients",
      programs->pipeline->stages > 1
          ? tsr_arena_printf(programs->graph->arena, " of stage %d", stage)
          : "",
      tsr_text_bytes(p->bytes[TSR_SEGMENT_PARAM]).text,
      tsr_text_bytes(p->bytes[TSR_SEGMENT_STATE]).text,
      tsr_text_bytes(p->bytes[TSR_SEGMENT_WORK]).text);
  tsr_text outside = {0};
  tsr_device_print_memory(w->device, &outside);
  if (outside.data) tsr_diag_hint(diags, "%s", outside.data);
  tsr_text_free(&outside);
  int64_t cache = cache_bytes(programs, count, stage);
  if (cache)
    tsr_diag_hint(
        diags, "and %s for keys and values of generated text", tsr_text_bytes(cache).text);
  tsr_diag_hint(
      diags,
      "a smaller batch_size, sequence_length or model would fit; `check` shows what each costs");
  return false;
}

static bool
allocate(tsr_process *w, int rank, const char *what, int64_t bytes, char **ret, tsr_diags *diags) {
  const tsr_device *d = w->device;
  void *memory;
  char why[TSR_DEVICE_WHY_BYTES];
  if (bytes == 0) return *ret = NULL, true;
  if (!d->allocate(d->state, bytes, &memory, why)) {
    char *remedy = strchr(why, '\n');
    if (remedy) *remedy++ = 0;
    tsr_diag_failure(
        diags, TSR_NOWHERE, "rank %d: cannot allocate %s for %s%s: %s", rank,
        tsr_text_bytes(bytes).text, what, on_device(d).text, why);
    if (remedy) tsr_diag_hint(diags, "%s", remedy);
    return false;
  }
  w->blocks[w->blocks_count++] = (struct tsr_block){memory, bytes, d, false};
  w->bytes += bytes;
  *ret = memory;
  return true;
}

bool tsr_process_allocate(
    tsr_process *w, int64_t bytes, const char *what, char **ret, tsr_diags *diags) {
  int first = 0;
  while (!tsr_executable_is_here(&w->executable[0], first)) first++;
  return allocate(w, first, what, bytes, ret, diags);
}

/* A file without a name: whatever ends the run, nothing is left of it. */
static bool map_state(tsr_process *w, int rank, int64_t bytes, char **ret, tsr_diags *diags) {
  const char *folder = w->options.state_folder;
  if (bytes == 0) return *ret = NULL, true;
  int file = tsr_disk_create_unnamed(folder, (size_t)bytes);
  void *memory = file < 0 ? NULL : tsr_disk_map_to_write(file, (size_t)bytes);
  int wrong = errno;
  if (file >= 0) close(file);
  if (!memory)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "rank %d: cannot keep %s of optimizer state in a file in '%s': %s",
        rank, tsr_text_bytes(bytes).text, folder, strerror(wrong));
  w->blocks[w->blocks_count++] = (struct tsr_block){memory, bytes, NULL, false};
  w->bytes += bytes;
  *ret = memory;
  return true;
}

static bool allocate_state(tsr_process *w, int rank, int64_t bytes, char **ret, tsr_diags *diags) {
  if (w->options.state_folder) return map_state(w, rank, bytes, ret, diags);
  return allocate(w, rank, "optimizer state", bytes, ret, diags);
}

/* Memory of the host that the device's copies read and write; of the CPU, its own. */
static bool allocate_on_host(
    tsr_process *w, int rank, const char *what, int64_t bytes, char **ret, tsr_diags *diags) {
  const tsr_device *d = w->device;
  void *memory;
  char why[TSR_DEVICE_WHY_BYTES];
  if (bytes == 0) return *ret = NULL, true;
  if (tsr_device_is_host(d)) return allocate(w, rank, what, bytes, ret, diags);
  if (!d->allocate_host(d->state, bytes, &memory, why)) {
    why[strcspn(why, "\n")] = 0;
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "rank %d: cannot allocate %s of the host's memory for %s: %s", rank,
        tsr_text_bytes(bytes).text, what, why);
  }
  w->blocks[w->blocks_count++] = (struct tsr_block){memory, bytes, d, true};
  *ret = memory;
  return true;
}

static bool allocate_work(tsr_process *w, int rank, int64_t bytes, char **ret, tsr_diags *diags) {
  *ret = bytes ? tsr_process_new_shared_work(w, rank, bytes) : NULL;
  return *ret || allocate(w, rank, "activations and gradients", bytes, ret, diags);
}

static bool
allocate_rank(tsr_process *w, int rank, const tsr_programs *programs, int count, tsr_diags *diags) {
  int stage = tsr_parallel_coord(w->options.parallel, rank, TSR_PP);
  const tsr_program *first = programs[0].of_stage[stage];
  char *base[TSR_SEGMENTS] = {0};
  if (!allocate(
          w, rank, "parameters", first->bytes[TSR_SEGMENT_PARAM], &base[TSR_SEGMENT_PARAM],
          diags) ||
      !allocate_state(w, rank, first->bytes[TSR_SEGMENT_STATE], &base[TSR_SEGMENT_STATE], diags) ||
      !allocate(
          w, rank, "keys and values", cache_bytes(programs, count, stage), &base[TSR_SEGMENT_CACHE],
          diags) ||
      !allocate_work(w, rank, work_bytes(programs, count, stage), &base[TSR_SEGMENT_WORK], diags) ||
      !allocate_on_host(
          w, rank, "activations", offloaded_activations(programs, count, stage),
          &base[TSR_SEGMENT_HOST], diags))
    return false;
  for (int i = 0; i < count; i++) {
    const tsr_program *p = programs[i].of_stage[stage];
    tsr_rank_memory *m = &w->executable[i].ranks[rank];
    assert(p->bytes[TSR_SEGMENT_PARAM] == first->bytes[TSR_SEGMENT_PARAM]);
    memcpy(m->base, base, sizeof base);
    if (!allocate(
            w, rank, "constants", p->bytes[TSR_SEGMENT_CONST], &m->base[TSR_SEGMENT_CONST],
            diags) ||
        !allocate(
            w, rank, "inputs", p->bytes[TSR_SEGMENT_INPUT], &m->base[TSR_SEGMENT_INPUT], diags))
      return false;
  }
  return true;
}

static void find_ranks_of_stages(tsr_arena *arena, tsr_executable *b) {
  const tsr_parallel *p = b->process->options.parallel;
  int stages = b->programs->pipeline->stages;
  b->ranks_count = tsr_arena_array(arena, int, stages);
  b->ranks_of_stage = tsr_arena_array(arena, int *, stages);
  for (int s = 0; s < stages; s++)
    b->ranks_of_stage[s] = tsr_arena_array(arena, int, p->ranks / stages);
  for (int r = 0; r < p->ranks; r++) {
    b->ranks[r].rank = r;
    for (int a = 0; a < TSR_AXES; a++) b->ranks[r].coord[a] = tsr_parallel_coord(p, r, a);
    int stage = b->ranks[r].coord[TSR_PP];
    if (tsr_executable_is_here(b, r)) b->ranks_of_stage[stage][b->ranks_count[stage]++] = r;
  }
}

static void
bind_programs(tsr_arena *arena, tsr_process *w, int index, const tsr_programs *programs) {
  tsr_executable *b = &w->executable[index];
  const tsr_graph *g = programs->graph;
  int microbatches = programs->pipeline->microbatches;
  assert(programs->pipeline->stages == w->options.parallel->size[TSR_PP]);
  tsr_programs *copy = tsr_arena_alloc(arena, sizeof *copy);
  *copy = *programs;
  *b = (tsr_executable){.process = w, .programs = copy};
  b->ranks = tsr_arena_array(arena, tsr_rank_memory, w->options.parallel->ranks);
  b->on_host = tsr_arena_array(arena, tsr_rank_memory, w->options.parallel->ranks);
  b->copies = tsr_arena_array(arena, tsr_device_copy, w->options.parallel->ranks);
  b->running = tsr_arena_array(arena, int, w->options.parallel->ranks);
  b->views = tsr_arena_array(arena, tsr_device_view, w->options.parallel->ranks);
  b->holders = tsr_arena_alloc(arena, sizeof *b->holders);
  *b->holders = tsr_part_holders_new(arena, b);
  find_ranks_of_stages(arena, b);
  b->param_values = tsr_arena_array(arena, int, g->params_count);
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM) b->param_values[g->values[v].param] = v;
  b->transfers = tsr_arena_array(arena, tsr_transfer *, g->nodes_count);
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].op == TSR_OP_RECEIVE)
      b->transfers[i] = tsr_arena_array(arena, tsr_transfer, microbatches);
  b->at = tsr_arena_array(arena, tsr_stage_at, programs->pipeline->stages);
  b->rows = tsr_arena_array(arena, char *, w->options.parallel->ranks);
  int64_t row = 1;
  for (int v = 0; v < g->values_count; v++) {
    int64_t bytes = 4 * tsr_value_elements(&g->values[v]) / g->values[v].shape[0];
    bool split = g->values[v].placement[TSR_CP].kind == TSR_SHARD;
    if (g->values[v].kind == TSR_VALUE_INPUT && split && bytes > row) row = bytes;
  }
  for (int r = 0; r < w->options.parallel->ranks; r++)
    b->rows[r] = tsr_arena_array(arena, char, row);
}

/* One program runs at a time, so the largest need is enough. */
static int64_t most_of(const tsr_process *w, int64_t (*bytes_of)(const tsr_executable *)) {
  int64_t most = 0;
  for (int i = 0; i < w->executables_count; i++) {
    int64_t bytes = bytes_of(&w->executable[i]);
    if (bytes > most) most = bytes;
  }
  return most;
}

/* In the memory of the device: its own messages, and the host's where the memory is the host's. */
static int64_t message_bytes(const tsr_process *w) {
  int64_t host = most_of(w, tsr_executable_staging_bytes);
  return most_of(w, tsr_executable_device_message_bytes) +
         (tsr_device_is_host(w->device) ? host : 0);
}

/* Copies of operands and of messages, where the device has memory of its own. */
static bool allocate_copies(tsr_process *w, int first, tsr_diags *diags) {
  int ranks = w->options.parallel->ranks;
  for (int r = 0; r < ranks; r++) {
    int64_t most = 0;
    for (int i = 0; i < w->executables_count && tsr_executable_is_here(&w->executable[i], r); i++) {
      int64_t bytes = tsr_executable_host_bytes(&w->executable[i], r);
      if (bytes > most) most = bytes;
    }
    if (!allocate_on_host(w, r, "what the host computes", most, &w->host_work[r], diags))
      return false;
  }
  for (int i = 0; i < w->executables_count; i++) {
    tsr_executable *b = &w->executable[i];
    for (int r = 0; r < ranks; r++) {
      b->on_host[r] = b->ranks[r];
      b->on_host[r].base[TSR_SEGMENT_WORK] = w->host_work[r];
    }
    char *copies;
    if (!tsr_executable_messages_by_host(b)) continue;
    int64_t bytes = tsr_executable_place_transfers(b, NULL);
    if (!allocate_on_host(w, first, "messages", bytes, &copies, diags)) return false;
    tsr_executable_place_transfers(b, copies);
  }
  return true;
}

static bool allocate_staging(tsr_arena *arena, tsr_process *w, tsr_diags *diags) {
  char *messages;
  int first = 0;
  for (int i = 0; i < w->executables_count; i++) {
    tsr_executable_find_scaled(arena, &w->executable[i]);
    tsr_executable_plan_replicated(arena, &w->executable[i]);
    tsr_executable_begin_nan_scores(&w->executable[i]);
    tsr_executable_plan_collectives(arena, &w->executable[i]);
    tsr_executable_plan_pending(arena, &w->executable[i]);
    if (!tsr_executable_is_alone(&w->executable[i]))
      tsr_executable_plan_transfers(arena, &w->executable[i]);
    tsr_executable_plan_device_messages(arena, &w->executable[i]);
  }
  while (!tsr_executable_is_here(&w->executable[0], first)) first++;
  int64_t by_host = most_of(w, tsr_executable_staging_bytes),
          by_device = most_of(w, tsr_executable_device_message_bytes);
  if (!allocate_on_host(w, first, "messages", by_host, &w->staging, diags) ||
      !allocate(w, first, "messages", by_device, &messages, diags))
    return false;
  for (int i = 0; i < w->executables_count; i++) {
    tsr_executable_place_pending(&w->executable[i], w->staging);
    tsr_executable_place_device_messages(&w->executable[i], messages);
  }
  return tsr_device_is_host(w->device) || allocate_copies(w, first, diags);
}

static bool open_inputs(tsr_arena *arena, tsr_process *w, tsr_diags *diags) {
  char why[TSR_DEVICE_WHY_BYTES];
  for (int i = 0; i < w->executables_count; i++)
    if (!tsr_inputs_open(arena, &w->executable[i], why))
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "cannot allocate memory of the host for inputs of %s: %s",
          w->device->name, why);
  return true;
}

static bool open_devices(tsr_arena *arena, tsr_process *w, tsr_diags *diags) {
  const tsr_cpu_context cpu = {w->options.kernels, w->options.threads};
  if (!tsr_cpu_device_open(arena, &cpu, &w->host, diags)) return false;
  w->device = w->options.device ? w->options.device : w->host;
  w->pool = tsr_cpu_device_pool(w->host);
  return true;
}

bool tsr_process_open(
    tsr_arena *arena, const tsr_process_options *options, const tsr_programs *programs,
    int programs_count, tsr_process **ret_process, tsr_executable **ret_bound, tsr_diags *diags) {
  tsr_process *w = tsr_arena_alloc(arena, sizeof *w);
  *w = (tsr_process){.options = *options, .executables_count = programs_count};
  if (!open_devices(arena, w, diags)) return false;
  bool ok = check_fits(w, programs, programs_count, diags) &&
            check_fits_host(w, programs, programs_count, diags);
  w->executable = tsr_arena_array(arena, tsr_executable, programs_count);
  w->in = tsr_arena_array(arena, float *, options->parallel->ranks);
  w->out = tsr_arena_array(arena, float *, options->parallel->ranks);
  w->process_of = tsr_arena_array(arena, int, options->parallel->ranks);
  w->blocks = tsr_arena_array(
      arena, struct tsr_block,
      options->parallel->ranks * (6 + 2 * programs_count) + 2 + programs_count +
          TSR_PROCESS_BLOCKS);
  w->host_work = tsr_arena_array(arena, char *, options->parallel->ranks);
  for (int i = 0; i < programs_count; i++) bind_programs(arena, w, i, &programs[i]);
  tsr_process_plan_shared_work(arena, w);
  for (int r = 0; ok && r < options->parallel->ranks; r++)
    if (tsr_executable_is_here(&w->executable[0], r))
      ok = allocate_rank(w, r, programs, programs_count, diags);
  tsr_process_share_work(arena, w, ok, diags);
  ok = ok && allocate_staging(arena, w, diags) && open_inputs(arena, w, diags);
  if (!ok) {
    tsr_process_close(w);
    return false;
  }
  int stage;
  assert(
      w->bytes == planned_bytes_here(options, programs, programs_count, &stage) + message_bytes(w));
  for (int i = 0; i < programs_count; i++) tsr_executable_initialise(&w->executable[i], i == 0);
  *ret_process = w;
  for (int i = 0; i < programs_count; i++) ret_bound[i] = &w->executable[i];
  return true;
}

void tsr_process_close(tsr_process *w) {
  if (!w) return;
  const tsr_device *d = w->device;
  for (int i = 0; i < w->executables_count; i++) {
    for (int set = 0; set < 2; set++)
      if (w->executable[i].graphs[set]) d->destroy_graph(d->state, w->executable[i].graphs[set]);
    tsr_inputs_close(&w->executable[i]);
  }
  for (int i = 0; i < w->blocks_count; i++) {
    const struct tsr_block *block = &w->blocks[i];
    if (block->on_host) d->release_host(d->state, block->memory);
    else if (block->device) d->release(d->state, block->memory, block->bytes);
    else munmap(block->memory, (size_t)block->bytes);
  }
  w->blocks_count = 0;
  tsr_cpu_device_close(w->host);
}

int64_t tsr_process_bytes(const tsr_process *w) { return w->bytes; }

int64_t tsr_process_resident_bytes(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
  if (f) fclose(f);
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t tsr_executable_memory_left(const tsr_executable *b) {
  const tsr_process *w = b->process;
  const tsr_device *host = w->host;
  int64_t limit = w->options.memory_limit, untouched = w->bytes - tsr_process_resident_bytes();
  if (w->device != host) limit = untouched = 0; /* the limit is the device's */
  if (untouched < 0) untouched = 0;
  int64_t left = limit ? limit - w->bytes : host->available(host->state) - untouched;
  return left > 0 ? left : 0;
}

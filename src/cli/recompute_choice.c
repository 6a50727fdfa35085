// SPDX-License-Identifier: Apache-2.0
#include "cli/recompute_choice.h"
#include "base/memory.h"
#include "plan/plan.h"
#include <string.h>

/* ---- what there is ---- */

/* Which ranks share a memory. */
typedef enum { OF_RANK, OF_PROCESS, OF_HOST } memory_owner;

typedef struct {
  memory_owner owner;
  int64_t bytes; /* 0: not known */
  const char *what;
} memory_room;

/* Of this process alone. */
static memory_room room_here(const setup *s, const prepared *p) {
  const tsr_machine *m = p->machine;
  int64_t limit = s->config->device.memory_limit;
  const tsr_device *d = s->compute.device;
  if (m) return (memory_room){m->threads ? OF_HOST : OF_RANK, m->memory, m->name};
  if (limit) return (memory_room){OF_PROCESS, limit, "device_config.memory_limit"};
  if (d) return (memory_room){OF_PROCESS, d->available(d->state), "what the GPU has available"};
  if (s->compute.cuda || s->config->device.kind == TSR_DEVICE_CUDA)
    return (memory_room){OF_PROCESS, 0, NULL};
  return (memory_room){OF_HOST, tsr_memory_available(), "what the host has available"};
}

/* The least of all processes. */
static bool find_room(app *a, const setup *s, const prepared *p, memory_room *ret) {
  *ret = room_here(s, p);
  if (tsr_job_is_alone(&a->job)) return true;
  int processes = a->job.transport.processes;
  int64_t *all = tsr_arena_array(a->arena, int64_t, processes);
  if (!tsr_job_all_succeeded(&a->job, true) ||
      !tsr_job_gather(&a->job, &ret->bytes, sizeof ret->bytes, all))
    return false;
  for (int i = 0; i < processes; i++)
    if (all[i] < ret->bytes) ret->bytes = all[i];
  return true;
}

/* ---- what is needed ---- */

/* The process, or the first one of the host, in whose memory a rank is. */
static int owner_of(const tsr_rank_map *map, memory_owner owner, int rank) {
  int process = tsr_rank_map_process(map, rank);
  return owner == OF_RANK ? rank : owner == OF_HOST && map->hosts ? map->hosts[process] : process;
}

/* Of the memory that needs the most. */
static int64_t bytes_needed(app *a, const setup *s, const prepared *p, memory_owner owner) {
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  int count = tsr_plan_programs(&p->training, &p->evaluation, &p->generation, programs);
  int ranks = s->parallel->ranks, stages = programs[0].pipeline->stages;
  tsr_memory *of_stage = tsr_arena_array(a->arena, tsr_memory, stages);
  int64_t *sums = tsr_arena_array(a->arena, int64_t, ranks), most = 0;
  for (int i = 0; i < stages; i++) tsr_memory_of(programs, count, i, &of_stage[i]);
  for (int r = 0; r < ranks; r++) {
    const tsr_memory *m = &of_stage[tsr_parallel_coord(s->parallel, r, TSR_PP)];
    int64_t *sum = &sums[owner_of(&s->ranks, owner, r)];
    *sum += s->config->zero.offload == TSR_OFFLOAD_FILE ? m->total - m->state : m->total;
    if (*sum > most) most = *sum;
  }
  return most;
}

/* ---- which ---- */

static const struct {
  tsr_recompute how;
  int64_t every;
  const char *text;
} choices[] = {
    {TSR_RECOMPUTE_NONE, 1, "none"},
    {TSR_RECOMPUTE_CHEAP, 1, "cheap"},
    {TSR_RECOMPUTE_FULL, 8, "full, recompute_every: 8"},
    {TSR_RECOMPUTE_FULL, 4, "full, recompute_every: 4"},
    {TSR_RECOMPUTE_FULL, 3, "full, recompute_every: 3"},
    {TSR_RECOMPUTE_FULL, 2, "full, recompute_every: 2"},
    {TSR_RECOMPUTE_FULL, 1, "full"}};
enum { CHEAP = 1, CHOICES = sizeof choices / sizeof *choices };

static void take(setup *s, int choice) {
  s->config->schedule.recompute = choices[choice].how;
  s->config->schedule.recompute_every = choices[choice].every;
}

static void note(app *a, const setup *s, int choice, int64_t need, const memory_room *room) {
  static const char *const owners[] = {"a rank", "a process", "a host"};
  tsr_location location = tsr_config_location(s->config, "schedule.recompute");
  if (room->bytes)
    tsr_diag_note(
        a->diags, location, "recompute: auto is %s: %s needs %s of %s (%s)", choices[choice].text,
        owners[room->owner], tsr_text_bytes(need).text, tsr_text_bytes(room->bytes).text,
        room->what);
  else
    tsr_diag_note(
        a->diags, location,
        "recompute: auto is %s: the memory of the GPUs is not known without device_config."
        "memory_limit",
        choices[choice].text);
}

/* Each choice is compiled in silence: what is to be said of the run is said when it is compiled
 * with the choice that is taken. */
bool recompute_choose(
    app *a, setup *s, prepared *p, bool (*compile)(app *a, const setup *s, prepared *p)) {
  memory_room room;
  tsr_diags *diags = a->diags;
  int64_t need = 0, least = INT64_MAX;
  int choice = 0, smallest = 0;
  if (s->config->schedule.recompute != TSR_RECOMPUTE_AUTO) return true;
  if (!find_room(a, s, p, &room)) return false;
  for (choice = room.bytes ? 0 : CHEAP; choice < CHOICES; choice++) {
    prepared tried = *p;
    take(s, choice);
    a->diags = tsr_diags_new(a->arena);
    bool ok = compile(a, s, &tried);
    a->diags = diags;
    if (!ok || tried.training.graph->loss < 0) return true; /* the caller's compilation says why */
    need = bytes_needed(a, s, &tried, room.owner);
    if (need <= room.bytes || !room.bytes) break;
    if (need <= least) least = need, smallest = choice;
  }
  if (choice == CHOICES) take(s, choice = smallest), need = least;
  note(a, s, choice, need, &room);
  return true;
}

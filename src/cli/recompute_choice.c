// SPDX-License-Identifier: Apache-2.0
#include "cli/recompute_choice.h"
#include "cli/memory_need.h"
#include "base/memory.h"
#include <string.h>

/* ---- what there is ---- */

/* Of this process alone. */
static memory_room room_here(const setup *s, const prepared *p) {
  const tsr_machine *m = p->machine;
  int64_t limit = s->config->device.memory_limit;
  const tsr_device *d = s->compute.device;
  if (m) return (memory_room){m->threads ? MEMORY_OF_HOST : MEMORY_OF_RANK, m->memory, m->name};
  if (limit) return (memory_room){MEMORY_OF_PROCESS, limit, "device_config.memory_limit"};
  if (d)
    return (memory_room){MEMORY_OF_PROCESS, d->available(d->state), "what the GPU has available"};
  if (s->compute.cuda || s->config->device.kind == TSR_DEVICE_CUDA)
    return (memory_room){MEMORY_OF_PROCESS, 0, NULL};
  return (memory_room){MEMORY_OF_HOST, tsr_memory_available(), "what the host has available"};
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
  tsr_location location = tsr_config_location(s->config, "schedule.recompute");
  if (room->bytes)
    tsr_diag_note(
        a->diags, location, "recompute: auto is %s: %s needs %s of %s (%s)", choices[choice].text,
        memory_owner_name(room->owner), tsr_text_bytes(need).text, tsr_text_bytes(room->bytes).text,
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
    need = memory_bytes_needed(a, s, &tried, room.owner);
    if (need <= room.bytes || !room.bytes) break;
    if (need <= least) least = need, smallest = choice;
  }
  if (choice == CHOICES) take(s, choice = smallest), need = least;
  note(a, s, choice, need, &room);
  return true;
}

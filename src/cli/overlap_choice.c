// SPDX-License-Identifier: Apache-2.0
#include "cli/overlap_choice.h"
#include "cli/memory_need.h"
#include <math.h>

/* ---- where there is nothing to compare ---- */

/* Whether members of a group over dp are in different processes. */
static bool crosses_processes(const setup *s) {
  const tsr_parallel *p = s->parallel;
  for (int r = 0; r < p->ranks; r++)
    if (tsr_rank_map_process(&s->ranks, r) !=
        tsr_rank_map_process(&s->ranks, tsr_parallel_member(p, r, TSR_DP, 0)))
      return true;
  return false;
}

/* Plans are of a process for each device. */
static bool is_described(app *a, const prepared *p) {
  return p->machine || (!setup_computes(a) && tsr_job_is_alone(&a->job));
}

static const char *why_not(app *a, const setup *s, const prepared *p, const tsr_machine *m) {
  bool apart = is_described(a, p) ? m && !m->threads : crosses_processes(s);
  if (!apart)
    return "the ranks of dp are in one process, in which a collective is complete when it begins";
  if (!m) return "no machine is described for the devices of the mesh";
  if (m->threads)
    return tsr_arena_printf(
        a->arena, "machine '%s' is one host, which computes all tasks one after another", m->name);
  return NULL;
}

/* ---- what a plan says ---- */

typedef struct {
  double step; /* seconds */
  int64_t bytes;
} cost;

/* Each way is compiled in silence, as recompute_choice.c does, and for the devices of the machine,
 * so that the choice does not depend on this machine's kernels. False: the compilation of the run
 * says why, or the run has no loss. */
static bool find_cost(
    app *a, setup *s, const prepared *p, const tsr_machine *m, memory_owner owner, bool overlaps,
    bool (*compile)(app *a, const setup *s, prepared *p), cost *ret) {
  tsr_diags *diags = a->diags;
  prepared tried = *p;
  setup elsewhere = *s;
  elsewhere.elsewhere = tsr_plan_device();
  s->config->schedule.auto_overlaps = overlaps;
  a->diags = tsr_diags_new(a->arena);
  bool ok = compile(a, &elsewhere, &tried);
  a->diags = diags;
  s->config->schedule.auto_overlaps = false;
  if (!ok || tried.training.graph->loss < 0) return false;
  tsr_estimate e;
  tsr_plan_estimate(a->arena, s->config, s->parallel, &tried.training, m, &e);
  *ret = (cost){e.step, memory_bytes_needed(a, s, &tried, owner)};
  return true;
}

static memory_room room_of(const setup *s, const tsr_machine *m) {
  int64_t limit = s->config->device.memory_limit;
  memory_room room = {MEMORY_OF_RANK, m->memory, m->name};
  if (limit) room.bytes = limit, room.what = "device_config.memory_limit";
  if (limit && s->ranks.processes > 1) room.owner = MEMORY_OF_PROCESS;
  return room;
}

static const char *
compare(app *a, const memory_room *room, const char *machine, cost with, cost without, bool *ret) {
  *ret = false;
  if (with.bytes > room->bytes && without.bytes <= room->bytes)
    return tsr_arena_printf(
        a->arena, "with it %s needs %s of %s (%s)", memory_owner_name(room->owner),
        tsr_text_bytes(with.bytes).text, tsr_text_bytes(room->bytes).text, room->what);
  *ret = with.step < without.step * (1 - 1e-9);
  return tsr_arena_printf(
      a->arena, "by the plan for '%s' a step takes %s with it, and %s without it", machine,
      tsr_text_seconds(with.step).text, tsr_text_seconds(without.step).text);
}

/* ---- the choice ---- */

/* A configuration that another run has printed has the word, too. */
static bool is_asked_for(const app *a, tsr_location location) {
  tsr_command c = a->options.command;
  return location.file && (c == TSR_COMMAND_TRAIN || c == TSR_COMMAND_PROFILE ||
                           c == TSR_COMMAND_CHECK || c == TSR_COMMAND_PLAN);
}

static void note(app *a, const setup *s, bool compared, const char *why) {
  tsr_location location = tsr_config_location(s->config, "schedule.all_reduce_overlap");
  if (!compared && !is_asked_for(a, location)) return;
  if (!location.file) location.file = s->config->file;
  tsr_diag_note(
      a->diags, location, "all_reduce_overlap: auto is %s: %s",
      s->config->schedule.auto_overlaps ? "true" : "false", why);
}

void overlap_choose(
    app *a, setup *s, const prepared *p, bool (*compile)(app *a, const setup *s, prepared *p)) {
  tsr_config_schedule *schedule = &s->config->schedule;
  tsr_machine *m = p->machine;
  tsr_recompute how = schedule->recompute;
  const char *why;
  cost with, without;
  if (schedule->all_reduce_overlap != TSR_OVERLAP_AUTO || s->parallel->size[TSR_DP] == 1) return;
  tsr_diags *silent = tsr_diags_new(a->arena);
  if (!m && !tsr_machine_choose(a->arena, a->share, NULL, s->mesh, &m, &why, silent)) m = NULL;
  why = why_not(a, s, p, m);
  if (why) {
    note(a, s, false, why);
    return;
  }
  memory_room room = room_of(s, m);
  if (how == TSR_RECOMPUTE_AUTO) schedule->recompute = TSR_RECOMPUTE_CHEAP;
  bool ok = find_cost(a, s, p, m, room.owner, true, compile, &with) &&
            find_cost(a, s, p, m, room.owner, false, compile, &without);
  schedule->recompute = how;
  if (!ok) return;
  if (!isfinite(with.step) || !isfinite(without.step)) {
    why = tsr_arena_printf(
        a->arena, "the links of machine '%s' join fewer devices than the mesh has", m->name);
    note(a, s, false, why);
    return;
  }
  bool overlaps;
  why = compare(a, &room, m->name, with, without, &overlaps);
  schedule->auto_overlaps = overlaps;
  note(a, s, true, why);
}
